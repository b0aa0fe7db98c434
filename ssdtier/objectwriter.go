package ssdtier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// An object's file is its bytes, the sums of each started block of them, and a
// trailer of three words, little endian: the object's size, the checksum of the
// sums and the size, and objectMagic.
const (
	objectMagic   = 0x316a626f766b7972 // "rykvobj1"
	objectTrailer = 3 * 8
)

// objectBuffer is the size of an object's writes to its file, whole blocks.
const objectBuffer = 1 << 20

// objectWriter writes an object to a file with a temporary name. file is nil after it has ended.
type objectWriter struct {
	d    *Device
	path string // of the object
	file *os.File
	size int64
	buf  []byte // aligned; not written to the file yet, less than objectBuffer
	sums []byte // of the blocks in the file
	err  error  // of the write that failed
}

func (w *objectWriter) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, device.ErrClosed
	}
	written := 0
	for written < len(p) && w.err == nil {
		rest := p[written:]
		n := min(len(rest), objectBuffer-len(w.buf))
		if n == objectBuffer && aligned(rest[:n], 0, w.d.block) {
			w.put(rest[:n])
		} else if w.buf = append(w.buf, rest[:n]...); len(w.buf) == objectBuffer {
			w.put(w.buf)
			w.buf = w.buf[:0]
		}
		written += n
	}
	w.size += int64(written)
	return written, w.err
}

// put writes whole blocks of the object and adds their sums.
func (w *objectWriter) put(p []byte) {
	w.addSums(p)
	w.write(p)
}

func (w *objectWriter) addSums(p []byte) {
	for len(p) > 0 {
		n := min(len(p), sumUnit)
		w.sums = binary.LittleEndian.AppendUint64(w.sums, sumOf(p[:n]))
		p = p[n:]
	}
}

// write writes whole blocks of the file.
func (w *objectWriter) write(p []byte) {
	if w.err != nil {
		return
	}
	err := w.d.withSpace(func() error {
		n, err := w.file.Write(p)
		p = p[n:]
		return err
	})
	if err != nil {
		w.err = fmt.Errorf("ssdtier: write of %s: %w", w.path, err)
	}
}

// finish writes the rest of the file, truncates the padding of the last block, and syncs it.
func (w *objectWriter) finish() error {
	w.addSums(w.buf)
	end := binary.LittleEndian.AppendUint64(w.sums, uint64(w.size))
	end = binary.LittleEndian.AppendUint64(end, xxhash.Sum64(end))
	end = binary.LittleEndian.AppendUint64(end, objectMagic)
	length := w.size + int64(len(end))
	for len(end) > 0 {
		n := min(len(end), objectBuffer-len(w.buf))
		w.buf = append(w.buf, end[:n]...)
		end = end[n:]
		if len(w.buf) == objectBuffer {
			w.write(w.buf)
			w.buf = w.buf[:0]
		}
	}
	full := w.buf[:alignUp(int64(len(w.buf)), int64(w.d.block))]
	clear(full[len(w.buf):])
	w.write(full)
	if w.err != nil {
		return w.err
	}
	err := w.file.Truncate(length)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("ssdtier: write of %s: %w", w.path, err)
	}
	return nil
}

func (w *objectWriter) Commit() error {
	if w.file == nil {
		return device.ErrClosed
	}
	if err := w.finish(); err != nil {
		return errors.Join(err, w.Abort())
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	f := w.end()
	if w.d.closed.Load() {
		_ = f.Close() // the directory may belong to another process now
		return device.ErrClosed
	}
	err := f.Close()
	if err == nil {
		err = os.Rename(f.Name(), w.path)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: commit of %s: %w", w.path, errors.Join(err, os.Remove(f.Name())))
	}
	return w.d.syncNames()
}

func (w *objectWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	f := w.end()
	_ = f.Close() // the file is removed
	if w.d.closed.Load() {
		return nil // the directory may belong to another process, which removes the file
	}
	return wrap(os.Remove(f.Name()))
}

// end ends the writer and returns its file.
func (w *objectWriter) end() *os.File {
	f := w.file
	w.file, w.buf, w.sums = nil, nil, nil
	return f
}
