package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxTiers is the most tiers that a Tiered can have.
const MaxTiers = 8

// TieredOptions are the choices of a Tiered. The zero value is a good one.
type TieredOptions struct {
	// CommitPoint is the number of the tier, 1 for the first, whose copy makes
	// a write Committed, together with those before it (R88). 0, the default,
	// is the last tier: then a write has one event, Done.
	CommitPoint int
	// Names of the tiers as metrics and logs print them. Default: the types of
	// the devices.
	Names []string
	// RetryAfter is how long a tier that failed stays out before the next write, or one of
	// the next reads, tries to start it again; it doubles with every failure up to 64 times
	// this. Default 1 s.
	RetryAfter time.Duration
	// RefillRate is how many bytes a second at most are copied back to a tier
	// that has lost some and can take them again, a Refiller: after a restart
	// all that fits, after the loss of a machine what was there. They come from
	// the tiers behind it, the newest first, 64 KiB at a time, with rests as
	// long as the copying took. Default DefaultRefillRate; negative: nothing is copied.
	RefillRate int64
	// Backlog is how many bytes a tier beyond the commit point may be behind: handed to
	// it by one queue, and not there yet. Until then it slows nobody down. Default
	// DefaultBacklog; negative: as many as the queue has room for.
	Backlog int64
	// BacklogPolicy says what happens then. Default BacklogWait.
	BacklogPolicy BacklogPolicy
	// CloseWait is how long Close, of a queue and of the whole, waits for tiers that
	// nobody waits for otherwise: those of BacklogDrop, and those, but for the last, that
	// are being refilled, or refilled from, or started again. A tier that takes longer, or
	// for ever, stays open behind it until what it has under way has ended. Default
	// DefaultCloseWait; negative: not at all. Sync waits as long, by default if this is
	// negative, for a tier of BacklogDrop, which leaves the set then.
	CloseWait time.Duration
	// OnEvent, if set, is told of every change of a tier's health. It runs on
	// the goroutine that found out, between two operations: it must be quick
	// and not use the device.
	OnEvent func(TierEvent)
	// Logger receives the same events, and hears of each refill's end. Default:
	// slog.Default().
	Logger *slog.Logger
}

// TierEvent is a change of one tier's health.
type TierEvent struct {
	Tier int
	Name string
	Err  error // why the tier left the set; nil: it is back
	Addr int64 // of a tier that is back: it answers from here on
}

// String is the event as one line.
func (e TierEvent) String() string {
	if e.Err != nil {
		return fmt.Sprintf("tier %d, %s, failed: %v", e.Tier, e.Name, e.Err)
	}
	return fmt.Sprintf("tier %d, %s, is back from %d on", e.Tier, e.Name, e.Addr)
}

// Tiered is one log on several devices, each smaller and faster than the next
// (R87). Tier i holds the log's suffix from its Begin on; the last tier holds
// everything, metadata and objects too. It owns the tiers.
//
// A write goes to every tier in the set. It is Committed once the tiers up to
// the commit point are through with it and one at or beyond that point has it,
// and Released once all are through; where that is one moment it is Done. A
// write fails if the last tier fails it, and then its error joins those of all
// tiers, the first one first. An address may be read once its write is Done or
// Released; until then its bytes are in the writer's buffer.
//
// A read goes to the first tier whose Begin is not above its address, and to
// the next one if that fails it. A tier may reuse space once its Begin has
// moved past it, so Begin is looked at again after the read.
//
// A tier other than the last that fails a write, or many reads in a row, leaves
// the set: it has holes now and answers for nothing. A later write, or one in 64 reads
// of a queue, calls its Start at the end of all writes so far, once nothing is being
// written to it: it is back, and answers from there on. Reads do not wait for that. Its
// queues stay open meanwhile, so a device that can fail must let its queues outlive
// another Start. Which tiers have holes is part of the metadata that Sync keeps, so that
// a tier that survives a restart does not answer for them afterwards.
//
// A Refiller knows its holes itself. It stays in the set with them: a write that
// it fails with ErrNotHeld counts for no commit point, like that of any tier which
// failed, and a read of it goes on to the next tier.
//
// What tiers lack, of a Refiller its holes and of others what lies below where they
// are back from, down to their Begin, is copied from the tiers behind in the
// background, until Close (TieredOptions.RefillRate). A tier beyond the commit point
// may be slow: TieredOptions.Backlog. What the last one had not got when everything
// ended, Start copies to it from those that committed it.
type Tiered struct {
	opts    TieredOptions
	tiers   []*tier
	commit  int   // index of the commit point
	refills bool  // tiers are refilled
	err     error // what is wrong with the arguments; every method returns it

	mu      sync.Mutex // guards what follows, and the tiers' health
	tail    int64      // end of the highest write so far, or Start's tail
	writing []int64    // addresses of the writes under way
	dirty   bool       // the floors have changed since Sync stored them
	behind  bool       // Sync stored that writes were on their way beyond the commit point
	// preparing says that Prepare was called, and Start not yet.
	preparing bool
	queues    map[*tieredQueue]struct{}
	closed    bool
}

