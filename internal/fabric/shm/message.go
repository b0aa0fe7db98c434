//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
)

// The control socket carries packets. Each is one message: a kind and its fields,
// little-endian. It carries no data.
//
//	hello     magic 8, private ≤ 56           files: generations, rings  the dialer's first message
//	accepted  private ≤ 56                    file: generations          the answer, or
//	rejected  reason                                                     this
//	wake                                                                 look at the rings
//	import    id 4, token 16                                             asks for a region
//	lent      id 4, word 4, generation 8, size 8   file: region          the answer, or
//	unknown   id 4                                                       this, or
//	failed    id 4                                                       this: it lacks resources
const (
	kindHello byte = iota + 1
	kindAccepted
	kindRejected
	kindWake
	kindImport
	kindLent
	kindUnknown
	kindFailed
)

const (
	magic      = "redyshm1"
	maxMessage = 256
	maxFiles   = 2
)

// errMessage is returned when the peer does not follow this protocol.
var errMessage = errors.New("malformed control message")

// send writes one message and its files.
func send(c *net.UnixConn, message []byte, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(message, rights, nil); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// receive reads one message into buf. It returns the kind, the rest of the message, and the
// message's files, which the caller closes.
func receive(c *net.UnixConn, buf []byte) (kind byte, body []byte, files []*os.File, err error) {
	var oob [64]byte // room for more than maxFiles descriptors
	n, on, flags, _, err := c.ReadMsgUnix(buf, oob[:])
	if on > 0 { // also with the error that an empty message is
		files = takeFiles(oob[:on])
	}
	if err != nil {
		closeFiles(files)
		return 0, nil, nil, fmt.Errorf("control socket: %w", err)
	}
	if n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > maxFiles {
		closeFiles(files)
		return 0, nil, nil, errMessage
	}
	return buf[0], buf[1:n], files, nil
}

func takeFiles(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "peer"))
		}
	}
	return files
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // closing a memory file's descriptor loses nothing
	}
}

// importRequest and its answers.

func encodeImport(id uint32, token fabric.Token) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{kindImport}, id), token[:]...)
}

func decodeImport(b []byte) (id uint32, token fabric.Token, err error) {
	if len(b) != 20 {
		return 0, token, errMessage
	}
	return binary.LittleEndian.Uint32(b), fabric.Token(b[4:]), nil
}

// loan describes a region that its owner lends.
type loan struct {
	id         uint32
	word       uint32
	generation uint64
	size       int64
}

func (l loan) encode() []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kindLent}, l.id)
	b = binary.LittleEndian.AppendUint32(b, l.word)
	b = binary.LittleEndian.AppendUint64(b, l.generation)
	return binary.LittleEndian.AppendUint64(b, uint64(l.size))
}

func decodeLoan(b []byte) (loan, error) {
	if len(b) != 24 {
		return loan{}, errMessage
	}
	return loan{
		id: binary.LittleEndian.Uint32(b), word: binary.LittleEndian.Uint32(b[4:]),
		generation: binary.LittleEndian.Uint64(b[8:]), size: int64(binary.LittleEndian.Uint64(b[16:])),
	}, nil
}
