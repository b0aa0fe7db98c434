package kv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// open opens the store and the sessions. If cut is not 0, power fails at the cut-th operation
// on the device, and the store is opened again.
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
	if p.fuse.off.Load() { // the failure came after the last operation that Open needs
		p.kill()
		if err := p.rack.crash(0.5); err != nil {
			return err
		}
		return p.open(0)
	}
	p.fuse.arm(0, false)
	p.opts.Recover, p.committed = "", nil
	for _, ms := range p.sessions {
		if err := p.openSession(ms); err != nil {
			return err
		}
	}
	if err := p.recoverClears(); err != nil {
		return err
	}
	for _, ms := range p.sessions {
		ms.state = p.rebuild(ms)
	}
	return nil
}

// openSession opens the next session of a name, and truncates the history to the operations
// that the store has.
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
	if err := ms.whole(point); err != nil {
		return err
	}
	ms.history = ms.history[:point.Until]
	for _, n := range point.Excluding {
		ms.history[n-1].none = true
	}
	ms.acked = point
	if ms.s, err = p.st.NewNamedSession(ms.name); err != nil {
		return err
	}
	if n := ms.s.Serial(); n != point.Until {
		return fmt.Errorf("%s goes on at %d, its commit point is %d", ms.name, n, point.Until)
	}
	return nil
}

// renewSessions closes the sessions, and opens new ones that continue them.
func (p *player) renewSessions() (err error) {
	for _, ms := range p.sessions {
		if err := ms.s.Close(); err != nil {
			return err
		}
		if ms.s, err = p.st.NewNamedSession(ms.name); err != nil {
			return err
		}
		if n := ms.s.Serial(); n != uint64(len(ms.history)) {
			return fmt.Errorf("%s goes on at %d after %d operations", ms.name, n, len(ms.history))
		}
	}
	return nil
}

func subset(small, large []uint64) bool {
	return !slices.ContainsFunc(small, func(n uint64) bool { return !slices.Contains(large, n) })
}

// rebuild computes the session's state from its history.
func (p *player) rebuild(ms *modelSession) modelState {
	st := modelState{}
	for _, e := range p.sinceClear(ms) {
		if !e.none && e.key < p.keys {
			p.rules.apply(st, e.modelOp, e.now)
		}
	}
	return st
}

// total returns what readers must find under all keys, without concurrent operations.
func (p *player) total() modelState {
	all := modelState{}
	for _, ms := range p.sessions {
		maps.Copy(all, ms.state)
		for _, e := range p.sinceClear(ms) {
			if !e.none && e.key >= p.keys {
				p.rules.apply(all, e.modelOp, e.now)
			}
		}
	}
	return all
}

// stop closes the store properly.
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

// crash ends the process and its devices, and determines what was recovered.
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

// recoverTo recovers a kept checkpoint.
func (p *player) recoverTo(step modelStep) error {
	all := p.st.Checkpoints()
	if len(all) == 0 || p.automatic() { // it may have been removed
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
		ms.acked = p.points[info.Name][ms.name] // none, if the checkpoint was not acknowledged
	}
	p.doubtClears()
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

// recoverCommit recovers the last commit, even if there are newer checkpoints.
func (p *player) recoverCommit(step modelStep) error {
	if p.committed == nil {
		return nil
	}
	for _, ms := range p.sessions {
		ms.acked = p.committed[ms.name]
	}
	p.doubtClears()
	p.opts.Recover = LastCommit
	return p.crash(0.5, step.cut)
}
