package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/redykv/redykv/device"
)

// An object of a checkpoint is a row of chunks, each
//
//	length 4 │ kind 4 │ address 8 │ checksum 8 │ bytes
//
// The checksum covers the object's name, the chunk's number, what is in front of
// it and the bytes: a chunk that is damaged, missing, or from somewhere else does
// not pass. The last chunk is of kind chunkEnd; its address is the number of
// those before it.
const (
	chunkHeader  = 24
	maxChunk     = 1 << 20 // bytes in a chunk
	chunkIndex   = 1       // buckets of the index, from the number that is the address
	chunkLog     = 2       // the log, from the address
	chunkEnd     = 3
	chunkKinds   = 4
	endOfChunks  = 0 // length of the last chunk
	chunkSumAt   = 16
	chunkBytesAt = chunkHeader
)

// chunkSum is the checksum of a chunk, whose header is at the start of b.
func chunkSum(d *xxhash.Digest, name string, number int, b []byte) uint64 {
	d.Reset()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(number))
	for _, part := range [][]byte{[]byte(name), n[:], b[:chunkSumAt], b[chunkBytesAt:]} {
		_, _ = d.Write(part) // takes everything
	}
	return d.Sum64()
}

// chunkWriter writes an object. It belongs to one goroutine.
type chunkWriter struct {
	name   string
	object device.ObjectWriter
	digest *xxhash.Digest
	buffer []byte // of the chunk that is filled
	kind   uint32
	addr   int64 // …and where it starts
	number int
	bytes  int64 // written so far
}

// createChunks begins an object, which ends with commit or abort.
func createChunks(ctx context.Context, dev device.Device, name string, kind uint32) (*chunkWriter, error) {
	var object device.ObjectWriter
	err := device.Retry(ctx, func() (err error) {
		object, err = dev.CreateObject(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating object %q: %w", name, err)
	}
	return &chunkWriter{
		name: name, object: object, digest: xxhash.New(), kind: kind,
		buffer: make([]byte, chunkHeader, chunkHeader+maxChunk),
	}, nil
}

// next is where the bytes that are added next come from, if they follow on what
// is in the buffer; unit is how many bytes an address counts.
func (w *chunkWriter) next(unit int64) int64 {
	return w.addr + int64(len(w.buffer)-chunkHeader)/unit
}

// add appends bytes from addr on. Addresses count units of so many bytes and
// only go up.
func (w *chunkWriter) add(addr, unit int64, b []byte) error {
	if len(w.buffer) > chunkHeader && (addr != w.next(unit) || len(w.buffer)+len(b) > cap(w.buffer)) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.buffer) == chunkHeader {
		w.addr = addr
	}
	w.buffer = append(w.buffer, b...)
	return nil
}

// flush writes the chunk that was filled.
func (w *chunkWriter) flush() error {
	binary.LittleEndian.PutUint32(w.buffer, uint32(len(w.buffer)-chunkHeader))
	binary.LittleEndian.PutUint32(w.buffer[4:], w.kind)
	binary.LittleEndian.PutUint64(w.buffer[8:], uint64(w.addr))
	binary.LittleEndian.PutUint64(w.buffer[chunkSumAt:], chunkSum(w.digest, w.name, w.number, w.buffer))
	if _, err := w.object.Write(w.buffer); err != nil {
		return fmt.Errorf("writing object %q: %w", w.name, err)
	}
	w.bytes += int64(len(w.buffer))
	w.number++
	w.buffer = w.buffer[:chunkHeader]
	return nil
}

// commit makes the object durable and gives it its name.
func (w *chunkWriter) commit() error {
	if len(w.buffer) > chunkHeader {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.kind, w.addr = chunkEnd, int64(w.number)
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.object.Commit(); err != nil {
		return fmt.Errorf("completing object %q: %w", w.name, err)
	}
	return nil
}

// abort drops an object after err, and returns that.
func (w *chunkWriter) abort(err error) error {
	if aborted := w.object.Abort(); aborted != nil {
		err = errors.Join(err, fmt.Errorf("dropping object %q: %w", w.name, aborted))
	}
	return err
}

// readChunks hands the chunks of an object to visit, in order. Everything is
// checked but what an address means: an error of visit is ErrCorrupt if that is
// what is wrong. The bytes are valid during the call.
func readChunks(name string, object io.ReaderAt, size int64, kind uint32, visit func(addr int64, b []byte) error) error {
	r := io.NewSectionReader(object, 0, size)
	digest := xxhash.New()
	buffer := make([]byte, chunkHeader+min(maxChunk, size))
	for number := 0; ; number++ {
		if _, err := io.ReadFull(r, buffer[:chunkHeader]); err != nil {
			return unread(name, number, err)
		}
		length := binary.LittleEndian.Uint32(buffer)
		if int64(length) > min(maxChunk, size) {
			return damaged(name, number, fmt.Errorf("length %d", length))
		}
		b := buffer[:chunkHeader+length]
		if _, err := io.ReadFull(r, b[chunkHeader:]); err != nil {
			return unread(name, number, err)
		}
		if sum, want := chunkSum(digest, name, number, b), binary.LittleEndian.Uint64(b[chunkSumAt:]); sum != want {
			return damaged(name, number, fmt.Errorf("checksum %x, want %x", sum, want))
		}
		addr := int64(binary.LittleEndian.Uint64(b[8:]))
		switch is := binary.LittleEndian.Uint32(b[4:]); {
		case is == chunkEnd && length == endOfChunks && addr == int64(number):
			return nil
		case is != kind || length == endOfChunks:
			return damaged(name, number, fmt.Errorf("%d bytes of kind %d", length, is))
		}
		if err := visit(addr, b[chunkHeader:]); err != nil {
			return fmt.Errorf("object %q, chunk %d: %w", name, number, err)
		}
	}
}

// damaged says where an object is not what was written.
func damaged(name string, number int, err error) error {
	return fmt.Errorf("%w: object %q, chunk %d: %w", ErrCorrupt, name, number, err)
}

// unread says where an object could not be read.
func unread(name string, number int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(name, number, errors.New("cut short"))
	}
	return fmt.Errorf("reading object %q, chunk %d: %w", name, number, err)
}

// objectOpener is where objects are: a device, or its files.
type objectOpener interface {
	OpenObject(name string) (device.Object, error)
}

// readObject is readChunks for an object on the device.
func readObject(dev objectOpener, name string, kind uint32, visit func(addr int64, b []byte) error) (err error) {
	object, err := dev.OpenObject(name)
	if err != nil {
		return fmt.Errorf("opening object %q: %w", name, err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	return readChunks(name, object, object.Size(), kind, visit)
}
