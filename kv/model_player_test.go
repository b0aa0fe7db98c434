package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// player plays a script on a store and knows what must come of it.
//
// After a crash or a recovery the store says for each session up to which
// operation it has them, and without which. That must be all that a commit
// covered which was acknowledged, or more; and what readers then find must be
// what those operations make, no more and no less.
type player struct {
	modelSetup
	rack  *rack
	fuse  *fuse
	st    *Store
	clock atomic.Int64

	sessions []*modelSession
	points   map[string]map[string]CommitPoint // of checkpoints that were acknowledged
	quiet    modelState                        // the total before the step
	cursor   scanning
}

// modelSession is a session, and all that it was given, in all its incarnations.
type modelSession struct {
	name    string
	s       *Session
	history []modelEntry // by number - 1
	state   modelState   // what they make, without counters
	acked   CommitPoint  // survives a crash
}

// modelEntry is an operation that a session was given.
type modelEntry struct {
	modelOp
	now  int64 // when
	none bool  // it had no effect
}

// playScript plays a script on devices of its own. Its error is the store's fault.
func playScript(script modelScript) (err error) {
	p := &player{modelSetup: script.setup, points: map[string]map[string]CommitPoint{}}
	p.clock.Store(1_000_000)
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
	return p.stop()
}

// giveUp ends a store that is wrong.
func (p *player) giveUp() {
	if p.st != nil {
		p.kill()
	}
	_ = p.rack.crash(0) // what it was good for is known
}

// step plays one step, all of its parts at once.
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
	p.cursor.touch(touchedBy(step))
	if step.cut > 0 {
		return p.crash(float64(step.argument%4)/3, 0)
	}
	if step.fail > 0 || step.sick {
		// A log that could not be written is not written any more.
		if err := p.act("commit", 0, p.serials(), nil); err != nil {
			if !errors.Is(err, errOnce) {
				return fmt.Errorf("commit afterwards: %w", err)
			}
			return p.crash(float64(step.argument%4)/3, 0)
		}
	}
	return nil
}

// touchedBy are the keys that a step may change.
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

// serials are the numbers of the sessions' last operations.
func (p *player) serials() []uint64 {
	var numbers []uint64
	for _, ms := range p.sessions {
		numbers = append(numbers, uint64(len(ms.history)))
	}
	return numbers
}

// alone plays what goes with nothing else.
func (p *player) alone(step modelStep) error {
	switch step.action {
	case "crash":
		return p.crash(float64(step.argument%4)/3, step.cut)
	case "close":
		for _, ms := range p.sessions {
			ms.acked = CommitPoint{Until: uint64(len(ms.history)), Excluding: ms.acked.Excluding}
		}
		if err := p.stop(); err != nil {
			return err
		}
		return p.open(0)
	case "recover":
		return p.recoverTo(step)
	case "tick":
		p.clock.Add(step.argument)
		return nil
	case "verify":
		return p.verify()
	case "cursor":
		return p.scanOn(int(step.argument)%100 + 1)
	}
	return fmt.Errorf("what is %q?", step.action)
}

// open opens the store, and the sessions. Power fails at the cut-th operation on
// the device, if cut is not 0: then it is opened again.
func (p *player) open(cut int) (err error) {
	if p.fuse, err = p.rack.start(); err != nil {
		return err
	}
	p.fuse.arm(cut, false)
	p.opts.Device = p.fuse
	opts := p.opts
	p.st, err = Open(opts)
	if err != nil && p.fuse.off.Load() && errors.Is(err, errPower) {
		p.st = nil
		if err := p.rack.crash(0.5); err != nil {
			return err
		}
		return p.open(0)
	}
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	if p.fuse.off.Load() { // after the last operation that Open needs
		p.kill()
		if err := p.rack.crash(0.5); err != nil {
			return err
		}
		return p.open(0)
	}
	p.fuse.arm(0, false)
	p.opts.Recover = ""
	for _, ms := range p.sessions {
		if err := p.openSession(ms); err != nil {
			return err
		}
	}
	return nil
}

