package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// fillable is the target of a refill: a Refiller, or a belowFloor.
type fillable interface {
	Begin() int64
	Truncate(begin int64) error
	Hole(below int64, n int) Hole
	Missing() int64
	HoleReady() <-chan struct{}
	NewRefillQueue(depth int) (RefillQueue, error)
}

// belowFloor is the hole of a tier that is not a Refiller: from its Begin to its floor. It
// is filled from the floor down, by ordinary writes, and each lowers the floor.
//
// A refill ends below all pending writes. A log writes the block again in which it ends, or repeats
// a write that failed, and may do so while the block is copied: then the tier may be left with either
// of the two, and the floor stays until the block was copied once more.
type belowFloor struct {
	t     *Tiered
	tr    *tier
	ready chan struct{}
}

func newBelowFloor(t *Tiered, tr *tier) *belowFloor {
	return &belowFloor{t: t, tr: tr, ready: make(chan struct{}, 1)}
}

// poke announces that the tier is back.
func (b *belowFloor) poke() {
	select {
	case b.ready <- struct{}{}:
	default: // a token is there already
	}
}

// Begin is the lowest address that can be filled.
func (b *belowFloor) Begin() int64 {
	return b.tr.alignUp(max(b.tr.dev.Begin(), b.t.last().dev.Begin()))
}

// Truncate does nothing: Begin follows the tiers' Begin.
func (b *belowFloor) Truncate(int64) error { return nil }

// Missing is the number of bytes to fill; 0 of a tier that is out.
func (b *belowFloor) Missing() int64 {
	if b.tr.out() {
		return 0
	}
	return max(0, b.tr.floor.Load()-b.Begin())
}

// Hole returns a range that ends at the floor.
func (b *belowFloor) Hole(below int64, n int) Hole {
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	align := int64(b.t.Alignment())
	to, begin := b.tr.floor.Load(), b.Begin()
	if b.tr.out() || to <= begin || below&^(align-1) < to {
		return Hole{}
	}
	return Hole{From: max(begin, b.tr.alignUp(to-int64(n))), To: to, Ticket: b.tr.ticket()}
}

func (b *belowFloor) HoleReady() <-chan struct{} { return b.ready }

func (b *belowFloor) NewRefillQueue(depth int) (RefillQueue, error) {
	q, err := b.tr.dev.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return &floorQueue{Queue: q, b: b}, nil
}

// floorQueue fills one piece at a time.
type floorQueue struct {
	Queue
	b       *belowFloor
	hole    Hole // the one being filled, if pending
	pending bool // a write is pending
}

// Refill implements RefillQueue. The write counts as a pending write of the tier, so that
// the tier is not restarted before it has ended.
func (q *floorQueue) Refill(src []byte, hole Hole, tag uint64) error {
	b := q.b
	b.t.mu.Lock()
	stale := b.tr.out() || b.tr.ticket() != hole.Ticket
	if !stale {
		b.tr.writes.Add(1)
	}
	b.t.mu.Unlock()
	if stale {
		return ErrNotHeld
	}
	err := q.Write(src, hole.From, tag)
	if err != nil {
		b.tr.writes.Add(-1)
		return err
	}
	q.hole, q.pending = hole, true
	return nil
}

// Poll implements Queue: the floor is lowered when the bytes are stored. A Committed event,
// of a tier that is a Tiered itself, is not enough.
func (q *floorQueue) Poll(done []Completion) int {
	n := q.Queue.Poll(done)
	for i := range done[:n] {
		if c := &done[i]; c.Event != Committed && !q.filled(c.Err == nil) && c.Err == nil {
			c.N, c.Err = 0, ErrNotHeld
		}
	}
	return n
}

// filled ends the piece, and reports whether the tier answers for it now.
func (q *floorQueue) filled(ok bool) bool {
	b := q.b
	b.t.mu.Lock()
	defer b.t.mu.Unlock()
	b.tr.writes.Add(-1)
	q.pending = false
	if !ok || b.tr.out() || b.tr.ticket() != q.hole.Ticket {
		return false
	}
	b.tr.floor.Store(q.hole.From)
	b.t.dirty = true
	return true
}

// Close implements Queue. Afterwards an abandoned piece has ended too.
func (q *floorQueue) Close() error {
	err := q.Queue.Close()
	if q.pending {
		q.filled(false)
	}
	return err
}

