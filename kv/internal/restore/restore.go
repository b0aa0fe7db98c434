// Package restore puts snapshots back: it writes the log that a chain of them holds to a
// device, and shows the result on a device that is not written to.
package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Snapshots writes the log that a chain of snapshots holds to the device, which was
// started at tail. The tail is not below the beginning of the last snapshot. It can be
// repeated after an error. It calls read with the bytes of each part that it has read, whose error
// ends it.
//
// The device has everything below tail. The block that contains tail is written once, when
// its last version is known, since older versions may differ below tail.
func Snapshots(dev device.Device, chain []manifest.LogPart, tail int64, read func(bytes int64) error) (restored int64, err error) {
	top := chain[len(chain)-1]
	w, err := NewWriter(dev)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	from := start(dev, chain, tail)
	var shared []byte // the block that contains tail
	if from < tail {
		shared = make([]byte, min(from+w.alignment, top.To)-from)
	}
	for _, s := range chain {
		err := s.Read(dev, func(addr int64, b []byte) error {
			if err := read(int64(len(b))); err != nil {
				return err
			}
			b = b[min(max(from-addr, 0), int64(len(b))):]
			addr = max(addr, from)
			restored += int64(len(b))
			if at := addr - from; at < int64(len(shared)) {
				n := copy(shared[at:], b)
				addr, b = addr+int64(n), b[n:]
			}
			return w.Add(addr, b)
		})
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			return restored, fmt.Errorf("restoring the log from object %q: %w", s.Object, err)
		}
	}
	err = w.Add(from, shared)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = dev.Sync()
	}
	if err != nil {
		return restored, fmt.Errorf("restoring the log from object %q: %w", top.Object, err)
	}
	return restored, nil
}

// start returns the address from which Snapshots writes.
func start(dev device.Device, chain []manifest.LogPart, tail int64) int64 {
	return max(chain[len(chain)-1].From, tail&^int64(dev.Alignment()-1))
}

// Writer writes bytes to the log on a device, in whole blocks.
type Writer struct {
	queue     device.Queue
	alignment int64
	buffer    []byte
	addr      int64 // where the buffer goes
	n         int   // bytes in the buffer
}

// NewWriter opens a queue on the device.
func NewWriter(dev device.Device) (*Writer, error) {
	queue, err := dev.NewQueue(1)
	if err != nil {
		return nil, fmt.Errorf("opening a queue on the device: %w", err)
	}
	size := max(manifest.MaxChunk, dev.Alignment())
	return &Writer{
		queue: queue, alignment: int64(dev.Alignment()), buffer: device.AlignedBuffer(size, dev.Alignment()),
	}, nil
}

// Add writes b at addr, which follows what was added before or is the start of a block.
func (w *Writer) Add(addr int64, b []byte) error {
	for len(b) > 0 {
		if w.n > 0 && (addr != w.addr+int64(w.n) || w.n == len(w.buffer)) {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if w.n == 0 {
			w.addr = addr
		}
		n := copy(w.buffer[w.n:], b)
		w.n += n
		addr, b = addr+int64(n), b[n:]
	}
	return nil
}

// Flush writes the buffer, and zeros up to the end of its last block. If the log goes on
// there, the block is written again with the rest.
func (w *Writer) Flush() error {
	if w.n == 0 {
		return nil
	}
	n := (w.n + int(w.alignment) - 1) &^ (int(w.alignment) - 1)
	clear(w.buffer[w.n:n])
	w.n = 0
	if err := device.Finish(context.Background(), w.queue, w.queue.Write(w.buffer[:n], w.addr, 0)); err != nil {
		return fmt.Errorf("writing %d bytes at %d: %w", n, w.addr, err)
	}
	return nil
}

// Close closes the queue. It does not flush.
func (w *Writer) Close() error { return w.queue.Close() }