// openSession opens a session after the last one of its name, and cuts the history
// to what the store has of it.
func (p *player) openSession(ms *modelSession) (err error) {
	point, known := p.st.CommitPoint(ms.name)
	switch {
	case !known && ms.acked.Until > 0:
		return fmt.Errorf("%s is forgotten, %d operations were acknowledged", ms.name, ms.acked.Until)
	case point.Until < ms.acked.Until || point.Until > uint64(len(ms.history)):
		return fmt.Errorf("%s has %d operations, %d were acknowledged, %d given", ms.name, point.Until, ms.acked.Until, len(ms.history))
	case point.Until == ms.acked.Until && !subset(point.Excluding, ms.acked.Excluding):
		return fmt.Errorf("%s lacks %v of %d, acknowledged was all but %v", ms.name, point.Excluding, point.Until, ms.acked.Excluding)
	}
	ms.history = ms.history[:point.Until]
	for _, n := range point.Excluding {
		ms.history[n-1].none = true
	}
	ms.acked = point
	ms.state = p.rebuild(ms)
	if ms.s, err = p.st.NewNamedSession(ms.name); err != nil {
		return err
	}
	if n := ms.s.Serial(); n != point.Until {
		return fmt.Errorf("%s goes on at %d, its commit point is %d", ms.name, n, point.Until)
	}
	return nil
}

func subset(small, large []uint64) bool {
	return !slices.ContainsFunc(small, func(n uint64) bool { return !slices.Contains(large, n) })
}

// rebuild makes the session's state from its history.
func (p *player) rebuild(ms *modelSession) modelState {
	st := modelState{}
	for _, e := range ms.history {
		if !e.none && e.key < p.keys {
			p.rules.apply(st, e.modelOp, e.now)
		}
	}
	return st
}

// total is what readers must find under all keys, while nothing goes on.
func (p *player) total() modelState {
	all := modelState{}
	for _, ms := range p.sessions {
		maps.Copy(all, ms.state)
		for _, e := range ms.history {
			if !e.none && e.key >= p.keys {
				p.rules.apply(all, e.modelOp, e.now)
			}
		}
	}
	return all
}

// stop closes the store in good order.
func (p *player) stop() error {
	var errs []error
	for _, ms := range p.sessions {
		errs = append(errs, ms.s.Close())
	}
	errs = append(errs, p.st.Close())
	p.st = nil
	return errors.Join(errs...)
}

// kill ends the store without its device.
func (p *player) kill() {
	p.fuse.blow()
	for _, ms := range p.sessions {
		if ms.s != nil {
			_ = ms.s.Close() // the device is gone
			ms.s = nil
		}
	}
	_ = p.st.Close()
	p.st = nil
}

// crash ends the process and its devices, and finds out what is left.
func (p *player) crash(keep float64, cut int) error {
	p.kill()
	if err := p.rack.crash(keep); err != nil {
		return err
	}
	p.cursor = scanning{}
	if err := p.open(cut); err != nil {
		return fmt.Errorf("after a crash: %w", err)
	}
	return p.verify()
}

// recoverTo goes back to a checkpoint that is kept.
func (p *player) recoverTo(step modelStep) error {
	all := p.st.Checkpoints()
	if len(all) == 0 {
		return nil
	}
	info := all[step.argument%int64(len(all))]
	if step.argument%3 == 0 {
		if err := p.stop(); err != nil {
			return err
		}
	} else {
		p.kill()
		if err := p.rack.crash(0.5); err != nil {
			return err
		}
	}
	p.cursor = scanning{}
	p.opts.Recover = info.Name
	for _, ms := range p.sessions {
		ms.acked = p.points[info.Name][ms.name] // or none, where it was not acknowledged
	}
	if err := p.open(step.cut); err != nil {
		return fmt.Errorf("recovering %v: %w", info, err)
	}
	for i, ms := range p.sessions {
		want, known := p.points[info.Name][ms.name]
		if known && (ms.acked.Until != want.Until || !slices.Equal(ms.acked.Excluding, want.Excluding)) {
			return fmt.Errorf("recovered %v: session %d at %v, want %v", info, i, ms.acked, want)
		}
	}
	kept := p.st.Checkpoints()
	if len(kept) == 0 || kept[len(kept)-1].Name != info.Name {
		return fmt.Errorf("recovered %v, kept %v", info, kept)
	}
	return p.verify()
}