// NewTiered stacks tiers, the fastest first and the one that holds everything
// last. Without a tier, or with more than MaxTiers, every method of the result
// fails.
func NewTiered(tiers ...Device) *Tiered { return NewTieredWith(TieredOptions{}, tiers...) }

// NewTieredWith is NewTiered with options.
func NewTieredWith(opts TieredOptions, tiers ...Device) *Tiered {
	if opts.RetryAfter == 0 {
		opts.RetryAfter = time.Second
	}
	if opts.RefillRate == 0 {
		opts.RefillRate = DefaultRefillRate
	}
	if opts.Backlog == 0 {
		opts.Backlog = DefaultBacklog
	}
	if opts.CloseWait == 0 {
		opts.CloseWait = DefaultCloseWait
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	t := &Tiered{opts: opts, commit: len(tiers) - 1, queues: make(map[*tieredQueue]struct{})}
	switch {
	case len(tiers) == 0 || len(tiers) > MaxTiers:
		t.err = fmt.Errorf("device: %d tiers, want 1 to %d", len(tiers), MaxTiers)
	case opts.CommitPoint < 0 || opts.CommitPoint > len(tiers):
		t.err = fmt.Errorf("device: commit point %d, want 0 to %d", opts.CommitPoint, len(tiers))
	case len(opts.Names) != 0 && len(opts.Names) != len(tiers):
		t.err = fmt.Errorf("device: %d names for %d tiers", len(opts.Names), len(tiers))
	case opts.BacklogPolicy > BacklogDrop:
		t.err = fmt.Errorf("device: backlog policy %d", opts.BacklogPolicy)
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
	t.refills = len(tiers) > 1 && opts.RefillRate > 0
	return t
}

// last returns the tier that holds everything.
func (t *Tiered) last() *tier { return t.tiers[len(t.tiers)-1] }

// Start implements Device. A tier that cannot start is left out; the last must.
func (t *Tiered) Start(tail int64) error {
	if t.err != nil {
		return t.err
	}
	if err := checkRange(0, tail); err != nil {
		return err
	}
	floors := t.loadFloors()
	t.prepared()
	t.mu.Lock()
	t.tail = tail
	t.mu.Unlock()
	last := len(t.tiers) - 1
	for i, tr := range t.tiers {
		err := tr.dev.Start(tail)
		if err == nil && floors[i] > 0 && tr.refiller == nil && i < last {
			tr.floor.Store(tr.alignUp(min(floors[i], tail)))
		}
		if err != nil {
			if i == last {
				return t.lastFailed("start", tail, err)
			}
			t.fail(tr, fmt.Errorf("start at %d: %w", tail, err))
		}
	}
	if from := floors[last] - 1; from >= 0 && from < tail {
		if err := t.catchUp(from, tail); err != nil {
			return err
		}
	}
	return t.startRefills()
}

// lastFailed says what the last tier could not do at an address.
func (t *Tiered) lastFailed(what string, addr int64, err error) error {
	return fmt.Errorf("device: tier %s: %s at %d: %w", t.last().name, what, addr, err)
}

// NewQueue implements Device. A tier that gives no queue leaves the set.
func (t *Tiered) NewQueue(depth int) (Queue, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := checkDepth(depth); err != nil {
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

// Alignment implements Device: what suits the tier that asks for most.
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
	if t.err != nil {
		return t.err
	}
	if err := checkRange(0, begin); err != nil {
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
	return nil
}

// Sync implements Device. All tiers are made durable. One from the commit point on
// that cannot leaves the set, or has lost some of what it had; that is no loss unless
// writes which it committed are still on their way to the last. One that nobody waits for
// leaves it, too, if it takes longer than TieredOptions.CloseWait.
func (t *Tiered) Sync() error {
	if t.err != nil {
		return t.err
	}
	last := t.last()
	for _, tr := range t.tiers[:t.commit] {
		if tr.refiller != nil || tr.out() {
			continue // it is volatile, or not asked after a restart
		}
		if err := tr.dev.Sync(); err != nil {
			t.fail(tr, fmt.Errorf("sync: %w", err))
		}
	}
	for _, tr := range t.tiers[t.commit:] {
		if !tr.out() {
			err := t.syncTier(tr)
			lost := tr.refiller != nil && t.lost(tr, err)
			switch {
			case err == nil && !lost:
				continue
			case err != nil && !lost:
				err = fmt.Errorf("sync: %w", err)
				t.fail(tr, err)
				if tr == last {
					return fmt.Errorf("device: tier %s: %w", tr.name, err)
				}
			}
		}
		if n := last.writes.Load(); n > 0 {
			return fmt.Errorf("device: tier %s has failed and %d writes have not reached tier %s yet",
				tr.name, n, last.name)
		}
	}
	return t.storeFloors()
}

// WriteMeta implements Device, on the last tier.
func (t *Tiered) WriteMeta(name string, data []byte) error {
	if t.err != nil {
		return t.err
	}
	return t.last().dev.WriteMeta(name, data)
}

// ReadMeta implements Device, on the last tier.
func (t *Tiered) ReadMeta(name string) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.last().dev.ReadMeta(name)
}

// CreateObject implements Objects, as all of them on the last tier.
func (t *Tiered) CreateObject(name string) (ObjectWriter, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.last().dev.CreateObject(name)
}

// OpenObject implements Objects.
func (t *Tiered) OpenObject(name string) (Object, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.last().dev.OpenObject(name)
}

// RemoveObject implements Objects.
func (t *Tiered) RemoveObject(name string) error {
	if t.err != nil {
		return t.err
	}
	return t.last().dev.RemoveObject(name)
}

// ListObjects implements Objects.
func (t *Tiered) ListObjects() ([]string, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.last().dev.ListObjects()
}

// DefaultCloseWait is TieredOptions.CloseWait by default.
const DefaultCloseWait = 5 * time.Second

// Close implements Device: it ends the refilling and closes every tier.
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
	errs := []error{t.settleFloors()}
	ctx, cancel := context.WithTimeout(context.Background(), t.opts.CloseWait)
	defer cancel()
	for _, tr := range t.tiers {
		errs = append(errs, t.closeTier(ctx, tr))
	}
	return errors.Join(errs...)
}

// floorsMeta is the name under which the last tier keeps the floors.
const floorsMeta = "tiered.floors"

// storeFloors keeps the tiers' floors if they have changed. A write that failed
// on a tier is covered by a Sync only after the floor is, so that no log can be
// opened at a tail that includes a hole that is not known.
//
// What is on its way beyond the commit point is covered by the Sync as well, and may
// never get there. So a tier that has not got it yet is not trusted with anything if
// the log is opened as it is now; of the last tier its floor says, plus one, where
// that begins which it may lack: see catchUp.
func (t *Tiered) storeFloors() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	behind := false
	floors := make([]int64, len(t.tiers))
	for i, tr := range t.tiers {
		floors[i] = tr.floor.Load()
		if i <= t.commit || tr.writes.Load() == 0 {
			continue
		}
		behind = true
		if floors[i] = t.tail; tr == t.last() {
			floors[i] = 1 + slices.Min(append(t.writing, t.tail))
		}
	}
	if !t.dirty && !behind && !t.behind {
		return nil
	}
	data, err := json.Marshal(floors)
	if err != nil {
		return fmt.Errorf("device: floors of the tiers: %w", err)
	}
	// A last tier without metadata has no log to reopen.
	if err := t.last().dev.WriteMeta(floorsMeta, data); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("device: floors of the tiers: %w", err)
	}
	t.dirty, t.behind = false, behind
	return nil
}

// settleFloors makes good, when the log is closed in an orderly way, what the last
// Sync had to store of writes that were on their way.
func (t *Tiered) settleFloors() error {
	t.mu.Lock()
	behind := t.behind
	t.mu.Unlock()
	if !behind {
		return nil
	}
	return t.Sync()
}

// loadFloors returns what storeFloors kept, one floor for each tier. Where that
// cannot be made out, no tier but the last is trusted with old addresses.
func (t *Tiered) loadFloors() []int64 {
	floors := make([]int64, len(t.tiers))
	data, err := t.last().dev.ReadMeta(floorsMeta)
	if errors.Is(err, ErrNoMeta) || errors.Is(err, errors.ErrUnsupported) {
		return floors
	}
	var stored []int64
	if err == nil && json.Unmarshal(data, &stored) == nil && len(stored) == len(floors) {
		for i, floor := range stored {
			floors[i] = max(floor, 0)
		}
		return floors
	}
	for i := range floors[:len(floors)-1] {
		floors[i] = math.MaxInt64
	}
	return floors
}
