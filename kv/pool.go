package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/goroutine"
)

// Sessions of the store's own serve the calls of [Store]. Each may have a queue on the
// device, which takes memory and file descriptors, so their number is bounded: a call that
// finds all of them lent waits, in order of arrival. Only calls that run no code which may
// call the store are counted and wait. A scan, a compaction or [Store.Atomically] gets a
// session in any case: waiting would be a deadlock where the session that it waits for
// belongs to a call that waits for what it does. So does a call from within the Modifier
// of another one.
const (
	maxLent   = 128              // sessions lent to calls that wait for one
	keepIdle  = 8                // sessions that stay open though nobody needs them
	trimAfter = 10 * time.Second // sessions that were not needed for so long are closed
)

// pool are a store's own sessions. Store.mu guards it.
type pool struct {
	idle    []*Session
	lent    int             // to calls that wait for their turn
	waiting []chan *Session // calls that wait, the first one first; each holds one
	spare   int             // idle sessions at all times since the trim was set off…
	trim    *time.Timer     // …which closes as many, but for keepIdle; nil: not set off
	after   time.Duration
}

// take returns an idle session, or nil.
func (p *pool) take() *Session {
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	s := p.idle[n]
	p.idle = p.idle[:n]
	p.spare = min(p.spare, n)
	return s
}

// with lends one of the store's own sessions to a call that does not call the store. ctx
// ends its waiting, for the session and within use.
func (st *Store) with(ctx context.Context, use func(*Session) error) error {
	p := &st.pool
	var s *Session
	st.mu.Lock()
	switch {
	case p.lent == maxLent && st.notes((*Session).userNote):
		st.mu.Unlock()
		return st.withAny(use)
	case p.lent == maxLent:
		turn := make(chan *Session, 1)
		p.waiting = append(p.waiting, turn)
		st.mu.Unlock()
		select {
		case s = <-turn:
		case <-ctx.Done():
			st.leaveQueue(turn)
			return fmt.Errorf("kv: waiting for a session: %w", ctx.Err())
		}
	default:
		p.lent++
		s = p.take()
		st.mu.Unlock()
		if s == nil {
			s = st.NewSession()
		}
	}
	s.ctx = ctx
	mem.StoreRelease(&s.user, goroutine.Self()|1)
	defer st.passOn(s)
	return use(s)
}

// leaveQueue ends a call's waiting for a session. A session that it was given meanwhile goes
// to the next one.
func (st *Store) leaveQueue(turn chan *Session) {
	st.mu.Lock()
	if i := slices.Index(st.pool.waiting, turn); i >= 0 {
		st.pool.waiting = slices.Delete(st.pool.waiting, i, i+1)
		st.mu.Unlock()
		return
	}
	st.mu.Unlock()
	st.passOn(<-turn)
}

// passOn gives a session to the next call that waits for one, or back.
func (st *Store) passOn(s *Session) {
	mem.StoreRelease(&s.user, 0)
	s.ctx = context.Background()
	s = st.sound(s)
	st.mu.Lock()
	defer st.mu.Unlock()
	p := &st.pool
	if len(p.waiting) > 0 {
		p.waiting[0] <- s
		p.waiting[0], p.waiting = nil, p.waiting[1:]
		return
	}
	p.lent--
	st.giveIdle(s)
}

// withAny is with for what must not wait: see above.
func (st *Store) withAny(use func(*Session) error) error {
	st.mu.Lock()
	s := st.pool.take()
	st.mu.Unlock()
	if s == nil {
		s = st.NewSession()
	}
	defer func() {
		s = st.sound(s)
		st.mu.Lock()
		st.giveIdle(s)
		st.mu.Unlock()
	}()
	return use(s)
}

// sound returns the session, or a new one in its place if its queue has failed.
func (st *Store) sound(s *Session) *Session {
	if s.unusable == nil || errors.Is(s.unusable, ErrClosed) {
		return s
	}
	fresh := st.NewSession()
	if err := s.Close(); err != nil {
		st.opts.Logger.Warn("closing a session of the store's own", "err", err)
	}
	return fresh
}

// giveIdle takes a session back. The caller holds mu.
func (st *Store) giveIdle(s *Session) {
	p := &st.pool
	p.idle = append(p.idle, s)
	p.setOff(st)
}

// setOff sets off the trim if there is something for it.
func (p *pool) setOff(st *Store) {
	if len(p.idle) > keepIdle && p.trim == nil && !st.closed {
		p.spare = len(p.idle)
		p.trim = time.AfterFunc(p.after, st.trim)
	}
}

// trim closes idle sessions that nobody has needed lately. Close waits for it.
func (st *Store) trim() {
	st.closing.Lock()
	defer st.closing.Unlock()
	st.mu.Lock()
	p := &st.pool
	p.trim = nil
	n := max(min(p.spare, len(p.idle))-keepIdle, 0)
	extra := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.setOff(st)
	st.mu.Unlock()
	for _, s := range extra {
		if err := s.Close(); err != nil {
			st.opts.Logger.Warn("closing a session of the store's own", "err", err)
		}
	}
}
