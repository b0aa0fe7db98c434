package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/device/internal/progress"
)

// MaxTiers is the most tiers that a Tiered can have.
const MaxTiers = 8

// TieredOptions are the choices of a Tiered. The zero value is a good one.
type TieredOptions struct {
	// CommitPoint is the number of a tier, 1 for the first. A write is Committed when that tier
	// and those before it have ended it, and that one or the last has stored it (R88). 0, the
	// default, is the last tier: then a write has one event, Done.
	CommitPoint int
	// Names of the tiers as metrics and logs print them. Default: the types of
	// the devices.
	Names []string
	// RetryAfter is how long a failed tier stays out before the next write, or one of the
	// next reads, starts it again; it doubles with every failure up to 64 times this.
	// Default 1 s.
	RetryAfter time.Duration
	// RefillRate is the largest number of bytes a second that are copied back to a tier
	// that lacks some and has room for them: after a restart all that fits, after the
	// loss of a machine what was there. They are read from the tiers behind it, the newest
	// first, with up to 4 MiB of buffers. Copying uses what the tiers and the processors have
	// left: it aims at reads of the log keeping 0.95 of their throughput. 0: no limit;
	// negative: nothing is copied.
	RefillRate int64
	// Backlog is the number of bytes that a tier beyond the commit point may be behind:
	// given to it by one queue, and not stored yet. Up to that it delays no write. Default
	// DefaultBacklog; negative: as many as the queue has room for.
	Backlog int64
	// BacklogPolicy determines what happens beyond Backlog. Default BacklogWait.
	BacklogPolicy BacklogPolicy
	// CloseWait is how long Close of a queue and of the device waits for tiers that
	// operations do not wait for: those of BacklogDrop, and all but the last that are being
	// refilled, refilled from, or restarted. A tier that takes longer stays open in the
	// background until its pending operations have ended. Default DefaultCloseWait;
	// negative: Close does not wait. Sync waits as long (if negative, DefaultCloseWait) for
	// a tier of BacklogDrop, which then leaves the set.
	CloseWait time.Duration
	// OnEvent, if set, is called for every change of a tier's health, on the goroutine
	// that detects it, between two operations, or on one of the device's own: it must be quick,
	// safe for concurrent use, and not use the device.
	OnEvent func(TierEvent)
	// Logger receives the same events, and the end of each refill. Default:
	// slog.Default().
	Logger *slog.Logger
}

// TierEvent is a change of one tier's health.
type TierEvent struct {
	Tier int
	Name string
	Err  error // why the tier left the set; nil if it is back
	Addr int64 // of a tier that is back: the lowest address that it answers
}

// String is the event as one line.
func (e TierEvent) String() string {
	if e.Err != nil {
		return fmt.Sprintf("tier %d, %s, failed: %v", e.Tier, e.Name, e.Err)
	}
	return fmt.Sprintf("tier %d, %s, is back from %d on", e.Tier, e.Name, e.Addr)
}

// Tiered is one log on several devices, each smaller and faster than the next (R87). Tier i
// holds the log's suffix from its Begin on; the last tier holds everything, with metadata
// and objects. Tiered owns the tiers.
//
// A write goes to every tier in the set. It is Committed when the tiers up to the commit
// point have ended it and the one at that point, or the last, has stored it, and Released when all
// tiers have ended it; if both happen at once it is Done. A write fails if the last tier
// fails it, with the errors of all tiers, the first one first. An address may be read when
// its write is Done or Released; until then its bytes are in the writer's buffer.
//
// A read goes to the first tier whose Begin is not above its address, and to the next one
// if that fails it. A tier may reuse space that its Begin has passed, so Begin is compared
// again after the read.
//
// A tier other than the last that fails a write, or many consecutive reads, leaves the set:
// it has holes and answers nothing. A later write, or one in 64 reads of a queue, calls its
// Start in the background, once it has no pending write. When that has ended it is back, and
// answers from the end of all writes so far on (its floor): a write that begins below, of the
// block in which the log ended, does not count as stored there. Its queues stay open
// meanwhile, so the queues of a device that can fail must outlive another Start. The floors
// are part of the metadata that Sync stores, so that a tier which survives a restart does
// not answer below its floor afterwards.
//
// A Refiller knows its holes and stays in the set with them: a write that it fails with
// ErrNotHeld does not count for the commit point, and a read goes on to the next tier.
//
// What a tier lacks, which is the holes of a Refiller, and of another tier the range from
// its Begin to its floor, is copied from the tiers behind in the background, until Close
// (TieredOptions.RefillRate). A tier beyond the commit point may be slow, see
// TieredOptions.Backlog. What the last tier had not stored before a restart, Start copies
// to it from the tiers that hold it (catch-up).
type Tiered struct {
	store   // metadata and objects, on the last tier
	opts    TieredOptions
	tiers   []*tier
	commit  int   // index of the commit point
	refills bool  // tiers are refilled
	err     error // of NewTiered's arguments; every method returns it

	storing sync.Mutex // held by storeFloors; mu is taken within
	telling sync.Mutex // held by what changes a tier's health, so that events have the order of the changes; mu is taken within

	mu     sync.Mutex      // guards the fields below, and the tiers' health
	tail   int64           // end of the highest write so far, or Start's tail
	writes progress.Writes // if keepsWrites
	dirty  bool            // the floors have changed since Sync stored them
	behind bool            // Sync stored that the last tier may lack writes beyond the commit point
	// preparing: Prepare was called, and Start not yet.
	preparing bool
	queues    map[*tieredQueue]struct{}
	closed    bool
}

