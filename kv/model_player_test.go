package kv

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/keycount"
)

// player plays a script on a store and knows the expected results.
//
// After a crash or a recovery the store reports for each session up to which operation it has
// them, and which of these are missing. That must be at least what an acknowledged commit
// covered, and readers must find exactly the result of these operations.
type player struct {
	modelSetup       // opts are those of the last Open
	least      int64 // minimum memory of all opts
	rack       *rack
	fuse       *fuse
	st         *Store
	clock      atomic.Int64

	sessions []*modelSession
	points   map[string]map[string]CommitPoint // points of acknowledged checkpoints
	quiet    modelState                        // the total before the step
	cursor   scanning
	clears   []modelClear // oldest first

	committed map[string]CommitPoint // of the last commit since the store was opened, if any
}

// modelSession is a session with all its operations, across restarts.
type modelSession struct {
	name    string
	s       *Session
	history []modelEntry // by number - 1
	state   modelState   // the result of history, without counters
	acked   CommitPoint  // survives a crash
}

// modelEntry is an operation that was passed to a session.
type modelEntry struct {
	modelOp
	now    int64 // the time
	none   bool  // it had no effect
	locked bool  // its keys were locked
	joined bool  // in the same transaction as the entry before
}

// whole returns an error if a commit point contains a part of a transaction only.
func (ms *modelSession) whole(point CommitPoint) error {
	for _, n := range point.Excluding {
		if n <= uint64(len(ms.history)) && ms.history[n-1].locked {
			return fmt.Errorf("%s lacks operation %d, of locked keys", ms.name, n)
		}
	}
	if n := point.Until; n < uint64(len(ms.history)) && ms.history[n].joined {
		return fmt.Errorf("%s ends at operation %d, amidst those of locked keys", ms.name, n)
	}
	return nil
}

// playScript plays a script on new devices. Its error is a fault of the store.
func playScript(script modelScript) (err error) {
	p := &player{
		modelSetup: script.setup, least: script.setup.opts.Memory,
		points: map[string]map[string]CommitPoint{},
	}
	if p.opts.ReadCache == 0 {
		p.least = 4 * int64(p.opts.PageSize)
	}
	p.clock.Store(MinExpires)
	p.opts.now = p.clock.Load
	p.opts.Logger = slog.New(slog.DiscardHandler)
	if p.rack, err = newRack(p.modelSetup.rack); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.rack.remove()) }()
	for i := range p.modelSetup.sessions {
		p.sessions = append(p.sessions, &modelSession{name: fmt.Sprintf("session-%d", i), state: modelState{}})
	}
	if err := p.open(0); err != nil {
		return fmt.Errorf("opening a new store: %w", err)
	}
	for i, step := range script.steps {
		if err := p.step(step); err != nil {
			p.giveUp()
			return fmt.Errorf("step %d: %v: %w", i+1, step, err)
		}
	}
	for _, last := range []string{"verify", "close", "verify"} {
		if err := p.alone(modelStep{action: last}); err != nil {
			p.giveUp()
			return fmt.Errorf("at last, %s: %w", last, err)
		}
	}
	p.clock.Add(3 << keycount.SliceBits) // all records with an expiry have expired
	if err := p.countKeys(true); err != nil {
		p.giveUp()
		return err
	}
	return p.stop()
}

// giveUp ends a store after an error.
func (p *player) giveUp() {
	if p.st != nil {
		p.kill()
	}
	_ = p.rack.crash(0) // the result is known already
}

// step plays one step, all of its parts concurrently.
func (p *player) step(step modelStep) error {
	if slices.Contains(modelBreaks, step.action) {
		return p.alone(step)
	}
	p.fuse.arm(max(step.cut, step.fail), step.fail > 0)
	p.rack.sicken(step.sick)
	begun := p.serials()
	p.quiet = p.total()
	var wg sync.WaitGroup
	errs := make([]error, len(step.batches)+1)
	run := func(i int, play func() error) {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					errs[i] = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			errs[i] = play()
		})
	}
	mayFail := func(err error) bool {
		injected := errors.Is(err, errPower) || errors.Is(err, errOnce) || errors.Is(err, device.ErrFault)
		return injected && (p.fuse.fired.Load() || step.sick)
	}
	for i, b := range step.batches {
		run(i, func() error { return p.play(b, mayFail) })
	}
	if step.action != "" {
		run(len(step.batches), func() error {
			if err := p.act(step.action, step.argument, begun, touchedBy(step)); err != nil && !mayFail(err) {
				return fmt.Errorf("%s: %w", step.action, err)
			}
			return nil
		})
	}
	wg.Wait()
	p.rack.sicken(false)
	p.fuse.arm(0, false)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, ms := range p.sessions {
		if err := ms.whole(ms.acked); err != nil {
			return err
		}
	}
	p.cursor.touch(touchedBy(step))
	if step.cut > 0 {
		return p.crash(float64(step.argument%4)/3, 0)
	}
	if step.fail > 0 || step.sick {
		// A failed write of the log is permanent.
		if err := p.act("commit", 0, p.serials(), nil); err != nil {
			if !errors.Is(err, errOnce) {
				return fmt.Errorf("commit afterwards: %w", err)
			}
			return p.crash(float64(step.argument%4)/3, 0)
		}
	}
	return nil
}

// memory maps 0 to 999 to an amount between the minimum and the maximum.
func (p *player) memory(argument int64) int64 {
	return p.least + (p.opts.MaxMemory-p.least)*argument/1000
}

// touchedBy returns the keys that a step may change.
func touchedBy(step modelStep) map[uint64]bool {
	touched := map[uint64]bool{}
	for _, b := range step.batches {
		for _, o := range b.ops {
			if o.kind != modelRead && o.kind != modelSum {
				touched[o.key] = true
			}
		}
	}
	return touched
}

// serials returns the numbers of the sessions' last operations.
func (p *player) serials() []uint64 {
	var numbers []uint64
	for _, ms := range p.sessions {
		numbers = append(numbers, uint64(len(ms.history)))
	}
	return numbers
}

// alone plays an action that excludes all others.
func (p *player) alone(step modelStep) error {
	switch step.action {
	case "crash", "close", "recover", "uncheckpoint": // reopens the store with other options
		p.opts.Memory = p.memory(step.argument)
		p.opts.Records = 1 + step.argument
		if step.argument%5 == 0 {
			p.opts.CountKeys = !p.opts.CountKeys
		}
		p.opts.KeyClass = nil
		if p.opts.CountKeys && step.argument%3 != 0 {
			p.opts.KeyClass = modelClass
		}
	}
	switch step.action {
	case "crash":
		return p.crash(float64(step.argument%4)/3, step.cut)
	case "close":
		for _, ms := range p.sessions {
			ms.acked = CommitPoint{Until: uint64(len(ms.history)), Excluding: ms.acked.Excluding}
		}
		p.ackClears()
		if err := p.stop(); err != nil {
			return err
		}
		return p.open(0)
	case "recover":
		return p.recoverTo(step)
	case "uncheckpoint":
		return p.recoverCommit(step)
	case "tick":
		p.clock.Add(step.argument)
		return nil
	case "sessions":
		return p.renewSessions()
	case "clear":
		return p.clear()
	case "verify":
		return p.verify()
	case "cursor":
		return p.scanOn(int(step.argument)%100 + 1)
	}
	return fmt.Errorf("what is %q?", step.action)
}
