package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
)

// After the greeting both directions carry frames, little-endian, back to back.
// Every frame but reply begins with the same 24 bytes; what a kind does not use
// is ignored.
//
//	byte  0      1       4       8       16      20
//	      kind   flags   handle  offset  length  imm
//
//	read      handle, offset, length       asks for length bytes
//	write     handle, offset, length; flag more: the next frame goes on with the
//	          same write                   length bytes follow
//	writeImm  as write, and imm            length bytes follow
//	nop                                    asks for an empty reply
//	import    imm: the question's number   asks for lent; length is 16, a token follows
//	release   handle                       forgets an import; no answer
//	credit    length                       so many more immediates may come
//	lent      imm: the question's number; flags: status; handle; offset: the region's size
//	ping                                   asks for pong
//	pong                                   the peer's process runs (pulse.go)
//
//	reply     8 bytes: kind, status, 0, 0, length 4; length bytes follow
//
// read, write, writeImm and nop are answered by one reply each, in their order:
// that is what tells replies apart. A read that fails, and everything that is no
// read, has a reply of no bytes. No frame carries more than maxFragment bytes;
// larger operations go in several.
//
// Neither end ever stops reading in order to write. That cannot deadlock because
// what waits to be written is bounded: an end asks for no more than window bytes
// (each request counts requestCost on top) beyond those answered, and sends no
// more immediates than it has credit for. A peer that exceeds either, or sends
// anything else that is not in this table, is cut off.
const (
	kindRead byte = iota + 1
	kindWrite
	kindWriteImm
	kindNop
	kindImport
	kindRelease
	kindCredit
	kindLent
	kindPing
	kindPong
	kindReply
)

const (
	flagMore byte = 1

	headerSize = 24
	replySize  = 8
	tokenSize  = 16

	maxFragment = 64 << 10
	maxFrame    = headerSize + maxFragment
	window      = 4 << 20
	requestCost = 64
)

// Statuses of a reply.
const (
	statusOK byte = iota
	statusBadToken
	statusOutOfBounds
)

// errFrame says that the peer does not keep to the protocol.
var errFrame = errors.New("malformed frame")

// frame is one decoded frame; body lies in the buffer that it was decoded from.
type frame struct {
	kind, flags byte
	handle      uint32
	offset      int64
	length      uint32
	imm         uint32
	body        []byte
}

// decode takes the first frame off b and returns its size: 0 if b does not hold
// it whole.
func decode(b []byte, f *frame) (size int, err error) {
	if len(b) < replySize {
		return 0, nil
	}
	f.kind, f.flags = b[0], b[1]
	if f.kind == kindReply {
		f.length = binary.LittleEndian.Uint32(b[4:])
		return f.takeBody(b, replySize)
	}
	if f.kind < kindRead || f.kind > kindReply {
		return 0, fmt.Errorf("%w: kind %d", errFrame, f.kind)
	}
	if len(b) < headerSize {
		return 0, nil
	}
	_ = b[headerSize-1]
	f.handle = binary.LittleEndian.Uint32(b[4:])
	f.offset = int64(binary.LittleEndian.Uint64(b[8:]))
	f.length = binary.LittleEndian.Uint32(b[16:])
	f.imm = binary.LittleEndian.Uint32(b[20:])
	switch f.kind {
	case kindWrite, kindWriteImm:
		return f.takeBody(b, headerSize)
	case kindImport:
		if f.length != tokenSize {
			return 0, fmt.Errorf("%w: token of %d bytes", errFrame, f.length)
		}
		return f.takeBody(b, headerSize)
	case kindRead:
		if f.length > maxFragment {
			return 0, fmt.Errorf("%w: asks for %d bytes", errFrame, f.length)
		}
	}
	f.body = nil
	return headerSize, nil
}

func (f *frame) takeBody(b []byte, header int) (int, error) {
	if f.length > maxFragment {
		return 0, fmt.Errorf("%w: body of %d bytes", errFrame, f.length)
	}
	size := header + int(f.length)
	if len(b) < size {
		return 0, nil
	}
	f.body = b[header:size:size]
	return size, nil
}

// appendHeader encodes a frame without its body.
func appendHeader(b []byte, f *frame) []byte {
	b = append(b, f.kind, f.flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, f.handle)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.offset))
	b = binary.LittleEndian.AppendUint32(b, f.length)
	return binary.LittleEndian.AppendUint32(b, f.imm)
}

// appendReply encodes a reply without its body.
func appendReply(b []byte, status byte, length int) []byte {
	b = append(b, kindReply, status, 0, 0)
	return binary.LittleEndian.AppendUint32(b, uint32(length))
}

func statusOf(err error) byte {
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, fabric.ErrOutOfBounds):
		return statusOutOfBounds
	}
	return statusBadToken
}

func errorOf(status byte) error {
	switch status {
	case statusOK:
		return nil
	case statusOutOfBounds:
		return fabric.ErrOutOfBounds
	}
	return fabric.ErrBadToken
}
