package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Copy writes the table to an object while sessions use it. The table must not grow meanwhile.
func (t *Table) Copy(ctx context.Context, w *manifest.ObjectWriter) error {
	const checkEvery = 1 << 20 // buckets between two looks at ctx
	var image [BucketSize]byte
	end := t.mask + 1
	for b := uint64(0); b < end; b++ {
		if b%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		bucket := t.bucket(b)
		for i := range BucketEntries + 1 {
			binary.LittleEndian.PutUint64(image[i*8:], uint64(placeIn(bucket, i).Load()))
		}
		if err := w.Add(int64(b), BucketSize, image[:]); err != nil {
			return err
		}
		if b == t.mask {
			// Links that were copied may lead to overflow buckets that are taken after this
			// count. Their entries are in the log that recovery reads.
			end = t.allBuckets()
		}
	}
	return nil
}

// Load makes a table of a copy whose entries lie below tail. onCrowded is as in New. read, unless it
// is nil, is called with the number of bytes that were read; its error ends Load.
func Load(objects manifest.Opener, c *manifest.IndexCopy, tail int64, onCrowded func(), read func(bytes int64) error) (*Table, error) {
	if read == nil {
		read = func(int64) error { return nil }
	}
	l := loader{source: c, tail: tail, onCrowded: onCrowded, read: read}
	least := int64(BucketSize) << c.Bits // checked before memory is allocated
	err := manifest.ReadObject(objects, c.Object, manifest.IndexChunk, least, l.add)
	if err == nil {
		err = l.finish()
	}
	if err != nil && l.table != nil {
		return nil, errors.Join(err, l.table.Free())
	}
	return l.table, err
}

// loader fills a table that no session uses yet.
type loader struct {
	source    *manifest.IndexCopy
	tail      int64
	onCrowded func()
	read      func(bytes int64) error
	table     *Table // allocated for the first chunk
	next      uint64 // the number of the next bucket
}

// add takes the buckets of one chunk. They come in order, without a gap.
func (l *loader) add(at int64, b []byte) (err error) {
	if l.table == nil {
		if l.table, err = New(l.source.Bits, l.source.TagShift, l.onCrowded); err != nil {
			return err
		}
	}
	if uint64(at) != l.next || len(b)%BucketSize != 0 || l.next+uint64(len(b)/BucketSize) > l.table.mask+1+2*l.table.limit {
		return fmt.Errorf("%w: %d bytes of buckets from number %d on, want them from %d on", device.ErrCorrupt, len(b), at, l.next)
	}
	if err := l.read(int64(len(b))); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[BucketSize:] {
		// Plain stores: atomic ones take longer than the disk.
		bucket := (*[BucketEntries + 1]Entry)(l.table.bucket(l.next))
		for i := range bucket {
			e := Entry(binary.LittleEndian.Uint64(b[i*8:]))
			if i < BucketEntries {
				if e&Tentative != 0 {
					continue // its record is in the log that recovery reads
				}
				if a := e.Address(); e != 0 && (e&Used == 0 || a >= l.tail || a%8 != 0) {
					return fmt.Errorf("%w: bucket %d: entry %#x does not fit a log up to %d", device.ErrCorrupt, l.next, uint64(e), l.tail)
				}
			}
			bucket[i] = e
		}
		l.next++
	}
	return nil
}

// finish cuts the links that lead out of the copy. It refuses those that could form a
// circle: a bucket is linked once, from one with a lower number.
func (l *loader) finish() error {
	if buckets := uint64(1) << l.source.Bits; l.next < buckets {
		return fmt.Errorf("%w: only %d of %d buckets", device.ErrCorrupt, l.next, buckets)
	}
	t := l.table
	t.overflow.Store(l.next - t.mask - 1)
	linked := make([]atomic.Uint64, (l.next-t.mask-1)/64+1)
	return inParts(l.next, func(from, to uint64) error {
		for b := from; b < to; b++ {
			link := placeIn(t.bucket(b), BucketEntries)
			next := uint64(link.Load())
			if next == 0 {
				continue
			}
			if next >= l.next {
				link.Store(0)
				continue
			}
			bit := uint64(1) << ((next - t.mask - 1) % 64)
			if next <= t.mask || next <= b || linked[(next-t.mask-1)/64].Or(bit)&bit != 0 {
				return fmt.Errorf("%w: bucket %d cannot be linked from bucket %d", device.ErrCorrupt, next, b)
			}
		}
		return nil
	})
}

// inParts calls visit for parts of so many buckets, from as many goroutines as there are
// processors. It returns the first error.
func inParts(buckets uint64, visit func(from, to uint64) error) error {
	const least = 1 << 16
	parts := max(min(uint64(runtime.GOMAXPROCS(0)), buckets/least), 1)
	var group errgroup.Group
	for i := range parts {
		group.Go(func() error { return visit(buckets*i/parts, buckets*(i+1)/parts) })
	}
	return group.Wait()
}
