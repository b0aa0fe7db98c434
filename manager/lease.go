package manager

import (
	"fmt"
	"sync"
	"time"
)

// term is a new lease: its duration, 0 for none, and the clock for its start.
type term struct {
	lease time.Duration
	now   func() time.Time
}

func (m *Manager) term() term { return term{lease: max(0, m.opts.Lease), now: m.opts.now} }

// begin begins a lease that the client is told. Called under state.mu; it reads the clock, as
// a call may wait for mu.
func (ca *cache) begin(t term) {
	ca.lease = t.lease
	ca.extend(t)
}

// extend begins a lease that the client is not told: it lasts at least as long as the one
// that the client was told; if the client was told none, it does not renew, so the lease
// never ends.
func (ca *cache) extend(t term) {
	ca.expires = time.Time{}
	if ca.lease > 0 && t.lease > 0 {
		ca.expires = t.now().Add(max(ca.lease, t.lease))
	}
}

// nextBeat returns the deadline of the next heartbeat of a server that calls now.
func (m *Manager) nextBeat() time.Time { return m.opts.now().Add(m.opts.Silence) }

// renew begins a new lease of a cache, and returns its duration in milliseconds; 0: none.
func (c *state) renew(id string, t term) (millis int64, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca, err := c.known(id)
	if err != nil {
		return 0, err
	}
	if ca.lease != t.lease {
		c.touchCache(ca)
	}
	c.renewed = t.now()
	ca.begin(t)
	return ca.lease.Milliseconds(), nil
}

// abandoned is a cache whose lease or duration has ended, and its grants.
type abandoned struct {
	id     string
	reason string
	grants []*grant
}

// postpone postpones the deadlines of heartbeats and leases by the time for which the
// manager stood still. Deadlines of reclaimed VMs do not change.
func (c *state) postpone(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if !v.deadline.IsZero() {
			v.deadline = v.deadline.Add(d)
		}
	}
	for _, ca := range c.caches {
		if !ca.expires.IsZero() {
			ca.expires = ca.expires.Add(d)
		}
	}
}

// takeExpired takes the caches whose lease ended before now, as take does; and, if durations
// are enforced, those whose duration has ended (A29).
func (m *Manager) takeExpired(now time.Time) (all []abandoned, err error) {
	c := m.state
	c.mu.Lock()
	defer c.end(&err)
	for id, ca := range c.caches {
		reason := ""
		switch {
		case !ca.ready:
		case !ca.expires.IsZero() && ca.expires.Before(now):
			reason = fmt.Sprintf("lease expired: not renewed for %v", max(ca.lease, m.opts.Lease))
		case m.opts.EnforceDuration && ca.over(now):
			reason = fmt.Sprintf("its duration of %v has ended", ca.duration())
		}
		if reason != "" {
			all = append(all, abandoned{id: id, reason: reason, grants: c.takeOut(ca, reason)})
		}
	}
	return all, nil
}

// duration returns the duration of a cache's request; 0: until it is deallocated.
func (ca *cache) duration() time.Duration { return time.Duration(ca.demand.duration) * time.Second }

// over reports whether a cache's duration has ended. Called under mu.
func (ca *cache) over(now time.Time) bool {
	return ca.demand.duration > 0 && !ca.created.IsZero() && now.Sub(ca.created) > ca.duration()
}

// expire is one step of monitor. It fails the reclaimed VMs whose deadline has passed, checks
// servers for silence, and deallocates caches whose lease or duration has ended (A33). It
// does so concurrently, as a server may not answer.
func (m *Manager) expire(now time.Time) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { m.audit(now) })
	lost, blind := m.listen(now)
	for _, l := range append(m.state.overdue(now), lost...) {
		ending.Go(func() { m.fail(l.vm.id, l.vm, l.reason) })
	}
	if blind {
		return
	}
	abandoned, err := m.takeExpired(now)
	if err != nil {
		return // the store still has these caches
	}
	for _, ca := range abandoned {
		m.opts.Logger.Warn("cache deallocated", "cache", ca.id, "reason", ca.reason)
		ending.Go(func() { m.release(ca.id, ca.grants, true) })
	}
}
