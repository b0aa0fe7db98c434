package device

import (
	"context"
	"errors"
	"fmt"
)

// catchUp copies to the last tier what others had committed and what was pending on the
// last tier before the restart: the log from one address to its tail. Bytes that no other
// tier holds may be on the last tier only. down are the errors of tiers, by number, that may hold
// such bytes and cannot be read now: if bytes are lacking, they are catchUp's error, and the next
// Start tries again.
func (t *Tiered) catchUp(from, tail int64, down []error) (err error) {
	last, before := t.last(), t.tiers[:len(t.tiers)-1]
	source := newTieredQueue(t, 1)
	held := tail // lowest address that other tiers hold
	for i, tr := range before {
		if tr.out() {
			continue
		}
		holds := max(tr.floor.Load(), tr.dev.Begin())
		if err := source.open(i); err == nil {
			held = min(held, holds)
		} else if holds < tail {
			down[i] = fmt.Errorf("device: tier %s: new queue: %w", tr.name, err)
		}
	}
	defer func() { err = errors.Join(err, source.closeTiers(nil)) }()
	target, err := last.dev.NewQueue(1)
	if err != nil {
		return fmt.Errorf("device: tier %s: %w", last.name, err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	start := max(from&^int64(last.dev.Alignment()-1), last.alignUp(last.dev.Begin()))
	lacking := max(0, held-max(from, last.dev.Begin()))
	size := max(refillPiece, int64(last.dev.Alignment()))
	buf := AlignedBuffer(int(size), last.dev.Alignment())
	for at := max(start, min(last.alignUp(held), tail)); at < tail; at += size {
		n := int(min(size, tail-at))
		piece := buf[:last.alignUp(int64(n))]
		clear(piece[n:])
		bad := source.badReads()
		err := Finish(context.Background(), source, source.Read(piece[:n], at, 0))
		if errors.Is(err, ErrNotHeld) && source.badReads() == bad {
			lacking += int64(n)
			continue
		}
		if err == nil {
			err = Finish(context.Background(), target, target.Write(piece, at, 0))
		}
		if err != nil {
			return fmt.Errorf("device: tier %s: catch-up of %d bytes at %d: %w", last.name, n, at, err)
		}
	}
	for i, tr := range before {
		if tr.out() && source.queues[i] != nil {
			down[i] = fmt.Errorf("device: tier %s has failed", tr.name)
		}
	}
	if err := errors.Join(down...); err != nil && lacking > 0 {
		return fmt.Errorf("device: tier %s may lack %d bytes from %d on that a tier before it may hold: %w", last.name, lacking, from, err)
	}
	if lacking > 0 {
		t.opts.Logger.Warn("the last tier may lack bytes that were pending on it, and no other tier holds them",
			"tier", last.name, "from", from, "bytes", lacking)
	}
	if err := last.dev.Sync(); err != nil {
		return fmt.Errorf("device: tier %s: sync: %w", last.name, err)
	}
	t.mu.Lock()
	t.dirty = true
	now := t.floors()
	t.mu.Unlock()
	return t.storeFloors(now, nil)
}
