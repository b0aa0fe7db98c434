package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
)

// After the greeting both directions carry frames, little-endian, back to back.
// Every frame but reply begins with the same 24 bytes; fields that its kind does not use are
// ignored.
//
//	byte  0      1       4       8       16      20
//	      kind   flags   handle  offset  length  imm
//
//	read      handle, offset, length       asks for length bytes
//	write     handle, offset, length; flag more: the next frame continues the
//	          same write                   length bytes follow
//	writeImm  as write, and imm            length bytes follow
//	nop                                    asks for an empty reply
//	import    imm: the question's number   asks for lent; length is 16, a token follows
//	release   handle                       ends an import; no answer
//	credit    length                       the peer may send length more immediates
//	lent      imm: the question's number; flags: status; handle; offset: the region's size
//	data      handle, offset, imm: the question's number   asks for found
//	found     imm: the question's number; flags: status; offset, length: a range of the
//	          region that may hold other bytes than zeros
//	ping                                   asks for pong
//	pong                                   the peer's process runs (pulse.go)
//
//	reply     8 bytes: kind, status, 0, 0, length 4; length bytes follow
//
// read, write, writeImm and nop are answered by one reply each, in their order; the order
// assigns replies to requests. A failed read and every other request have a reply without
// bytes. No frame carries more than maxFragment bytes; larger operations take several.
//
// Neither end stops reading in order to write, so they cannot deadlock. What waits to be
// written is bounded: an end requests at most window bytes beyond those answered (each request
// counts requestCost more), and sends no more immediates than it has credit for. A peer that
// exceeds either, or sends anything not in this table, is disconnected.
const (
	kindRead byte = iota + 1
	kindWrite
	kindWriteImm
	kindNop
	kindImport
	kindRelease
	kindCredit
	kindLent
	kindData
	kindFound
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

// errFrame is returned for a frame that does not follow the protocol.
var errFrame = errors.New("malformed frame")

// frame is one decoded frame; body aliases the decoded buffer.
type frame struct {
	kind, flags byte
	handle      uint32
	offset      int64
	length      uint32
	imm         uint32
	body        []byte
}

// decode decodes the first frame of b and returns its size, or 0 if b does not hold all of
// it.
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
			return 0, fmt.Errorf("%w: read of %d bytes", errFrame, f.length)
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