// floorsMeta is the name of the last tier's metadata that holds the floors.
const floorsMeta = "tiered.floors"

// storeFloors stores the tiers' floors if they have changed. A Sync covers a write that
// failed on a tier only after the floor is stored, so that no log is opened at a tail above
// an unknown hole.
//
// The Sync also covers writes that are pending beyond the commit point and may never end
// there. So for a tier with pending writes the stored floor is the tail: after a restart it
// answers nothing of what lies below. For the last tier, if it has pending writes or failed ones
// that were not repeated, it is, plus one, the lowest address that it may lack, see catchUp.
//
// synced is what floors returned before the tiers were synced: what has ended or was filled since
// may not be durable there. relied is the tier that has synced what the last one may lack; nil: none has.
func (t *Tiered) storeFloors(synced floors, relied *reliance) error {
	t.storing.Lock()
	defer t.storing.Unlock()
	t.mu.Lock()
	now := t.floors()
	needed := t.dirty || t.behind || synced.behind || now.behind
	stored := now.and(synced)
	gone := relied != nil && (relied.tier.out() || relied.tier.restarts != relied.restarts)
	t.mu.Unlock()
	if !needed {
		return nil
	}
	if last := t.last(); gone && stored.of[last.index] > 0 {
		return fmt.Errorf("device: tier %s has failed during the sync and some writes have not reached tier %s yet", relied.tier.name, last.name)
	}
	data, err := json.Marshal(stored.of)
	if err == nil {
		err = t.WriteMeta(floorsMeta, data) // without mu, which every write takes
	}
	// A last tier without metadata has no log to reopen.
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("device: floors of the tiers: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty, t.behind = !slices.Equal(t.floors().of, stored.of), stored.behind
	return nil
}

// reliance is a tier, and how often it had been restarted before it was synced.
type reliance struct {
	tier     *tier
	restarts uint64
}

// floors are what storeFloors stores: a number for each tier. behind says that the tail, or what the
// last tier may lack, is a part of that.
type floors struct {
	of     []int64
	behind bool
}

// and returns floors that hold whether f or g do.
func (f floors) and(g floors) floors {
	both := floors{of: slices.Clone(f.of), behind: f.behind || g.behind}
	last := len(both.of) - 1
	for i, other := range g.of {
		switch own := &both.of[i]; {
		case i < last:
			*own = max(*own, other)
		case other > 0 && (*own == 0 || other < *own):
			*own = other
		}
	}
	return both
}

// floors returns the present floors. The caller holds mu.
func (t *Tiered) floors() floors {
	f := floors{of: make([]int64, len(t.tiers))}
	for i, tr := range t.tiers {
		f.of[i] = tr.floor.Load()
		if i <= t.commit || tr.writes.Load() == 0 && (tr != t.last() || !t.isBehind()) {
			continue
		}
		f.behind = true
		if f.of[i] = t.tail; tr == t.last() {
			f.of[i] = 1 + t.writes.Settled()
		}
	}
	return f
}

// loadFloors returns what storeFloors stored, one floor for each tier. If that cannot be
// read, or was stored for another number of tiers, only the last tier answers old addresses. It is an
// error if that one may lack some below tail.
func (t *Tiered) loadFloors(tail int64) ([]int64, error) {
	floors := make([]int64, len(t.tiers))
	data, err := t.ReadMeta(floorsMeta)
	if errors.Is(err, ErrNoMeta) || errors.Is(err, errors.ErrUnsupported) {
		return floors, nil
	}
	var stored []int64
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	switch n := len(stored); {
	case err != nil && t.commit < len(floors)-1:
		return nil, fmt.Errorf("device: what the last tier may lack: %w", err)
	case err != nil || n == 0:
	case n == len(floors):
		for i, floor := range stored {
			floors[i] = max(floor, 0)
		}
		return floors, nil
	case stored[n-1] > 0 && stored[n-1]-1 < tail:
		return nil, fmt.Errorf("device: the last tier may lack bytes from %d on: the log is to be started with the %d tiers of before, not with %d",
			stored[n-1]-1, n, len(floors))
	}
	for i := range floors[:len(floors)-1] {
		floors[i] = math.MaxInt64
	}
	return floors, nil
}
