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

// objectWriter is an object that is being made, in a file that has a temporary
// name. It ends with file set to nil.
type objectWriter struct {
	d    *Device
	path string // of the object
	file *os.File
	size int64
	buf  []byte // at most objectBuffer, which the file has not got yet
	sums []byte // of what the file has got
	err  error  // the write that failed
}

// Write implements io.Writer.
func (w *objectWriter) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, device.ErrClosed
	}
	written := 0
	for written < len(p) && w.err == nil {
		rest := p[written:]
		if len(w.buf) == 0 && len(rest) >= objectBuffer {
			w.put(rest[:objectBuffer])
			written += objectBuffer
			continue
		}
		n := min(len(rest), objectBuffer-len(w.buf))
		w.buf = append(w.buf, rest[:n]...)
		written += n
		if len(w.buf) == objectBuffer {
			w.flush()
		}
	}
	return written, w.err
}

func (w *objectWriter) flush() {
	w.put(w.buf)
	w.buf = w.buf[:0]
}

// put writes whole blocks, or the object's last, and notes their sums.
func (w *objectWriter) put(p []byte) {
	if w.err != nil {
		return
	}
	if _, err := w.file.Write(p); err != nil {
		w.err = fmt.Errorf("ssdtier: write of %s: %w", w.path, err)
		return
	}
	w.size += int64(len(p))
	for len(p) > 0 {
		n := min(len(p), sumUnit)
		w.sums = binary.LittleEndian.AppendUint64(w.sums, sumOf(p[:n]))
		p = p[n:]
	}
}

// finish writes what is missing of the file and makes it durable.
func (w *objectWriter) finish() error {
	w.flush()
	if w.err != nil {
		return w.err
	}
	end := binary.LittleEndian.AppendUint64(w.sums, uint64(w.size))
	end = binary.LittleEndian.AppendUint64(end, xxhash.Sum64(end))
	end = binary.LittleEndian.AppendUint64(end, objectMagic)
	_, err := w.file.Write(end)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("ssdtier: write of %s: %w", w.path, err)
	}
	return nil
}

// Commit implements device.ObjectWriter.
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
	if w.d.closed {
		_ = f.Close() // the directory may be somebody else's by now
		return device.ErrClosed
	}
	err := f.Close()
	if err == nil {
		err = os.Rename(f.Name(), w.path)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: commit of %s: %w", w.path, errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(w.d.dir)
}

// Abort implements device.ObjectWriter.
func (w *objectWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	f := w.end()
	_ = f.Close() // its bytes are not wanted
	if w.d.closed {
		return nil // the directory may be somebody else's, who removes the file
	}
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	return nil
}

// end ends the writer and returns its file.
func (w *objectWriter) end() *os.File {
	f := w.file
	w.file, w.buf, w.sums = nil, nil, nil
	return f
}