// store is the part of a Device for metadata and objects.
type store interface {
	WriteMeta(name string, data []byte) error
	ReadMeta(name string) ([]byte, error)
	Objects
}

// noStore is a store that fails.
type noStore struct{ err error }

func (s noStore) WriteMeta(string, []byte) error            { return s.err }
func (s noStore) ReadMeta(string) ([]byte, error)           { return nil, s.err }
func (s noStore) CreateObject(string) (ObjectWriter, error) { return nil, s.err }
func (s noStore) OpenObject(string) (Object, error)         { return nil, s.err }
func (s noStore) RemoveObject(string) error                 { return s.err }
func (s noStore) ListObjects() ([]string, error)            { return nil, s.err }

// NewTiered stacks tiers, the fastest first and the one that holds everything
// last. Without a tier, or with more than MaxTiers, every method of the result
// fails.
func NewTiered(tiers ...Device) *Tiered { return NewTieredWith(TieredOptions{}, tiers...) }

// NewTieredWith is NewTiered with options.
func NewTieredWith(opts TieredOptions, tiers ...Device) *Tiered {
	opts.RetryAfter = cmp.Or(opts.RetryAfter, time.Second)
	opts.Backlog = cmp.Or(opts.Backlog, DefaultBacklog)
	opts.CloseWait = cmp.Or(opts.CloseWait, DefaultCloseWait)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	t := &Tiered{opts: opts, commit: len(tiers) - 1, queues: make(map[*tieredQueue]struct{})}
	switch {
	case len(tiers) == 0 || len(tiers) > MaxTiers:
		t.err = fmt.Errorf("device: %d tiers, want 1 to %d", len(tiers), MaxTiers)
	case opts.CommitPoint < 0 || opts.CommitPoint > len(tiers):
		t.err = fmt.Errorf("device: commit point %d, want 0 to %d", opts.CommitPoint, len(tiers))
	case len(opts.Names) != 0 && len(opts.Names) != len(tiers):
		t.err = fmt.Errorf("device: %d names for %d tiers", len(opts.Names), len(tiers))
	case opts.BacklogPolicy > BacklogDrop:
		t.err = fmt.Errorf("device: unknown backlog policy %d", opts.BacklogPolicy)
	case opts.CommitPoint > 0:
		t.commit = opts.CommitPoint - 1
	}
	for i, dev := range tiers {
		if dev == nil {
			t.err = fmt.Errorf("device: tier %d is nil", i)
			continue
		}
		name := strings.TrimPrefix(fmt.Sprintf("%T", dev), "*")
		if i < len(opts.Names) {
			name = opts.Names[i]
		}
		tr := &tier{dev: dev, index: i, name: name}
		tr.ahead.Store(noAddress)
		if i < len(tiers)-1 {
			if r, ok := dev.(Refiller); ok {
				tr.refiller = r
				tr.refill = newRefill(t, tr, r)
			} else {
				tr.refill = newRefill(t, tr, newBelowFloor(t, tr))
			}
		}
		t.tiers = append(t.tiers, tr)
	}
	t.store = noStore{t.err}
	if t.err == nil {
		t.store = t.last().dev
	}
	t.refills = len(tiers) > 1 && opts.RefillRate >= 0
	return t
}

