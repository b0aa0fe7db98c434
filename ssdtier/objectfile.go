package ssdtier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// object is an open file of an object.
type object struct {
	file *os.File
	size int64
	sums []byte // eight bytes for each started block
}

// openObject opens an object's file and checks its end.
func openObject(path string) (*object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, objectError(err)
	}
	o := &object{file: f}
	if err := o.load(); err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	return o, nil
}

// load reads the object's size and its sums.
func (o *object) load() error {
	info, err := o.file.Stat()
	if err != nil {
		return wrap(err)
	}
	length := info.Size()
	var trailer [objectTrailer]byte
	if length < objectTrailer {
		return o.damaged("has no trailer")
	}
	if _, err := o.file.ReadAt(trailer[:], length-objectTrailer); err != nil {
		return wrap(err)
	}
	size, n, ok := parseTrailer(trailer[:], length)
	if !ok {
		return o.damaged("has a damaged trailer")
	}
	sums := make([]byte, n+8) // with the size, which their checksum covers
	if _, err := o.file.ReadAt(sums, size); err != nil {
		return wrap(err)
	}
	if xxhash.Sum64(sums) != binary.LittleEndian.Uint64(trailer[8:]) {
		return o.damaged("has damaged checksums")
	}
	o.size, o.sums = size, sums[:n]
	return nil
}

// parseTrailer returns an object's size and the number of bytes of its sums; it is not ok unless
// they agree with the file's length.
func parseTrailer(trailer []byte, length int64) (size, sums int64, ok bool) {
	size = int64(binary.LittleEndian.Uint64(trailer))
	if size < 0 || size > length || binary.LittleEndian.Uint64(trailer[16:]) != objectMagic {
		return 0, 0, false
	}
	sums = (size + sumUnit - 1) / sumUnit * 8
	return size, sums, length-size == sums+objectTrailer
}

// damaged returns the error of a damaged file.
func (o *object) damaged(format string, args ...any) error {
	return fmt.Errorf("ssdtier: %s %s: restore or remove it: %w", o.file.Name(), fmt.Sprintf(format, args...), device.ErrCorrupt)
}

func (o *object) Size() int64 { return o.size }

// blocks holds buffers for partial reads of blocks.
var blocks = sync.Pool{New: func() any { return new([sumUnit]byte) }}

// ReadAt implements io.ReaderAt. It reads and checks whole blocks.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("ssdtier: read of %s at offset %d", o.file.Name(), off)
	}
	if off >= o.size {
		return 0, io.EOF
	}
	want := int(min(int64(len(p)), o.size-off))
	for done := 0; done < want; {
		at := off + int64(done)
		rest := p[done:want]
		if whole := o.wholeBlocks(len(rest), at); whole > 0 {
			if err := o.readBlocks(rest[:whole], at); err != nil {
				return done, err
			}
			done += whole
			continue
		}
		block := blocks.Get().(*[sumUnit]byte)
		start := at &^ (sumUnit - 1)
		buf := block[:min(sumUnit, o.size-start)]
		err := o.readBlocks(buf, start)
		if err == nil {
			done += copy(rest, buf[at-start:])
		}
		blocks.Put(block)
		if err != nil {
			return done, err
		}
	}
	if want < len(p) {
		return want, io.EOF
	}
	return want, nil
}

// wholeBlocks returns the number of bytes, of n from at on, that are whole blocks; 0 if at is
// inside a block.
func (o *object) wholeBlocks(n int, at int64) int {
	switch {
	case at%sumUnit != 0:
		return 0
	case at+int64(n) == o.size:
		return n
	}
	return n &^ (sumUnit - 1)
}

// readBlocks fills p from off, a block's start, to a block's end, and compares the blocks with
// their sums.
func (o *object) readBlocks(p []byte, off int64) error {
	if _, err := o.file.ReadAt(p, off); err != nil {
		if errors.Is(err, io.EOF) {
			return o.damaged("is cut short")
		}
		return wrap(err)
	}
	for ; len(p) > 0; off += sumUnit {
		n := min(len(p), sumUnit)
		if sumOf(p[:n]) != binary.LittleEndian.Uint64(o.sums[off/sumUnit*8:]) {
			return o.damaged("does not match its checksum in the block at offset %d", off)
		}
		p = p[n:]
	}
	return nil
}

func (o *object) Close() error { return o.file.Close() }
