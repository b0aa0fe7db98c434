package redytier

import (
	"context"
	"sync"
)

// park sleeps until a connection with pending requests has completions, the session is woken,
// or ctx ends. It may return early.
func (s *Session) park(ctx context.Context) error {
	var one *conn
	busy := 0
	for _, c := range s.conns {
		if c.busy() {
			one = c
			busy++
		}
	}
	switch {
	case busy == 0 && s.held > 0: // until a region's gate opens
		select {
		case <-s.woken:
		case <-ctx.Done():
		}
		return ctx.Err()
	case busy == 0:
		return nil
	case busy > 1:
		if s.parker == nil {
			s.parker = newParker(s.conns)
		}
		return s.parker.park(ctx, s.conns)
	}
	// Other reasons for the end of this wait are found by the next step.
	_ = one.qp.Wait(ctx)
	return ctx.Err()
}

// parker waits for several queue pairs at once. While the session is parked, a goroutine per
// queue pair owns it and waits for it; the first to return ends all waits.
type parker struct {
	woken   chan struct{}          // holds one token
	start   []chan context.Context // by connection
	done    []chan struct{}        // by connection, one token each
	running sync.WaitGroup
}

func newParker(conns []*conn) *parker {
	p := &parker{woken: make(chan struct{}, 1)}
	for _, c := range conns {
		start, done := make(chan context.Context), make(chan struct{}, 1)
		p.start, p.done = append(p.start, start), append(p.done, done)
		p.running.Go(func() {
			for ctx := range start {
				_ = c.qp.Wait(ctx) // the session's next step finds out why it ended
				offer(p.woken)
				done <- struct{}{}
			}
		})
	}
	return p
}

func (p *parker) park(ctx context.Context, conns []*conn) error {
	for i, c := range conns {
		if c.busy() {
			p.start[i] <- ctx
		}
	}
	select {
	case <-p.woken:
	case <-ctx.Done():
	}
	for i, c := range conns {
		if c.busy() {
			p.recall(i, c)
		}
	}
	select {
	case <-p.woken: // of a later one
	default:
	}
	return ctx.Err()
}

// recall takes a connection back from its goroutine. One Wake is enough: if the goroutine
// does not wait yet, its next Wait returns.
func (p *parker) recall(i int, c *conn) {
	select {
	case <-p.done[i]:
	default:
		c.qp.Wake()
		<-p.done[i]
	}
}

// close ends the goroutines, none of which waits for a queue pair.
func (p *parker) close() {
	for _, start := range p.start {
		close(start)
	}
	p.running.Wait()
}