// act plays an action. begun are the sessions' numbers before the step.
func (p *player) act(action string, argument int64, begun []uint64, touched map[uint64]bool) error {
	ctx := context.Background()
	switch action {
	case "commit":
		if err := p.st.Commit(ctx); err != nil {
			return err
		}
		_, err := p.acknowledge(begun)
		return err
	case "foldover":
		return p.checkpoint(FoldOver, argument, begun)
	case "snapshot":
		return p.checkpoint(Snapshot, argument, begun)
	case "incremental":
		return p.checkpoint(Incremental, argument, begun)
	case "index":
		return p.checkpoint(Index, argument, begun)
	case "drop":
		return p.dropCheckpoint(argument)
	case "lookup", "scan":
		return p.compact(action, argument)
	case "grow":
		if p.st.Metrics().IndexBytes > 1<<20 {
			return nil
		}
		return p.st.GrowIndex(ctx)
	case "memory":
		return p.setMemory(argument)
	case "iterate":
		return p.iterate(touched)
	}
	return fmt.Errorf("what is %q?", action)
}

// acknowledge notes what a commit covers that has succeeded: what was given to
// sessions before it began, or more.
func (p *player) acknowledge(begun []uint64) (map[string]CommitPoint, error) {
	points := map[string]CommitPoint{}
	for i, ms := range p.sessions {
		point, ok := p.st.CommitPoint(ms.name)
		if !ok || point.Until < begun[i] {
			return nil, fmt.Errorf("%s was committed up to %d (known %v), it had been given %d operations", ms.name, point.Until, ok, begun[i])
		}
		ms.acked = point
		points[ms.name] = point
	}
	return points, nil
}

func (p *player) checkpoint(kind CheckpointKind, argument int64, begun []uint64) error {
	info, err := p.st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind, LogOnly: argument%3 == 0})
	if err != nil || kind == Index {
		return err
	}
	p.points[info.Name], err = p.acknowledge(begun)
	all := p.st.Checkpoints()
	if err == nil && (len(all) == 0 || all[len(all)-1].Sequence != info.Sequence) {
		err = fmt.Errorf("made %v, kept %v", info, all)
	}
	return err
}

// dropCheckpoint removes one, unless another one stands on it.
func (p *player) dropCheckpoint(argument int64) error {
	all := p.st.Checkpoints()
	if len(all) == 0 {
		return nil
	}
	info := all[argument%int64(len(all))]
	needed := slices.ContainsFunc(all, func(c CheckpointInfo) bool { return c.Base == info.Name })
	err := p.st.RemoveCheckpoint(info.Name)
	if needed && err == nil {
		return fmt.Errorf("removed %v, on which another one stands", info)
	}
	if needed {
		return nil
	}
	return err
}

func (p *player) compact(method string, argument int64) error {
	opts := CompactOptions{Method: CompactByLookup, Memory: 1 + argument*50}
	if method == "scan" {
		opts.Method = CompactByScan
	}
	if argument%4 != 0 {
		m := p.st.Metrics()
		opts.Bytes = 1 + (m.Tail-m.Begin)*(argument%100)/100
	}
	_, err := p.st.Compact(context.Background(), opts)
	return err
}

func (p *player) setMemory(argument int64) error {
	least := int64(p.opts.PageSize) * 4
	if p.opts.ReadCache > 0 {
		least = p.opts.Memory
	}
	memory := least + (p.opts.MaxMemory-least)*argument/1000
	if err := p.st.SetMemory(memory); err != nil {
		return err
	}
	if m := p.st.Metrics(); m.MemoryBudget+m.CacheBudget > memory {
		return fmt.Errorf("memory of %d:\n%v", memory, m)
	}
	return nil
}
