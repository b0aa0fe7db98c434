package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// CheckpointPolicy says how many checkpoints are kept, and when they are made by
// themselves. The zero value makes none, nor does one without Every and EveryBytes. A
// volatile device keeps none: asking for them there is errors.ErrUnsupported.
type CheckpointPolicy struct {
	// Keep is how many of the newest checkpoints without a name of their own are kept,
	// besides those on which a kept one stands. Checkpoints that were given a name stay
	// until [Store.RemoveCheckpoint]. Default 2.
	Keep int
	// Every is how much time lies between two. 0: no matter how much.
	Every time.Duration
	// EveryBytes is by how much the log grows between two. 0: no matter how much.
	EveryBytes int64
	// Kind of the automatic ones. It takes Every or EveryBytes.
	Kind CheckpointKind
	// Increments is how many Incremental ones follow on a whole Snapshot before
	// there is another one: recovery reads them all. It takes Every or EveryBytes, and
	// Incremental as the Kind. Default 8.
	Increments int
}

// Defaults of CheckpointPolicy.
const (
	DefaultKeep       = 2
	DefaultIncrements = 8
)

// ensureDefaults fills in what is unset and checks the rest.
func (p *CheckpointPolicy) ensureDefaults() error {
	if p.Keep == 0 {
		p.Keep = DefaultKeep
	}
	never := p.Every == 0 && p.EveryBytes == 0
	switch {
	case p.Kind >= manifest.Kinds:
		return fmt.Errorf("kv: Options.Checkpoints.Kind: unknown kind %d", p.Kind)
	case never && p.Kind != 0:
		return fmt.Errorf("kv: Options.Checkpoints.Kind %v without Every or EveryBytes: no checkpoints would be made", p.Kind)
	case p.Increments > 0 && (never || p.Kind != Incremental):
		return fmt.Errorf("kv: Options.Checkpoints.Increments %d: want Kind incremental, and Every or EveryBytes", p.Increments)
	}
	if p.Increments == 0 {
		p.Increments = DefaultIncrements
	}
	switch {
	case p.Keep < 0:
		return fmt.Errorf("kv: Options.Checkpoints.Keep %d, want 0 or more", p.Keep)
	case p.Every < 0 || p.EveryBytes < 0 || p.Increments < 0:
		return fmt.Errorf("kv: Options.Checkpoints every %v, every %d bytes, of %d increments: want none negative", p.Every, p.EveryBytes, p.Increments)
	}
	return nil
}

// automatic is the goroutine that makes checkpoints by itself.
type automatic struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// lookEvery is how often the log's growth is looked at.
const lookEvery = 100 * time.Millisecond

func (st *Store) startAutomatic() {
	p := &st.opts.Checkpoints
	ctx, cancel := context.WithCancel(context.Background())
	st.automatic = automatic{cancel, make(chan struct{})}
	if p.Every == 0 && p.EveryBytes == 0 {
		close(st.automatic.done)
		return
	}
	go st.checkpointAutomatically(ctx, p, time.Now(), st.log.Tail())
}

func (st *Store) stopAutomatic() {
	st.autoCompactor.stop()
	st.automatic.stop()
	<-st.automatic.done
}

// checkpointAutomatically ends with ctx; last and tail are time and log at the
// last checkpoint. What goes wrong goes to the logger and is counted; the next one
// is due as if it had not.
func (st *Store) checkpointAutomatically(ctx context.Context, p *CheckpointPolicy, last time.Time, tail int64) {
	defer close(st.automatic.done)
	interval := p.Every
	if p.EveryBytes > 0 && (interval == 0 || interval > lookEvery) {
		interval = lookEvery
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		byTime := p.Every > 0 && time.Since(last) >= p.Every
		bySize := p.EveryBytes > 0 && st.log.Tail()-tail >= p.EveryBytes
		if !byTime && !bySize {
			continue
		}
		last, tail = time.Now(), st.log.Tail()
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: st.automaticKind(p)})
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			st.opts.Logger.Error("automatic checkpoint", "err", err)
			st.failed("automatic checkpoint", err)
		}
	}
}

// automaticKind ends chains of increments that are long enough.
func (st *Store) automaticKind(p *CheckpointPolicy) CheckpointKind {
	m := st.recorded()
	if n := len(m.Checkpoints); p.Kind == Incremental && n > 0 && len(m.Chain(&m.Checkpoints[n-1])) > p.Increments {
		return Snapshot
	}
	return p.Kind
}

