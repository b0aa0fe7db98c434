package device

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// catchUp copies to the last tier what others had committed when everything ended, and
// what was on its way to it then. The log begins at its tail, and what none of them has
// any more, only the last tier may have.
func (t *Tiered) catchUp(from, tail int64) (err error) {
	last, before := t.last(), t.tiers[:len(t.tiers)-1]
	source := newTieredQueue(t, 1)
	held := int64(math.MaxInt64) // where what others have begins
	for i, tr := range before {
		if tr.out() || source.open(i) != nil {
			continue // it has told its troubles
		}
		held = min(held, max(tr.floor.Load(), tr.dev.Begin()))
	}
	defer func() { err = errors.Join(err, source.closeTiers(nil)) }()
	target, err := last.dev.NewQueue(1)
	if err != nil {
		return fmt.Errorf("device: tier %s: %w", last.name, err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	start := max(from&^int64(last.dev.Alignment()-1), last.alignUp(last.dev.Begin()))
	lacking := max(0, min(tail, held)-from)
	size := max(refillPiece, int64(last.dev.Alignment()))
	buf := AlignedBuffer(int(size), last.dev.Alignment())
	for at := max(start, min(last.alignUp(held), tail)); at < tail; at += size {
		n := int(min(size, tail-at))
		piece := buf[:last.alignUp(int64(n))]
		clear(piece[n:])
		err := Finish(context.Background(), source, source.Read(piece[:n], at, 0))
		if errors.Is(err, ErrNotHeld) {
			lacking += int64(n)
			continue
		}
		if err == nil {
			err = Finish(context.Background(), target, target.Write(piece, at, 0))
		}
		if err != nil {
			return fmt.Errorf("device: tier %s: %d bytes at %d that were on their way to it: %w", last.name, n, at, err)
		}
	}
	if lacking > 0 {
		t.opts.Logger.Warn("the last tier may lack bytes that were on their way to it, no other tier has them",
			"tier", last.name, "from", from, "bytes", lacking)
	}
	if err := last.dev.Sync(); err != nil {
		return fmt.Errorf("device: tier %s: sync: %w", last.name, err)
	}
	t.mu.Lock()
	t.dirty = true
	t.mu.Unlock()
	return t.storeFloors()
}
