package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// CheckpointPolicy configures how many checkpoints are kept and when the store makes automatic
// ones. Without Every and EveryBytes it makes none. If one of them is set and the device is
// volatile, Open returns errors.ErrUnsupported.
type CheckpointPolicy struct {
	// Keep is the number of newest checkpoints without a given name that are kept, besides
	// those that a kept one extends. Checkpoints with a given name are kept until
	// [Store.RemoveCheckpoint]. Default 2.
	Keep int
	// Every is the time between two automatic checkpoints. 0: no limit.
	Every time.Duration
	// EveryBytes is the growth of the log between two automatic checkpoints. 0: no limit.
	EveryBytes int64
	// Kind is the kind of automatic checkpoints. It needs Every or EveryBytes.
	Kind CheckpointKind
	// Increments is the number of Incremental checkpoints after a Snapshot before the next
	// Snapshot. Recovery reads all of them. It needs Every or EveryBytes, and the Kind
	// Incremental. Default 8.
	Increments int
}

// Defaults of CheckpointPolicy.
const (
	DefaultKeep       = 2
	DefaultIncrements = 8
)

// ensureDefaults sets defaults and checks the other fields.
func (p *CheckpointPolicy) ensureDefaults() error {
	p.Keep = cmp.Or(p.Keep, DefaultKeep)
	never := p.Every == 0 && p.EveryBytes == 0
	switch {
	case p.Kind >= manifest.Kinds:
		return fmt.Errorf("kv: Options.Checkpoints.Kind: unknown kind %d", p.Kind)
	case never && p.Kind != 0:
		return fmt.Errorf("kv: Options.Checkpoints.Kind %v without Every or EveryBytes: no checkpoints would be made", p.Kind)
	case p.Increments > 0 && (never || p.Kind != Incremental):
		return fmt.Errorf("kv: Options.Checkpoints.Increments %d: want Kind incremental, and Every or EveryBytes", p.Increments)
	}
	p.Increments = cmp.Or(p.Increments, DefaultIncrements)
	switch {
	case p.Keep < 0:
		return fmt.Errorf("kv: Options.Checkpoints.Keep %d, want 0 or more", p.Keep)
	case p.Every < 0 || p.EveryBytes < 0 || p.Increments < 0:
		return fmt.Errorf("kv: Options.Checkpoints every %v, every %d bytes, of %d increments: want none negative", p.Every, p.EveryBytes, p.Increments)
	}
	return nil
}

// automatic are the goroutines that make automatic checkpoints and compactions.
type automatic struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// every calls f at an interval until stop.
func (a *automatic) every(interval time.Duration, f func()) {
	a.running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-a.ctx.Done():
				return
			case <-ticker.C:
				f()
			}
		}
	})
}

func (a *automatic) stop() {
	a.cancel()
	a.running.Wait()
}

// lookEvery is how often EveryBytes is checked.
const lookEvery = 100 * time.Millisecond

func (st *Store) startAutomatic() {
	a := &st.automatic
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if p := &st.opts.Checkpoints; p.Every > 0 || p.EveryBytes > 0 {
		st.checkpointEvery(p)
	}
	st.autoCompactor.start(st)
	st.startEvictor()
}

// checkpointEvery makes automatic checkpoints. An error is logged and counted, and the next
// checkpoint is due as after a success.
func (st *Store) checkpointEvery(p *CheckpointPolicy) {
	interval := p.Every
	if p.EveryBytes > 0 && (interval == 0 || interval > lookEvery) {
		interval = lookEvery
	}
	last, tail, ctx := time.Now(), st.log.Tail(), st.automatic.ctx
	st.automatic.every(interval, func() {
		byTime := p.Every > 0 && time.Since(last) >= p.Every
		bySize := p.EveryBytes > 0 && st.log.Tail()-tail >= p.EveryBytes
		if !byTime && !bySize {
			return
		}
		last, tail = time.Now(), st.log.Tail()
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: st.automaticKind(p)})
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			st.opts.Logger.Error("automatic checkpoint", "err", err)
			st.failed("automatic checkpoint", err)
		}
	})
}

