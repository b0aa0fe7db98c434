package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// A blob with a part of the log, or an object, is a sequence of blocks of blockSize bytes, the
// last one shorter, each followed by its checksum, eight bytes, little endian. So a range of a
// blob contains blocks and all that is needed to verify them.
const (
	blockSize   = 4 << 10
	blockStride = blockSize + 8
)

// errDamaged means that the bucket returned other bytes than were stored.
var errDamaged = fmt.Errorf("blob: the checksum or the length does not match: %w", device.ErrCorrupt)

// blockSum is the checksum of a block and its address.
func blockSum(block []byte, at int64) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(binary.LittleEndian.AppendUint64(nil, uint64(at)))
	_, _ = d.Write(block) // never fails
	return d.Sum64()
}

// unpack verifies blocks that were read, the first of which has an address, and passes their
// bytes to emit.
func unpack(data []byte, at int64, emit func(block []byte, at int64)) error {
	for len(data) > 0 {
		n := min(len(data), blockStride) - 8
		if n <= 0 || blockSum(data[:n], at) != binary.LittleEndian.Uint64(data[n:]) {
			return fmt.Errorf("block at address %d: %w", at, errDamaged)
		}
		emit(data[:n], at)
		data, at = data[n+8:], at+int64(n)
	}
	return nil
}

// packedSize is the size of a blob with n bytes.
func packedSize(n int64) int64 { return n + 8*((n+blockSize-1)/blockSize) }

// packedRange returns the offset and length of the blocks that contain the bytes addr..to, in
// a blob with the bytes from..end, and the address of the first.
func packedRange(from, end, addr, to int64) (off, n, first int64) {
	begin, until := (addr-from)/blockSize, (to-from+blockSize-1)/blockSize
	first = from + begin*blockSize
	last := min(from+until*blockSize, end)
	return begin * blockStride, last - first + 8*(until-begin), first
}

// readPacked fills dst with the bytes from addr on of a blob that has those from..end.
func (b *bucket) readPacked(ctx context.Context, key string, from, end int64, dst []byte, addr int64) error {
	off, n, first := packedRange(from, end, addr, addr+int64(len(dst)))
	return b.get(ctx, key, off, n, func(data []byte) error {
		return unpack(data, first, func(block []byte, at int64) {
			if skip := addr - at; skip > 0 {
				copy(dst, block[skip:])
			} else {
				copy(dst[-skip:], block)
			}
		})
	})
}

// copyChunk is the number of bytes of an object or of the log that are read at once for an
// upload: whole blocks.
const copyChunk = 256 << 10

// pack writes the bytes from..end to w as blocks. read fills a buffer from an address.
func pack(w io.Writer, from, end int64, read func(dst []byte, addr int64) error) error {
	buf := make([]byte, min(copyChunk, end-from))
	packed := make([]byte, 0, len(buf)+8*((len(buf)+blockSize-1)/blockSize))
	for at := from; at < end; {
		piece := buf[:min(int64(len(buf)), end-at)]
		if err := read(piece, at); err != nil {
			return err
		}
		packed = packed[:0]
		for block := range slices.Chunk(piece, blockSize) {
			packed = binary.LittleEndian.AppendUint64(append(packed, block...), blockSum(block, at))
			at += int64(len(block))
		}
		if _, err := w.Write(packed); err != nil {
			return err
		}
	}
	return nil
}

// fetchObject copies an object from the bucket to the local device.
func (b *bucket) fetchObject(ctx context.Context, local device.Device, name string, o stored) error {
	w, err := local.CreateObject(name)
	if err != nil {
		return err
	}
	buf := make([]byte, min(copyChunk, o.Size))
	for at := int64(0); at < o.Size && err == nil; at += int64(len(buf)) {
		piece := buf[:min(int64(len(buf)), o.Size-at)]
		if err = b.readPacked(ctx, o.Key, 0, o.Size, piece, at); err == nil {
			_, err = w.Write(piece)
		}
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Commit()
}
