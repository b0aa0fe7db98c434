package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// copyIndex writes a copy of the index to an object while operations go on. It is
// fuzzy: an entry is as it was at some moment of the copying, or is missing, if it
// was made meanwhile. But all records below Start were in the index before, so
// their entries are in the copy, or entries of newer records of their chains; and
// what is missing is in the log from Start on, which recovery reads.
//
// Entries are never removed nor moved while the copy is made (copying the table
// and growing it exclude each other), so none is seen twice.
func (st *Store) copyIndex(ctx context.Context) (_ *manifest.IndexCopy, bytes int64, err error) {
	c := new(manifest.IndexCopy)
	if err := st.exclusive(ctx, func() { c.Start = st.log.Tail() }); err != nil {
		return nil, 0, err
	}
	// After the barrier: who keeps that waiting may himself wait for the index to grow.
	select {
	case st.resizing <- struct{}{}:
		defer func() { <-st.resizing }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	t := st.index.Load()
	c.Begin = st.log.Begin() // after the table: Clear may have replaced it since the barrier
	c.Bits, c.TagShift = t.bits, int(t.tagShift)
	c.Object = st.newObject(indexObject)
	w, err := manifest.CreateObject(ctx, st.dev, c.Object, manifest.IndexChunk)
	if err != nil {
		return nil, 0, err
	}
	err = t.copyTo(ctx, w, 0, t.mask+1)
	if err == nil {
		// Links in what was copied may lead to buckets that were handed out after
		// this count: what these hold is in the log.
		err = t.copyTo(ctx, w, t.mask+1, t.buckets())
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		return nil, 0, w.Abort(err)
	}
	return c, w.Bytes(), nil
}

// buckets are the table's, and those for overflow that were handed out.
func (t *table) buckets() uint64 { return t.mask + 1 + min(t.overflow.Load(), 2*t.limit) }

// copyTo writes the buckets from one number up to another.
func (t *table) copyTo(ctx context.Context, w *manifest.ObjectWriter, from, to uint64) error {
	var image [bucketSize]byte
	for b := from; b < to; b++ {
		if b%manifest.MaxChunk == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		bucket := t.bucket(b)
		for i := range bucketEntries + 1 {
			binary.LittleEndian.PutUint64(image[i*8:], uint64(slotIn(bucket, i).load()))
		}
		if err := w.Add(int64(b), bucketSize, image[:]); err != nil {
			return err
		}
	}
	return nil
}

// loadIndex makes a table of a copy. Its entries lie below tail.
func loadIndex(objects manifest.Opener, c *manifest.IndexCopy, tail int64, crowd func()) (*table, error) {
	l := indexLoader{copied: c, tail: tail, crowd: crowd}
	least := int64(bucketSize) << c.Bits // checked before memory is asked for
	err := manifest.ReadObject(objects, c.Object, manifest.IndexChunk, least, l.add)
	if err == nil {
		err = l.finish()
	}
	if err != nil && l.table != nil {
		err = errors.Join(err, l.table.free())
	}
	if err != nil {
		return nil, err
	}
	return l.table, nil
}

// indexLoader fills a table that nobody else has yet.
type indexLoader struct {
	copied *manifest.IndexCopy
	tail   int64
	crowd  func()
	table  *table // made for the first chunk
	next   uint64 // the bucket that comes next
}

// add takes the buckets of one chunk. They come in order, without a gap.
func (l *indexLoader) add(at int64, b []byte) (err error) {
	if l.table == nil {
		if l.table, err = newTable(l.copied.Bits, l.copied.TagShift, l.crowd); err != nil {
			return err
		}
	}
	if uint64(at) != l.next || len(b)%bucketSize != 0 || l.next+uint64(len(b)/bucketSize) > l.table.mask+1+2*l.table.limit {
		return fmt.Errorf("%w: %d bytes of buckets from %d on, expected bucket %d", ErrCorrupt, len(b), at, l.next)
	}
	for ; len(b) > 0; b = b[bucketSize:] {
		bucket := l.table.bucket(l.next)
		for i := range bucketEntries {
			e := entry(binary.LittleEndian.Uint64(b[i*8:]))
			if e&entryTentative != 0 {
				continue // its record is in the log that is replayed
			}
			if a := e.address(); e != 0 && (e&entryUsed == 0 || a >= l.tail || a%8 != 0) {
				return fmt.Errorf("%w: bucket %d: entry %#x in a log up to %d", ErrCorrupt, l.next, uint64(e), l.tail)
			}
			slotIn(bucket, i).store(e)
		}
		slotIn(bucket, bucketEntries).store(entry(binary.LittleEndian.Uint64(b[bucketEntries*8:])))
		l.next++
	}
	return nil
}

// finish cuts the links that lead out of the copy, and refuses those that could
// lead in a circle: a bucket is linked once, from one before it.
func (l *indexLoader) finish() error {
	if buckets := uint64(1) << l.copied.Bits; l.next < buckets {
		return fmt.Errorf("%w: %d of %d buckets", ErrCorrupt, l.next, buckets)
	}
	t := l.table
	t.overflow.Store(l.next - t.mask - 1)
	linked := make([]uint64, (l.next-t.mask-1)/64+1)
	for b := range l.next {
		link := slotIn(t.bucket(b), bucketEntries)
		switch to := uint64(link.load()); {
		case to == 0:
		case to >= l.next:
			link.store(0)
		case to <= t.mask || to <= b || linked[(to-t.mask-1)/64]>>((to-t.mask-1)%64)&1 != 0:
			return fmt.Errorf("%w: bucket %d linked from %d", ErrCorrupt, to, b)
		default:
			linked[(to-t.mask-1)/64] |= 1 << ((to - t.mask - 1) % 64)
		}
	}
	return nil
}

// entriesFrom calls visit for the address of every entry at or above floor.
func (t *table) entriesFrom(floor int64, visit func(address int64) bool) bool {
	for b := range t.buckets() {
		for i := range bucketEntries {
			if e := slotIn(t.bucket(b), i).load(); e.address() >= floor && !visit(e.address()) {
				return false
			}
		}
	}
	return true
}
