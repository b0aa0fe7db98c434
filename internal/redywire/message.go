package redywire

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// A message is a batch in a slot. It has its number and length at the front and a checksum at
// the end, because not every fabric writes bytes in order and without errors: the checksum
// detects torn and altered messages.
//
//	0           8  number of the batch
//	8           4  length of the message in bytes, header and trailer included
//	12          4  count of entries
//	16             entries
//	length-8    8  xxhash of all bytes before
//
// An entry of a request, followed by the payload if it is a write:
//
//	0  1  op
//	1  1  zero
//	2  2  bytes to read or write
//	4  4  region, counted from 0 in the order of the server's tokens
//	8  8  offset in the region
//
// An entry of a response, followed by the payload if it answers a read:
//
//	0  1  status
//	1  1  zero
//	2  2  bytes of payload
//
// Responses stand in the order of their requests (R41).
const (
	headerSize   = 16
	trailerSize  = 8
	requestSize  = 16
	responseSize = 4

	// MaxPayload bounds the bytes written by one batch, and the bytes read by it: larger
	// transfers gain nothing (5.1).
	MaxPayload = 4096
)

// SlotSize is the size in bytes of a ring's slot for batches of up to batch requests. A full
// payload and all headers fit (A11).
func SlotSize(batch int) int {
	return (headerSize + MaxPayload + batch*requestSize + trailerSize + 63) &^ 63
}

// Op is the operation of a request.
type Op uint8

// Operations.
const (
	OpRead  Op = 1
	OpWrite Op = 2
)

// Status is a server's answer to one request.
type Status uint8

// Statuses. With any but StatusOK, memory is unchanged.
const (
	StatusOK          Status = 0
	StatusNoRegion    Status = 1 // no region of that number is lent
	StatusOutOfBounds Status = 2 // the request reaches outside its region
)

// String names the status as errors print it.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusNoRegion:
		return "no such region"
	case StatusOutOfBounds:
		return "out of bounds"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Request is one decoded entry. Payload, of a write, aliases the ring.
type Request struct {
	Op      Op
	Region  uint32
	Offset  uint64
	N       int
	Payload []byte
}

// Response is one decoded answer. Payload, of a read, aliases the ring.
type Response struct {
	Status  Status
	Payload []byte
}

// Writer builds a message in a slot. The caller ensures that it fits: at most as many entries
// as the argument of SlotSize, with MaxPayload bytes in all.
type Writer struct {
	slot  []byte
	pos   int
	count int
}

// Reset starts a message in slot.
func (w *Writer) Reset(slot []byte) { *w = Writer{slot: slot, pos: headerSize} }

// Count is the number of entries so far.
func (w *Writer) Count() int { return w.count }

// Read adds a request to read n bytes.
func (w *Writer) Read(region uint32, offset int64, n int) { w.request(OpRead, region, offset, n) }

// Write adds a request to write src.
func (w *Writer) Write(region uint32, offset int64, src []byte) {
	w.request(OpWrite, region, offset, len(src))
	w.pos += copy(w.slot[w.pos:], src)
}

func (w *Writer) request(op Op, region uint32, offset int64, n int) {
	e := w.slot[w.pos : w.pos+requestSize]
	binary.LittleEndian.PutUint32(e, uint32(op)|uint32(n)<<16)
	binary.LittleEndian.PutUint32(e[4:], region)
	binary.LittleEndian.PutUint64(e[8:], uint64(offset))
	w.pos += requestSize
	w.count++
}

// Respond adds a response with payload, which is empty unless a read succeeded.
func (w *Writer) Respond(status Status, payload []byte) {
	binary.LittleEndian.PutUint32(w.slot[w.pos:], uint32(status)|uint32(len(payload))<<16)
	w.pos += responseSize
	w.pos += copy(w.slot[w.pos:], payload)
	w.count++
}

// Seal ends the message as batch seq and returns its bytes.
func (w *Writer) Seal(seq uint64) []byte {
	end := w.pos
	w.pos += trailerSize
	binary.LittleEndian.PutUint64(w.slot, seq)
	binary.LittleEndian.PutUint32(w.slot[8:], uint32(w.pos))
	binary.LittleEndian.PutUint32(w.slot[12:], uint32(w.count))
	binary.LittleEndian.PutUint64(w.slot[end:], xxhash.Sum64(w.slot[:end]))
	return w.slot[:w.pos]
}