// AutoCompaction has a store compacted in the background, from time to time and a
// part of the log at a time. The zero value has not. Where anything is set, but neither
// DeadShare nor LogSize, DeadShare is DefaultCompactDead.
type AutoCompaction struct {
	// DeadShare starts a compaction when about this share of the log's bytes, 0 to
	// less than 1, was overwritten or deleted or has expired: that is estimated from
	// a sample. 0: it does not matter, where LogSize is set.
	DeadShare float64
	// LogSize starts a compaction when the log, from its begin to its tail, has more
	// bytes than this. 0: it does not matter.
	LogSize int64
	// Share is the share of a processor that it may use while it keeps up. Where the log
	// has grown to be behind by a factor, counted in dead bytes for each live one that
	// DeadShare allows, or in LogSize, it uses as many times more, up to all of one.
	// Default 0.25.
	Share float64
	// Method is how live records are told from dead ones.
	Method CompactMethod
	// Every is how often it looks whether a compaction is due, and then goes on until
	// none is. Where little is dead it looks again when the log has grown by a part of
	// its length. Default 1 s.
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
	if a.Share == 0 {
		a.Share = DefaultCompactShare
	}
	if a.Every == 0 {
		a.Every = DefaultCompactEvery
	}
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

// autoCompactor is the goroutine that compacts by itself. A run takes the token
// and runs under a context that pause can end.
type autoCompactor struct {
	st   *Store
	opts AutoCompaction

	ctx     context.Context // of all runs
	end     context.CancelFunc
	ended   chan struct{} // closed when the goroutine has ended
	token   chan struct{} // holds one while there is no run
	pausing atomic.Bool
	cancel  atomic.Pointer[context.CancelFunc] // of the present run, or an earlier one

	idleUntil int64 // tail below which it is not worthwhile to look again
}

// One look takes records from so many pages, so many from each.
const (
	samplePages   = 32
	sampleRecords = 32
)

// A run compacts one part in so many of the log, and is worthwhile if it takes
// less than most of the part to store what is live in it.
const (
	autoParts  = 4
	worthwhile = 0.9
)

// start starts it, where the options ask for one.
func (a *autoCompactor) start(st *Store) {
	a.st, a.opts = st, st.opts.Compaction
	a.ctx, a.end = context.WithCancel(context.Background())
	a.ended, a.token = make(chan struct{}), make(chan struct{}, 1)
	a.token <- struct{}{}
	if a.opts.DeadShare == 0 && a.opts.LogSize == 0 {
		close(a.ended)
		return
	}
	go func() {
		defer close(a.ended)
		ticker := time.NewTicker(a.opts.Every)
		defer ticker.Stop()
		for {
			select {
			case <-a.ctx.Done():
				return
			case <-ticker.C:
				a.catchUp()
			}
		}
	}()
}

// stop ends it for good.
func (a *autoCompactor) stop() {
	a.end()
	<-a.ended
}

// pause ends the present run and keeps others from starting until resume.
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

// catchUp compacts until none of the log is due. A part at each tick would leave a log
// that is written fast as long as what is written in several ticks.
func (a *autoCompactor) catchUp() {
	for a.look() {
	}
}

// look compacts a part of the log if it is time, unless somebody has it paused.
// It says whether it did, and there may be more to do.
func (a *autoCompactor) look() (again bool) {
	select {
	case <-a.token:
	default:
		return false
	}
	defer func() { a.token <- struct{}{} }()
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	a.cancel.Store(&cancel)
	if a.pausing.Load() { // and may have missed cancel
		return false
	}
	behind, err := a.due()
	due := behind > 0
	if err == nil && due {
		err = a.run(ctx, behind)
	}
	if err != nil && ctx.Err() == nil {
		a.st.opts.Logger.Error("automatic compaction", "err", err)
		a.st.failed("automatic compaction", err)
	}
	return due && err == nil
}

// due says whether it is time, and by what factor, of at least 1, the log is beyond what
// the options allow. 0: it is not time.
func (a *autoCompactor) due() (behind float64, err error) {
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
	dead, err := a.st.deadShare(begin, log.SafeReadOnly())
	switch {
	case err != nil:
		return 0, err
	case dead < a.opts.DeadShare:
		a.rest(tail - begin)
		return 0, nil
	}
	return perLive(dead) / perLive(a.opts.DeadShare), nil
}

// perLive is how many bytes are dead for each live one, where that share of all is dead.
func perLive(dead float64) float64 { return dead / (1 - dead) }

// rest waits until the log has grown by a share of its length.
func (a *autoCompactor) rest(length int64) {
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
		a.rest(length)
	}
	return err
}

// deadShare estimates how much of a part of the log, in bytes, readers do not see
// any more.
func (st *Store) deadShare(from, until int64) (share float64, err error) {
	var all, live int64
	err = st.withAny(func(s *Session) error {
		page := int64(st.log.PageSize())
		pages := (until-1)/page - from/page + 1
		for i := range min(pages, samplePages) {
			number := i // of the page, from the first one
			if pages > samplePages {
				number = rand.Int64N(pages)
			}
			var b traceBatch
			n := 0
			start := from&^(page-1) + number*page
			if err := s.walk(start, min(start+page, until), func(address int64, im hlog.Image) bool {
				all += int64(s.sizeOf(im))
				if !im.Header.Tombstone() {
					b.add(opNewest, newTrace(address, hlog.MaxAddress), im)
				}
				n++
				return n < sampleRecords
			}); err != nil {
				return err
			}
			if err := b.run(s); err != nil {
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