// automaticKind returns the kind of the next automatic checkpoint: a Snapshot after a chain of
// increments of the maximum length.
func (st *Store) automaticKind(p *CheckpointPolicy) CheckpointKind {
	m := st.recorded()
	if n := len(m.Checkpoints); p.Kind == Incremental && n > 0 && len(m.Chain(&m.Checkpoints[n-1])) > p.Increments {
		return Snapshot
	}
	return p.Kind
}

// AutoCompaction compacts the store in the background, a part of the log at a time. The zero
// value disables it. If a field is set, but neither DeadShare nor LogSize, DeadShare is
// DefaultCompactDead.
type AutoCompaction struct {
	// DeadShare starts a compaction when this share of the log's bytes, at least 0 and less
	// than 1, has been overwritten or deleted or has expired. The share is estimated from a
	// sample. If it is 0 and LogSize is set, nothing is estimated.
	DeadShare float64
	// LogSize starts a compaction when the log, from its begin address to its tail, has more
	// bytes than this. 0: no limit.
	LogSize int64
	// Share is the share of one processor that compaction uses while it keeps up. If the log
	// exceeds LogSize by a factor, or the ratio of dead to live bytes exceeds that of DeadShare
	// by a factor, compaction uses that many times more, up to one processor. Default 0.25.
	Share float64
	// Method distinguishes live records from dead ones.
	Method CompactMethod
	// Every is the interval at which the store checks whether a compaction is due. It then
	// compacts until none is. If little is dead, it checks again when the log has grown by an
	// eighth of its length. Default 1 s.
	Every time.Duration
}

// Defaults of AutoCompaction.
const (
	DefaultCompactDead  = 0.5
	DefaultCompactShare = 0.25
	DefaultCompactEvery = time.Second
)

func (a *AutoCompaction) ensureDefaults() error {
	if a.DeadShare == 0 && a.LogSize == 0 && *a != (AutoCompaction{}) {
		a.DeadShare = DefaultCompactDead
	}
	a.Share = cmp.Or(a.Share, DefaultCompactShare)
	a.Every = cmp.Or(a.Every, DefaultCompactEvery)
	compact := CompactOptions{Share: a.Share, Method: a.Method}
	if err := compact.ensureDefaults(); err != nil {
		return fmt.Errorf("kv: Options.Compaction: %w", err)
	}
	switch {
	case !(a.DeadShare >= 0 && a.DeadShare < 1):
		return fmt.Errorf("kv: Options.Compaction.DeadShare %g, want 0 to less than 1", a.DeadShare)
	case a.LogSize < 0 || a.Every < 0:
		return fmt.Errorf("kv: Options.Compaction of a log of %d bytes, every %v: want none negative", a.LogSize, a.Every)
	}
	return nil
}

// autoCompactor compacts in the background. A run holds the token and has a context that
// pause can end.
type autoCompactor struct {
	st   *Store
	opts AutoCompaction

	token   chan struct{} // holds the token while there is no run
	pausing atomic.Bool
	cancel  atomic.Pointer[context.CancelFunc] // of the current run, or an earlier one

	idleUntil int64 // tail up to which no compaction is due
}

// The size of a sample: the number of pages, and of records in each page.
const (
	samplePages   = 32
	sampleRecords = 32
)

// A run compacts the oldest of autoParts parts of the log. It is worthwhile if the live
// records of the part take less than this share of it.
const (
	autoParts  = 4
	worthwhile = 0.9
)

// start starts compaction if the options enable it.
func (a *autoCompactor) start(st *Store) {
	a.st, a.opts = st, st.opts.Compaction
	a.token = make(chan struct{}, 1)
	a.token <- struct{}{}
	if a.opts.DeadShare > 0 || a.opts.LogSize > 0 {
		st.automatic.every(a.opts.Every, a.catchUp)
	}
}

// pause ends the current run and keeps others from starting until resume.
func (a *autoCompactor) pause() (resume func()) {
	a.pausing.Store(true)
	if cancel := a.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	<-a.token
	return func() {
		a.pausing.Store(false)
		a.token <- struct{}{}
	}
}

// catchUp compacts until nothing is due: with one part for each tick, the log would stay too
// long under fast writes.
func (a *autoCompactor) catchUp() {
	for a.compactIfDue() {
	}
}