// Reseal sets the checksum of the message in slot, if its length allows. It is for tests that
// alter messages.
func Reseal(slot []byte) {
	if len(slot) < headerSize {
		return
	}
	end := int64(binary.LittleEndian.Uint32(slot[8:])) - trailerSize
	if end >= headerSize && end <= int64(len(slot))-trailerSize {
		binary.LittleEndian.PutUint64(slot[end:], xxhash.Sum64(slot[:end]))
	}
}

// Reader reads a message from a peer.
type Reader struct {
	entries []byte // not read yet
	left    int    // number of entries not read yet
	reads   int    // bytes requested by the reads so far
}

// Open checks the frame of the message in slot, which must be batch seq with at most batch
// entries.
func (r *Reader) Open(slot []byte, seq uint64, batch int) error {
	*r = Reader{}
	if len(slot) < headerSize+trailerSize {
		return fmt.Errorf("%w: slot of %d bytes", ErrMalformed, len(slot))
	}
	number := binary.LittleEndian.Uint64(slot)
	length := int64(binary.LittleEndian.Uint32(slot[8:]))
	count := int64(binary.LittleEndian.Uint32(slot[12:]))
	switch {
	case number != seq:
		return fmt.Errorf("%w: batch %d instead of %d", ErrMalformed, number, seq)
	case length < headerSize+trailerSize || length > int64(len(slot)):
		return fmt.Errorf("%w: batch %d of %d bytes in a slot of %d", ErrMalformed, seq, length, len(slot))
	case count < 1 || count > int64(batch):
		return fmt.Errorf("%w: batch %d of %d entries, at most %d", ErrMalformed, seq, count, batch)
	}
	end := length - trailerSize
	if sum := binary.LittleEndian.Uint64(slot[end:]); sum != xxhash.Sum64(slot[:end]) {
		return fmt.Errorf("%w: batch %d has a wrong checksum", ErrMalformed, seq)
	}
	r.entries = slot[headerSize:end]
	r.left = int(count)
	return nil
}

// More reports whether entries are left.
func (r *Reader) More() bool { return r.left > 0 }

// Request reads the next entry as a request. The reads of a batch must not exceed MaxPayload,
// so that their answers fit a slot.
func (r *Reader) Request() (Request, error) {
	if r.left == 0 || len(r.entries) < requestSize {
		return Request{}, fmt.Errorf("%w: request cut short", ErrMalformed)
	}
	word := binary.LittleEndian.Uint32(r.entries)
	q := Request{
		Op:     Op(word & 0xff),
		N:      int(word >> 16),
		Region: binary.LittleEndian.Uint32(r.entries[4:]),
		Offset: binary.LittleEndian.Uint64(r.entries[8:]),
	}
	r.entries = r.entries[requestSize:]
	r.left--
	switch {
	case word&0xff00 != 0:
		return Request{}, fmt.Errorf("%w: request word %#x", ErrMalformed, word)
	case q.Op == OpRead:
		if r.reads += q.N; r.reads > MaxPayload {
			return Request{}, fmt.Errorf("%w: a batch reads more than %d bytes", ErrMalformed, MaxPayload)
		}
	case q.Op == OpWrite:
		if q.N > len(r.entries) {
			return Request{}, fmt.Errorf("%w: write of %d bytes cut short", ErrMalformed, q.N)
		}
		q.Payload, r.entries = r.entries[:q.N:q.N], r.entries[q.N:]
	default:
		return Request{}, fmt.Errorf("%w: request word %#x", ErrMalformed, word)
	}
	return q, nil
}

// Response reads the next entry as a response.
func (r *Reader) Response() (Response, error) {
	if r.left == 0 || len(r.entries) < responseSize {
		return Response{}, fmt.Errorf("%w: response cut short", ErrMalformed)
	}
	word := binary.LittleEndian.Uint32(r.entries)
	n := int(word >> 16)
	r.entries = r.entries[responseSize:]
	r.left--
	if word&0xff00 != 0 || n > len(r.entries) {
		return Response{}, fmt.Errorf("%w: response word %#x", ErrMalformed, word)
	}
	p := Response{Status: Status(word & 0xff), Payload: r.entries[:n:n]}
	r.entries = r.entries[n:]
	return p, nil
}
