package device

import (
	"cmp"
	"errors"
	"fmt"
)

// Preparer is a Device for which Start at one tail and then at a lower one differs from the
// second Start alone, or that passes Prepare on to a device that it owns.
type Preparer interface {
	// Prepare makes the log below tail readable before Start, and forgets no more than
	// a Start at tail would.
	Prepare(tail int64) error
}

// Prepare makes the log below tail readable on a device that was not started, so that a
// caller can check it before Start truncates it at a lower tail. Until Start nothing may be
// written. After an error what is there can still be read.
func Prepare(dev Device, tail int64) error {
	if p, ok := dev.(Preparer); ok {
		return p.Prepare(tail)
	}
	return dev.Start(tail)
}

// Prepare implements Preparer. Until Start only the last tier is read; Prepare copies to it
// what other tiers had committed before the restart, except from tiers that are Refillers.
func (t *Tiered) Prepare(tail int64) error {
	if err := cmp.Or(t.err, checkRange(0, tail)); err != nil {
		return err
	}
	floors, err := t.loadFloors(tail)
	if err != nil {
		return err
	}
	last := len(t.tiers) - 1
	t.mu.Lock()
	t.tail, t.preparing = tail, true
	t.writes.Reset(tail)
	t.mu.Unlock()
	t.shut()
	if err := Prepare(t.last().dev, tail); err != nil {
		return t.lastFailed("prepare", tail, err)
	}
	from := floors[last] - 1
	if from < 0 || from >= tail {
		return nil
	}
	defer t.shut()
	down := make([]error, last)
	for i, tr := range t.tiers[:last] {
		var err error
		if tr.refiller != nil {
			err = errors.New("it is not read before Start")
		} else if err = Prepare(tr.dev, tail); err == nil {
			tr.floor.Store(tr.alignUp(min(floors[i], tail)))
		}
		if err != nil && floors[i] < tail {
			down[i] = fmt.Errorf("device: tier %s: prepare: %w", tr.name, err)
		}
	}
	return t.catchUp(from, tail, down)
}

// shut excludes the tiers before the last from reads.
func (t *Tiered) shut() {
	for _, tr := range t.tiers[:len(t.tiers)-1] {
		tr.floor.Store(outFloor)
	}
}

// prepared ends the state that Prepare began; Start starts the tiers next.
func (t *Tiered) prepared() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.preparing {
		return
	}
	t.preparing = false
	for _, tr := range t.tiers[:len(t.tiers)-1] {
		if tr.reason == nil { // it has not failed meanwhile
			tr.floor.Store(0)
		}
	}
}

// Prepare implements Preparer.
func (f *Faulty) Prepare(tail int64) error { return f.start(tail, Prepare) }