// last returns the tier that holds everything.
func (t *Tiered) last() *tier { return t.tiers[len(t.tiers)-1] }

// Start implements Device. A tier that cannot start leaves the set. That is an error of the last one,
// and of one that may hold committed bytes that the last one lacks and no other tier has: nothing is
// forgotten, and Start can be called again on the same devices, opened again. To go on without these
// bytes, the tier is replaced by an empty one.
func (t *Tiered) Start(tail int64) error {
	if err := cmp.Or(t.err, checkRange(0, tail)); err != nil {
		return err
	}
	floors, err := t.loadFloors(tail)
	if err != nil {
		return err
	}
	t.prepared()
	t.mu.Lock()
	t.tail = tail
	t.writes.Reset(tail)
	t.mu.Unlock()
	last := len(t.tiers) - 1
	down := make([]error, last)
	for i, tr := range t.tiers {
		err := tr.dev.Start(tail)
		if err == nil && tr.out() { // since Prepare: it may hold what the last one lacks
			t.mu.Lock()
			err = tr.reason
			t.mu.Unlock()
		}
		if err == nil && floors[i] > 0 && tr.refiller == nil && i < last {
			tr.floor.Store(tr.alignUp(min(floors[i], tail)))
		}
		if err != nil {
			if i == last {
				return t.lastFailed("start", tail, err)
			}
			t.fail(tr, fmt.Errorf("start at %d: %w", tail, err))
			if floors[i] < tail {
				down[i] = fmt.Errorf("device: tier %s: start at %d: %w", tr.name, tail, err)
			}
		}
	}
	if from := floors[last] - 1; from >= 0 && from < tail {
		if err := t.catchUp(from, tail, down); err != nil {
			return err
		}
	}
	return t.startRefills()
}

// lastFailed returns the error of the last tier at an address.
func (t *Tiered) lastFailed(what string, addr int64, err error) error {
	return fmt.Errorf("device: tier %s: %s at %d: %w", t.last().name, what, addr, err)
}

// NewQueue implements Device. A tier whose NewQueue fails leaves the set.
func (t *Tiered) NewQueue(depth int) (Queue, error) {
	if err := cmp.Or(t.err, checkDepth(depth)); err != nil {
		return nil, err
	}
	q := newTieredQueue(t, depth)
	q.all = true
	t.mu.Lock()
	preparing := t.preparing
	t.mu.Unlock()
	for i, tr := range t.tiers {
		if preparing && tr != t.last() {
			continue
		}
		if err := q.open(i); err != nil && tr == t.last() {
			return nil, errors.Join(fmt.Errorf("device: tier %s: %w", tr.name, err), q.closeTiers(nil))
		}
	}
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.queues[q] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, q.closeTiers(nil))
	}
	return q, nil
}

// Alignment implements Device: the largest one of the tiers.
func (t *Tiered) Alignment() int {
	align := 1
	for _, tr := range t.tiers {
		align = max(align, tr.dev.Alignment())
	}
	return align
}

// Begin implements Device: the last tier's.
func (t *Tiered) Begin() int64 {
	if t.err != nil {
		return 0
	}
	return t.last().dev.Begin()
}

