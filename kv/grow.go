package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// The index grows while it is in use: into a new table of twice the buckets,
// bucket by bucket, by one goroutine, the mover. What bucket b held goes to
// buckets b and b+n of the new table, as the lowest bit of the tag that does not
// choose the bucket yet says. Chains stay as they are.
//
//	old bucket    what the mover does                   who looks there
//	entries       -                                     uses them
//	moving        every slot, the first one first: its  uses what is not moved yet;
//	              content is kept and entryMoving put   finds nothing: tries again
//	              in its place
//	moved         fills the new buckets; entryMoved     finds nothing: looks in the
//	              into the first slot                   new table
//
// A slot's content can be kept because nobody changes it any more: all who do
// compare it with what they read. The exception is an inserter with its tentative
// entry, for whom the mover waits. He must see every slot as it was after he put
// his entry there, or withdraws. The first one: so either the mover comes upon his
// entry, or he upon the mover. The others: for what was there may have had his tag
// (see contested). And who finds nothing looks at the first slot afterwards: if it
// is as ever, the mover had not begun when he searched.
//
// An entry that was read before it was moved is as good as one that was read
// before a newer record was published: records are reached through it that may
// be updated in place, and a comparison with it fails.
//
// At the end the store's table is replaced; when the epoch has passed nobody
// looks at the old one any more, and it is freed.

// Neither leads to a record, whoever takes it for an entry: see WIDE in plain_amd64.s.
const (
	entryMoving = entryTentative
	entryMoved  = entryTentative | 1
)

// gone says that an entry is none, but what the mover left in its place.
func (e entry) gone() bool { return e>>62 == entryTentative>>62 }

// locate is find in a table that may be growing. busy: the bucket is being moved,
// in less than microseconds; an empty slot says nothing.
func (t *table) locate(hash uint64) (s slot, e entry, busy bool) {
	if s, e = t.find(hash); s.p != nil {
		return s, e, false
	}
	switch slotIn(t.bucket(hash&t.mask), 0).load() {
	case entryMoved:
		s, e = t.next.Load().find(hash) // which does not grow while somebody is here
	case entryMoving:
		busy = true
	}
	return s, e, busy
}

// makeIndex makes an empty one of the size that the options ask for, or of bits if
// that is larger.
func (st *Store) makeIndex(bits int) error {
	t, err := st.newIndex(bits)
	if err == nil {
		st.index.Store(t)
	}
	return err
}

func (st *Store) newIndex(bits int) (*table, error) {
	bits = max(bits, st.ownBits())
	t, err := newTable(bits, bits, st.crowd())
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
	return tableBits(st.opts.Records)
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
		for st.index.Load().crowded() && st.growCrowded() {
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
	if !errors.Is(err, ErrClosed) && t.hopeless.Swap(&err) == nil {
		st.opts.Logger.Warn("the index cannot grow", "buckets", t.mask+1, "err", err)
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
	if old.bits == int(old.tagShift)+tagBits {
		return fmt.Errorf("it has doubled %d times, more only when the store is opened again", tagBits)
	}
	next, err := newTable(old.bits+1, int(old.tagShift), old.crowd)
	if err != nil {
		return err
	}
	begun, info := time.Now(), GrowthInfo{Before: int64(old.mask + 1), After: int64(next.mask + 1)}
	st.opts.Events.IndexGrowthBegin(info)
	old.next.Store(next)
	m := mover{from: old, to: next, begin: st.log.Begin()}
	for b := range old.mask + 1 {
		m.move(b)
	}
	st.index.Store(next)
	st.epoch.Wait(st.epoch.Bump())
	st.growths.Add(1)
	info.Duration = time.Since(begun)
	st.opts.Events.IndexGrowthEnd(info)
	return old.free()
}

// indexBits is the size of the index, or what it is growing to. A store is opened
// with at least that: records were appended to chains of keys that share so many
// bits of their hashes. It is to be asked for after the end of the log that is
// opened.
func (st *Store) indexBits() int {
	t := st.index.Load()
	if next := t.next.Load(); next != nil {
		t = next
	}
	return t.bits
}

// indexBytes is the memory of the index, of both tables while it grows.
func (st *Store) indexBytes() int64 {
	t := st.index.Load()
	n := t.bytes()
	if next := t.next.Load(); next != nil {
		n += next.bytes()
	}
	return n
}

// replay puts a record back that recovery found at address, before anybody uses
// the store. The newest of a chain wins, whatever the order.
func (st *Store) replay(hash uint64, address int64) error {
	for {
		t := st.index.Load()
		if t.crowd != nil && t.crowded() && t.hopeless.Load() == nil && st.growCrowded() {
			continue
		}
		s, e, err := t.findOrInsert(hash)
		if err != nil || e.address() >= address || s.swap(e, e.at(address)) {
			return err
		}
	}
}

// mover moves the entries of a table to one of twice the size.
type mover struct {
	from, to *table
	begin    int64   // of the log: what is below is no more
	entries  []entry // of the bucket
}

// move moves what bucket b leads to.
func (m *mover) move(b uint64) {
	m.entries = m.entries[:0]
	for at := m.from.bucket(b); ; {
		for i := range bucketEntries {
			if e := take(slotIn(at, i)); e.address() >= m.begin {
				m.entries = append(m.entries, e)
			}
		}
		link := slotIn(at, bucketEntries).load()
		if link == 0 {
			break
		}
		at = m.from.bucket(uint64(link))
	}
	bit := entry(1) << (addressBits + uint(m.from.bits) - m.from.tagShift)
	m.fill(b, bit, 0)
	m.fill(b+m.from.mask+1, bit, bit)
	slotIn(m.from.bucket(b), 0).store(entryMoved)
}

// take takes what is in a slot away for good.
func take(s slot) entry {
	for {
		e := s.load()
		if e&entryTentative != 0 {
			runtime.Gosched() // its inserter decides in a moment
		} else if s.swap(e, entryMoving) {
			return e
		}
	}
}

// fill puts those entries whose bit is want into a bucket of the new table, where
// nobody looks yet. Splitting a bucket takes no more overflow buckets than it had,
// and half of the table's are left for that: there are enough.
func (m *mover) fill(b uint64, bit, want entry) {
	at := m.to.bucket(b)
	n := 0
	for _, e := range m.entries {
		if e&bit != want {
			continue
		}
		if n == bucketEntries {
			link, _ := m.to.take(2 * m.to.limit)
			slotIn(at, bucketEntries).store(link)
			at, n = m.to.bucket(uint64(link)), 0
		}
		slotIn(at, n).store(e)
		n++
	}
}
