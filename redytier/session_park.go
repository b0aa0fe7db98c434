package redytier

import (
	"context"
	"sync"

	"github.com/redykv/redykv/internal/fabric"
)

// bed is where a session's owner sleeps. Other goroutines wake it after a change of the cache
// and when a connection arrives.
type bed struct {
	woken    chan struct{} // holds a token while there is a reason to wake up
	sleepers []*sleeper
	waiting  []*conn // that the owner sleeps on

	mu     sync.Mutex       // guards the fields below
	roused bool             // the next sleep ends at once
	on     fabric.QueuePair // the owner sleeps in its Wait; nil: it does not
}

// wake ends the sleep of a parked owner, or else its next one. Any goroutine may call it.
func (s *Session) wake() {
	b := &s.bed
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roused = true
	offer(b.woken)
	if b.on != nil {
		b.on.Wake()
	}
}

// park sleeps until a connection with pending requests has completions, the session is woken,
// or ctx ends. It may return early.
func (s *Session) park(ctx context.Context) error {
	b := &s.bed
	b.waiting = b.waiting[:0]
	for _, c := range s.busy {
		if c.busy() {
			b.waiting = append(b.waiting, c)
		}
	}
	if len(b.waiting) == 0 && s.held == 0 {
		return nil
	}
	var one fabric.QueuePair
	if len(b.waiting) == 1 {
		one = b.waiting[0].qp
	}
	if b.lie(one) {
		switch {
		case one != nil:
			_ = one.Wait(ctx) // the next step finds the reason for its end
		case len(b.waiting) == 0: // until a region's gate opens, or a connection arrives
			b.sleep(ctx)
		default:
			b.sleepOnAll(ctx)
		}
	}
	b.rise()
	return ctx.Err()
}

// lie begins a sleep, in the Wait of a queue pair unless that is nil. It returns false if the
// owner was woken before.
func (b *bed) lie(on fabric.QueuePair) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.roused {
		return false
	}
	select {
	case <-b.woken: // of an earlier sleep
	default:
	}
	b.on = on
	return true
}

func (b *bed) rise() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on, b.roused = nil, false
}

func (b *bed) sleep(ctx context.Context) {
	select {
	case <-b.woken:
	case <-ctx.Done():
	}
}

// sleeper is a goroutine that waits for one of several queue pairs, which it owns meanwhile. The
// first to return ends all waits.
type sleeper struct {
	start chan wait
	done  chan struct{} // holds one token
}

type wait struct {
	ctx context.Context
	qp  fabric.QueuePair
}

// sleepOnAll waits for several queue pairs at once.
func (b *bed) sleepOnAll(ctx context.Context) {
	for len(b.sleepers) < len(b.waiting) {
		z := &sleeper{start: make(chan wait), done: make(chan struct{}, 1)}
		b.sleepers = append(b.sleepers, z)
		go z.run(b.woken)
	}
	for i, c := range b.waiting {
		b.sleepers[i].start <- wait{ctx, c.qp}
	}
	b.sleep(ctx)
	for i, c := range b.waiting {
		b.sleepers[i].recall(c.qp)
	}
}

func (z *sleeper) run(woken chan struct{}) {
	for w := range z.start {
		_ = w.qp.Wait(w.ctx) // the session's next step finds out why it ended
		offer(woken)
		z.done <- struct{}{}
	}
	z.done <- struct{}{}
}

// recall takes a queue pair back. One Wake is enough: if the goroutine does not wait yet, its
// next Wait returns.
func (z *sleeper) recall(qp fabric.QueuePair) {
	select {
	case <-z.done:
	default:
		qp.Wake()
		<-z.done
	}
}

// close ends the goroutines, none of which waits for a queue pair.
func (b *bed) close() {
	for _, z := range b.sleepers {
		close(z.start)
		<-z.done
	}
	b.sleepers = nil
}