// Truncate implements Device.
func (t *Tiered) Truncate(begin int64) error {
	if err := cmp.Or(t.err, checkRange(0, begin)); err != nil {
		return err
	}
	for _, tr := range t.tiers {
		if tr.out() {
			continue
		}
		if err := tr.dev.Truncate(begin); err != nil {
			err = fmt.Errorf("truncate to %d: %w", begin, err)
			if tr == t.last() {
				return fmt.Errorf("device: tier %s: %w", tr.name, err)
			}
			t.fail(tr, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = max(t.tail, begin) // a tier that starts later starts there
	if t.keepsWrites() {
		t.writes.Truncate(begin)
	}
	return nil
}

// Sync implements Device. It syncs all tiers. A tier whose Sync fails leaves the set, or has lost
// some of its writes. That is an error of the last tier, and of that of the commit point if writes
// which it committed have not reached the last one. A tier of BacklogDrop also leaves the set if its
// Sync takes longer than TieredOptions.CloseWait.
func (t *Tiered) Sync() error {
	if t.err != nil {
		return t.err
	}
	last := t.last()
	t.mu.Lock()
	floors := t.floors()
	t.mu.Unlock()
	t.syncFront()
	var relied *reliance
	for _, tr := range t.tiers[t.commit:] {
		commits := tr.index == t.commit && tr != last
		t.mu.Lock()
		r := reliance{tr, tr.restarts}
		t.mu.Unlock()
		if !tr.out() {
			err := t.syncTier(tr)
			switch {
			case commits && t.lost(tr, err):
				return fmt.Errorf("device: tier %s has lost writes that have not reached tier %s yet", tr.name, last.name)
			case err == nil || tr.refiller != nil && errors.Is(err, ErrNotHeld):
				if commits {
					relied = &r
				}
				continue
			}
			err = fmt.Errorf("sync: %w", err)
			t.fail(tr, err)
			if tr == last {
				return fmt.Errorf("device: tier %s: %w", tr.name, err)
			}
		}
		t.mu.Lock()
		behind := t.isBehind()
		t.mu.Unlock()
		if commits && behind {
			return fmt.Errorf("device: tier %s has failed and some writes have not reached tier %s yet", tr.name, last.name)
		}
	}
	return t.storeFloors(floors, relied)
}

// syncFront syncs the tiers before the commit point.
func (t *Tiered) syncFront() {
	for _, tr := range t.tiers[:t.commit] {
		if tr.refiller != nil || tr.out() {
			continue // volatile, or not read after a restart
		}
		if err := tr.dev.Sync(); err != nil {
			t.fail(tr, fmt.Errorf("sync: %w", err))
		}
	}
}

// Commit implements Committer. It costs what it costs on the last tier if that is the commit
// point, unless the tiers' floors have to be stored as well.
func (t *Tiered) Commit(name string, data []byte) error {
	if t.err != nil {
		return t.err
	}
	if !t.frontSynced() {
		if err := t.Sync(); err != nil {
			return err
		}
		return t.WriteMeta(name, data)
	}
	return t.committed(Commit(t.last().dev, name, data))
}

// CommitWith implements Committer.
func (t *Tiered) CommitWith(src []byte, addr int64, name string, data []byte) (done bool, err error) {
	if t.err != nil {
		return true, t.err
	}
	last, ok := t.last().dev.(Committer)
	for _, tr := range t.tiers[:t.last().index] {
		// A persistent tier must not be without what is committed, after a restart.
		ok = ok && tr.refiller != nil
	}
	if !ok || !t.frontSynced() {
		return false, nil
	}
	done, err = last.CommitWith(src, addr, name, data)
	return done, t.committed(err)
}

// frontSynced syncs the tiers before the last one. It reports whether a commit on that one is
// all that remains: else the last tier is not the commit point, or floors have to be stored.
func (t *Tiered) frontSynced() bool {
	if t.commit < t.last().index {
		return false
	}
	t.syncFront()
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.dirty && !t.behind
}

// committed returns the error of a commit on the last tier.
func (t *Tiered) committed(err error) error {
	if err == nil {
		return nil
	}
	last := t.last()
	if !errors.Is(err, errors.ErrUnsupported) { // which means that it keeps no metadata
		t.fail(last, fmt.Errorf("commit: %w", err))
	}
	return fmt.Errorf("device: tier %s: commit: %w", last.name, err)
}

// DefaultCloseWait is the default of TieredOptions.CloseWait.
const DefaultCloseWait = 5 * time.Second

// Close implements Device: it ends the refills and closes every tier.
func (t *Tiered) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	for _, tr := range t.tiers {
		if tr.refill != nil {
			tr.refill.stop()
		}
	}
	t.mu.Lock()
	behind := t.behind // a Sync that began before Close may have set it
	t.mu.Unlock()
	var errs []error
	if behind {
		errs = append(errs, t.Sync()) // stores the floors again, now that nothing is pending
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.opts.CloseWait)
	defer cancel()
	for _, tr := range t.tiers {
		errs = append(errs, t.closeTier(ctx, tr))
	}
	return errors.Join(errs...)
}