// compactIfDue compacts a part of the log if one is due and compaction is not paused. It
// reports whether it did; then more may be due.
func (a *autoCompactor) compactIfDue() (again bool) {
	a.hold(func(ctx context.Context) {
		behind, err := a.due(ctx)
		due := behind > 0
		if err == nil && due {
			err = a.run(ctx, behind)
		}
		if err != nil && ctx.Err() == nil {
			a.st.opts.Logger.Error("automatic compaction", "err", err)
			a.st.failed("automatic compaction", err)
		}
		again = due && err == nil
	})
	return again
}

// hold calls f with the token, unless another run has it or runs are paused. pause ends ctx.
func (a *autoCompactor) hold(f func(ctx context.Context)) {
	select {
	case <-a.token:
	default:
		return
	}
	defer func() { a.token <- struct{}{} }()
	ctx, cancel := context.WithCancel(a.st.automatic.ctx)
	defer cancel()
	a.cancel.Store(&cancel)
	if a.pausing.Load() { // pause may have loaded cancel before it was stored
		return
	}
	f(ctx)
}

// due returns the factor, at least 1, by which the log exceeds the limits of the options, or 0
// if no compaction is due.
func (a *autoCompactor) due(ctx context.Context) (behind float64, err error) {
	log := a.st.log
	begin, tail := log.Begin(), log.Tail()
	switch {
	case tail < a.idleUntil:
		return 0, nil
	case log.SafeReadOnly()-begin < autoParts*int64(log.PageSize()):
		return 0, nil
	case a.opts.LogSize > 0 && tail-begin > a.opts.LogSize:
		return float64(tail-begin) / float64(a.opts.LogSize), nil
	case a.opts.DeadShare == 0:
		return 0, nil
	}
	dead, err := a.st.deadShare(ctx, begin, log.SafeReadOnly())
	switch {
	case err != nil:
		return 0, err
	case dead < a.opts.DeadShare:
		a.postpone(tail - begin)
		return 0, nil
	}
	return perLive(dead) / perLive(a.opts.DeadShare), nil
}

// perLive returns the number of dead bytes per live byte for a share of dead bytes.
func perLive(dead float64) float64 { return dead / (1 - dead) }

// postpone makes no compaction due until the log has grown by a share of its length.
func (a *autoCompactor) postpone(length int64) {
	a.idleUntil = a.st.log.Tail() + length/autoParts/2
}

// run compacts the oldest part of the log.
func (a *autoCompactor) run(ctx context.Context, behind float64) error {
	log := a.st.log
	length := log.Tail() - log.Begin()
	info, err := a.st.Compact(ctx, CompactOptions{
		Bytes:  max(length/autoParts, 2*int64(log.PageSize())),
		Method: a.opts.Method, Share: min(a.opts.Share*behind, 1),
	})
	if err == nil && float64(info.CopiedBytes) > worthwhile*float64(info.Until-info.From) {
		a.postpone(length)
	}
	return err
}

// deadShare estimates the share of dead bytes in a part of the log.
func (st *Store) deadShare(ctx context.Context, from, until int64) (share float64, err error) {
	var all, live int64
	err = st.withAny(func(s *Session) error {
		page := int64(st.log.PageSize())
		pages := (until-1)/page - from/page + 1
		for i := range min(pages, samplePages) {
			number := i // of the page, counted from the first one
			if pages > samplePages {
				number = rand.Int64N(pages)
			}
			var b traceBatch
			n := 0
			start := from&^(page-1) + number*page
			if err := s.walk(ctx, start, min(start+page, until), func(address int64, im hlog.Image) bool {
				all += int64(s.sizeOf(im))
				if !im.Header.Tombstone() {
					b.add(opNewest, newTrace(address, hlog.MaxAddress), im)
				}
				n++
				return n < sampleRecords
			}); err != nil {
				return err
			}
			if _, err := b.dropOrphans(ctx, s, new(orphans)); err != nil {
				return err
			}
			if err := b.run(ctx, s); err != nil {
				return err
			}
			for i := range b.ops {
				if op := &b.ops[i]; op.Err == nil {
					live += int64(s.layout.Size(len(op.Key), len(op.Value), op.Expires != 0))
				}
			}
		}
		return nil
	})
	if all == 0 {
		return 0, err
	}
	return 1 - min(float64(live)/float64(all), 1), err
}
