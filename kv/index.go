package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// ErrIndexFull says that the store holds many times the keys that its index has
// room for, and that the index does not grow: Options.FixedIndex is set, or there
// is no memory. Open the store again with a larger Options.Records.
var ErrIndexFull = index.ErrFull

// IndexMemory is how many bytes of memory the index of a store takes that was opened for
// so many keys, when it has them.
func IndexMemory(records int64) int64 { return index.Memory(records) }

// makeIndex makes an empty one of the size that the options ask for, or of bits if
// that is larger.
func (st *Store) makeIndex(bits int) error {
	t, err := st.newIndex(bits)
	if err == nil {
		st.index.Store(t)
	}
	return err
}

func (st *Store) newIndex(bits int) (*index.Table, error) {
	bits = max(bits, st.ownBits())
	t, err := index.New(bits, bits, st.crowd())
	if err != nil {
		return nil, fmt.Errorf("%w; Options.Records is %d", err, st.opts.Records)
	}
	return t, nil
}

// ownBits is the size of the index that the options ask for.
func (st *Store) ownBits() int {
	if st.opts.indexBits != 0 {
		return st.opts.indexBits
	}
	return index.Bits(st.opts.Records)
}

// crowd is what a table does that is crowded.
func (st *Store) crowd() func() {
	if st.opts.FixedIndex {
		return nil
	}
	return st.growSoon
}

// GrowIndex doubles the index, which takes some 30 bytes for each key that it
// then has room for, while operations go on. An index grows by itself when there
// are many more keys than it was made for; this is for who knows that they will
// come. Where ctx ends before the growing begins, the index stays as it is; once
// begun, growing is finished. It can double 14 times until the store is opened
// again.
func (st *Store) GrowIndex(ctx context.Context) error {
	err := st.mayWait()
	if err == nil {
		err = st.grow(ctx)
	}
	if err != nil {
		return fmt.Errorf("kv: growing the index: %w", err)
	}
	return nil
}

// growSoon has the index grow in the background, unless it does so already.
func (st *Store) growSoon() {
	if !st.growing.CompareAndSwap(false, true) {
		return
	}
	st.background.Go(func() {
		defer st.growing.Store(false)
		for st.index.Load().Crowded() && st.growCrowded() {
		}
	})
}

// growCrowded doubles an index that is crowded, and says whether it could.
func (st *Store) growCrowded() bool {
	t := st.index.Load()
	err := st.grow(context.Background())
	if err == nil {
		return true
	}
	if !errors.Is(err, ErrClosed) && t.CannotGrow(err) {
		st.opts.Logger.Warn("the index cannot grow", "buckets", t.Mask()+1, "err", err)
		st.failed("growing the index", err)
	}
	return false
}

// stopGrowing returns when the index grows no more. Nobody uses it, and the store
// is marked closed.
func (st *Store) stopGrowing() {
	st.background.Wait()
	st.resizing <- struct{}{} // who calls GrowIndex now finds the store closed
	<-st.resizing
}

// grow doubles the index. One at a time; who holds st.resizing keeps the table as
// it is.
func (st *Store) grow(ctx context.Context) error {
	select {
	case st.resizing <- struct{}{}:
		defer func() { <-st.resizing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if st.isClosed() {
		return ErrClosed
	}
	old := st.index.Load()
	next, err := old.Double()
	if err != nil {
		return err
	}
	begun, info := time.Now(), GrowthInfo{Before: int64(old.Mask() + 1), After: int64(next.Mask() + 1)}
	st.opts.Events.IndexGrowthBegin(info)
	old.MoveTo(next, st.log.Begin())
	st.index.Store(next)
	st.epoch.Wait(st.epoch.Bump())
	st.growths.Add(1)
	info.Duration = time.Since(begun)
	st.opts.Events.IndexGrowthEnd(info)
	return old.Free()
}

// indexBits is the size of the index, or what it is growing to. A store is opened
// with at least that: records were appended to chains of keys that share so many
// bits of their hashes. It is to be asked for after the end of the log that is
// opened.
func (st *Store) indexBits() int {
	t := st.index.Load()
	if next := t.Next(); next != nil {
		t = next
	}
	return t.Bits()
}

// indexBytes is the memory of the index, of both tables while it grows.
func (st *Store) indexBytes() int64 {
	t := st.index.Load()
	n := t.Bytes()
	if next := t.Next(); next != nil {
		n += next.Bytes()
	}
	return n
}

// replay puts a record back that recovery found at address, before anybody uses
// the store. The newest of a chain wins, whatever the order.
func (st *Store) replay(hash uint64, address int64) error {
	for {
		t := st.index.Load()
		if t.ShouldGrow() && st.growCrowded() {
			continue
		}
		s, e, err := t.FindOrInsert(hash)
		if err != nil || e.Address() >= address || s.CompareAndSwap(e, e.WithAddress(address)) {
			return err
		}
	}
}

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
	c.Bits, c.TagShift = t.Bits(), int(t.TagShift())
	c.Object = st.newObject(indexObject)
	w, err := manifest.CreateObject(ctx, st.dev, c.Object, manifest.IndexChunk)
	if err != nil {
		return nil, 0, err
	}
	err = t.Copy(ctx, w)
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		return nil, 0, w.Abort(err)
	}
	return c, w.Bytes(), nil
}
