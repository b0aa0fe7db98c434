package phase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrClosed means that the store is closed.
var ErrClosed = errors.New("phase: closed")

// errBusy is the reason why TryBegin does not begin.
var errBusy = errors.New("phase: it would have to wait")

// Machine knows the phase of each track. The zero value is at rest.
type Machine struct {
	mu      sync.Mutex // guards the rest; nothing is waited for while it is held
	phases  [tracks]Phase
	waiting []*call // actions that have not begun, the oldest first
	group   *Group  // the commit that others join; nil: none
	current *Group  // the commit in progress that had its barrier; nil: none
	served  int     // callers of the last commit that had its barrier
	expects int     // callers of the next one, as far as the end of the last one tells
}

// call is an action that begins, or a step of one in progress.
type call struct {
	action Action
	step   bool
	begun  chan error // of capacity 1; gets nil when it has begun, or why it never does
}

// Begin returns when the action has begun, which [Machine.End] ends. It waits until ctx ends.
// If the store is closed, the error is ErrClosed.
func (m *Machine) Begin(ctx context.Context, a Action) error {
	return m.await(ctx, &call{a, false, make(chan error, 1)})
}

// TryBegin begins the action if it need not wait.
func (m *Machine) TryBegin(a Action) bool {
	c := &call{a, false, make(chan error, 1)}
	m.call(c)
	return m.cancel(c, errBusy) == nil
}

// Advance begins a step of the action in progress. It waits only if a commit and a checkpoint
// both have to write the manifest. An error is that of ctx; then the phase is unchanged.
func (m *Machine) Advance(ctx context.Context, a Action) error {
	return m.await(ctx, &call{a, true, make(chan error, 1)})
}

// End ends an action.
func (m *Machine) End(a Action) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range plans[a].on {
		m.phases[t] = Resting
	}
	if a == Commit {
		m.current = nil
		m.expects = m.served + m.gathered()
	}
	m.next()
}

// Phases are those of the tracks: of commits, of checkpoints, of compactions.
func (m *Machine) Phases() [tracks]Phase {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phases
}

// await returns when the call has begun, or cannot begin.
func (m *Machine) await(ctx context.Context, c *call) error {
	m.call(c)
	select {
	case err := <-c.begun: // even if ctx has ended
		return err
	default:
	}
	select {
	case err := <-c.begun:
		return err
	case <-ctx.Done():
		return m.cancel(c, ctx.Err())
	}
}

// call begins a call, or queues it behind the others.
func (m *Machine) call(c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = append(m.waiting, c)
	m.next()
}

// cancel returns the result of the call; if it still waited, it ends with reason.
func (m *Machine) cancel(c *call, reason error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.waiting, c)
	if i < 0 {
		return <-c.begun
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.next() // others may have waited behind it
	return reason
}

// next begins waiting calls that may begin. The caller holds mu.
func (m *Machine) next() {
	for n := -1; n != len(m.waiting); { // what begins may be what an older one waits for
		n = len(m.waiting)
		m.sweep()
	}
}

// sweep tries each waiting call once.
func (m *Machine) sweep() {
	var wanted [tracks]bool // by an older action that waits
	m.waiting = slices.DeleteFunc(m.waiting, func(c *call) bool {
		v := m.verdict(c)
		on := plans[c.action].on
		if !c.step && v == begin && slices.ContainsFunc(on, func(t track) bool { return wanted[t] }) {
			v = wait
		}
		switch v {
		case begin:
			m.enter(c)
			c.begun <- nil
		case refuse:
			c.begun <- ErrClosed
		default:
			for _, t := range on {
				wanted[t] = wanted[t] || !c.step && !m.lets(c, t)
			}
			return false
		}
		return true
	})
}

// lets reports whether a call that waits lets younger ones begin on a track: one that waits for a
// checkpoint, which may take minutes, lets commits begin.
func (m *Machine) lets(c *call, t track) bool {
	return t == commits && table[m.phases[checkpoints]][c.action] == wait
}

// verdict returns the strictest verdict of all tracks on a call.
func (m *Machine) verdict(c *call) verdict {
	own := plans[c.action].on[0]
	if c.step && whole(m.phases[own]) {
		return begin
	}
	v := begin
	for t, p := range m.phases {
		if !c.step || own != track(t) {
			v = max(v, table[p][c.action])
		}
	}
	return v
}

// whole reports whether the phase is that of an action whose steps have no phase.
func whole(p Phase) bool { return p == Removing || p == Closed }

// enter begins a call. The caller holds mu.
func (m *Machine) enter(c *call) {
	p := &plans[c.action]
	for _, t := range p.on {
		from := m.phases[t]
		switch {
		case c.step && whole(from):
			continue
		case c.step == (from == Resting) || !slices.Contains(p.from, from):
			panic(fmt.Sprintf("phase: %v while %v", c.action, from))
		}
		m.phases[t] = p.to
		if p.to == Flushing {
			m.served = m.gathered()
			m.current, m.group = m.group, nil // later calls join the next commit
		}
	}
}

// Group is a commit that several callers share: the first one leads it, and does the work.
type Group struct {
	ended chan struct{}
	size  int   // callers; guarded by the machine's mu
	err   error // set before ended is closed
	again bool  // only its leader's context ended it: the others try again
}

// Join returns the commit that is gathering, or that waits to begin. If there was none, leads
// is true, and the caller makes it: by Begin, the steps, End and Finish. Others call Wait.
func (m *Machine) Join() (g *Group, leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if leads = m.group == nil; leads {
		m.group = &Group{ended: make(chan struct{})}
	}
	m.group.size++
	return m.group, leads
}

// Follow returns the commit in progress that has had its barrier, for a caller that waits for its
// end, or nil.
func (m *Machine) Follow() *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.served++
	}
	return m.current
}

// Finish ends a commit with err for all that wait for it. If again is set, they try again.
func (m *Machine) Finish(g *Group, err error, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.group == g { // it ended before its barrier
		m.group = nil
	}
	g.err, g.again = err, again
	close(g.ended)
}

// Wait returns the result of the commit. If again is set, the caller joins another one. If ctx
// ends first, ended is false, and err is that of ctx.
func (g *Group) Wait(ctx context.Context) (ended, again bool, err error) {
	select {
	case <-g.ended:
		return true, g.again, g.err
	case <-ctx.Done():
		return false, false, ctx.Err()
	}
}

// Gathered returns how many callers share the commit that has not had its barrier.
func (m *Machine) Gathered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gathered()
}

// Missing reports whether fewer callers share the commit than were there when the last one ended:
// those that it served, and those that waited for this one already.
func (m *Machine) Missing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gathered() < m.expects
}

// gathered is Gathered for callers that hold mu.
func (m *Machine) gathered() int {
	if m.group == nil {
		return 0
	}
	return m.group.size
}
