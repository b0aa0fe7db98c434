package manifest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// An object is a sequence of chunks, each
//
//	length 4 │ kind 4 │ address 8 │ checksum 8 │ bytes
//
// The checksum covers the object's name, the chunk's number, the header before the
// checksum, and the bytes. So a chunk that is damaged, missing, or from another place is
// detected. The last chunk has the kind endChunk, no bytes, and the number of chunks
// before it as its address.
const (
	chunkHeader = 24 // bytes in front of the bytes of a chunk
	checksumAt  = 16
	// MaxChunk is the largest number of bytes in a chunk.
	MaxChunk = 1 << 20
)

// ChunkKind is the kind of the bytes of a chunk.
type ChunkKind uint32

const (
	IndexChunk ChunkKind = 1 // buckets of the index; the address is the number of the first
	LogChunk   ChunkKind = 2 // the log from the address on
	endChunk   ChunkKind = 3
)

// chunkSum is the checksum of a chunk; b begins with its header.
func chunkSum(d *xxhash.Digest, name string, number int, b []byte) uint64 {
	d.Reset()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(number))
	for _, part := range [][]byte{[]byte(name), n[:], b[:checksumAt], b[chunkHeader:]} {
		_, _ = d.Write(part) // does not fail
	}
	return d.Sum64()
}

// ObjectWriter writes an object. It is used by one goroutine.
type ObjectWriter struct {
	name   string
	object device.ObjectWriter
	digest *xxhash.Digest
	buffer []byte // the chunk that is being filled, with space for its header
	kind   ChunkKind
	addr   int64 // of the chunk that is being filled
	number int
	bytes  int64 // written so far
}

// CreateObject begins an object of chunks of one kind. Commit or Abort ends it.
func CreateObject(ctx context.Context, dev device.Device, name string, kind ChunkKind) (*ObjectWriter, error) {
	var object device.ObjectWriter
	err := device.Retry(ctx, func() (err error) {
		object, err = dev.CreateObject(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating object %q: %w", name, err)
	}
	return &ObjectWriter{
		name: name, object: object, digest: xxhash.New(), kind: kind,
		buffer: make([]byte, chunkHeader, chunkHeader+MaxChunk),
	}, nil
}

// Add appends the bytes at addr. Addresses count units of unit bytes, and increase.
func (w *ObjectWriter) Add(addr, unit int64, b []byte) error {
	next := w.addr + int64(len(w.buffer)-chunkHeader)/unit
	if len(w.buffer) > chunkHeader && (addr != next || len(w.buffer)+len(b) > cap(w.buffer)) {
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
func (w *ObjectWriter) flush() error {
	binary.LittleEndian.PutUint32(w.buffer, uint32(len(w.buffer)-chunkHeader))
	binary.LittleEndian.PutUint32(w.buffer[4:], uint32(w.kind))
	binary.LittleEndian.PutUint64(w.buffer[8:], uint64(w.addr))
	binary.LittleEndian.PutUint64(w.buffer[checksumAt:], chunkSum(w.digest, w.name, w.number, w.buffer))
	if _, err := w.object.Write(w.buffer); err != nil {
		return fmt.Errorf("writing object %q: %w", w.name, err)
	}
	w.bytes += int64(len(w.buffer))
	w.number++
	w.buffer = w.buffer[:chunkHeader]
	return nil
}

// Commit makes the object durable and visible under its name.
func (w *ObjectWriter) Commit() error {
	if len(w.buffer) > chunkHeader {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.kind, w.addr = endChunk, int64(w.number)
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.object.Commit(); err != nil {
		return fmt.Errorf("completing object %q: %w", w.name, err)
	}
	return nil
}

// Bytes returns how many bytes have been written.
func (w *ObjectWriter) Bytes() int64 { return w.bytes }

// Abort drops the object after err, and returns err.
func (w *ObjectWriter) Abort(err error) error {
	if aborted := w.object.Abort(); aborted != nil {
		err = errors.Join(err, fmt.Errorf("dropping object %q: %w", w.name, aborted))
	}
	return err
}

// Opener opens objects: a device, or a reader of its files.
type Opener interface {
	OpenObject(name string) (device.Object, error)
}

// ReadObject calls visit for the bytes of each chunk of an object, in order; they are
// valid during the call. It checks everything but the meaning of the address: for a wrong
// address visit returns device.ErrCorrupt. An object of less than size bytes is damaged;
// nothing of it is read.
func ReadObject(dev Opener, name string, kind ChunkKind, size int64, visit func(addr int64, b []byte) error) (err error) {
	object, err := dev.OpenObject(name)
	if err != nil {
		return fmt.Errorf("opening object %q: %w", name, err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if object.Size() < size {
		return damaged(name, 0, fmt.Errorf("%d bytes, want at least %d", object.Size(), size))
	}
	return readChunks(name, object, object.Size(), kind, visit)
}

func readChunks(name string, object io.ReaderAt, size int64, kind ChunkKind, visit func(addr int64, b []byte) error) error {
	r := newAheadReader(object, size)
	defer r.stop()
	digest := xxhash.New()
	buffer := make([]byte, chunkHeader+min(MaxChunk, size))
	for number := 0; ; number++ {
		if _, err := io.ReadFull(r, buffer[:chunkHeader]); err != nil {
			return unread(name, number, err)
		}
		length := binary.LittleEndian.Uint32(buffer)
		if int64(length) > min(MaxChunk, size) {
			return damaged(name, number, fmt.Errorf("impossible length %d", length))
		}
		b := buffer[:chunkHeader+length]
		if _, err := io.ReadFull(r, b[chunkHeader:]); err != nil {
			return unread(name, number, err)
		}
		if sum, want := chunkSum(digest, name, number, b), binary.LittleEndian.Uint64(b[checksumAt:]); sum != want {
			return damaged(name, number, fmt.Errorf("checksum %x, want %x", sum, want))
		}
		addr := int64(binary.LittleEndian.Uint64(b[8:]))
		switch is := ChunkKind(binary.LittleEndian.Uint32(b[4:])); {
		case is == endChunk && length == 0 && addr == int64(number):
			return nil
		case is != kind || length == 0:
			return damaged(name, number, fmt.Errorf("unexpected chunk of kind %d with %d bytes", is, length))
		}
		if err := visit(addr, b[chunkHeader:]); err != nil {
			return fmt.Errorf("object %q, chunk %d: %w", name, number, err)
		}
	}
}

// damaged is the error for an object that holds other bytes than were written.
func damaged(name string, number int, err error) error {
	return fmt.Errorf("%w: object %q, chunk %d: %w", device.ErrCorrupt, name, number, err)
}

// unread is the error for an object that could not be read.
func unread(name string, number int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(name, number, errors.New("the object ends too early"))
	}
	return fmt.Errorf("reading object %q, chunk %d: %w", name, number, err)
}

// LogPart is a snapshot: an object with bytes of the log between two addresses. An
// incremental one has gaps.
type LogPart struct {
	Object   string
	From, To int64
}

// Read calls visit for the bytes of the snapshot, in ascending order.
func (p LogPart) Read(dev Opener, visit func(addr int64, b []byte) error) error {
	next := p.From
	return ReadObject(dev, p.Object, LogChunk, 0, func(addr int64, b []byte) error {
		if addr < next || addr > p.To-int64(len(b)) {
			return fmt.Errorf("%w: %d bytes at %d of a log from %d to %d", device.ErrCorrupt, len(b), addr, next, p.To)
		}
		next = addr + int64(len(b))
		return visit(addr, b)
	})
}
