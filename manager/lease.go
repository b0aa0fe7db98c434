package manager

import (
	"fmt"
	"sync"
	"time"
)

// term is what a cache that is renewed gets: how long its lease lasts, 0 for ever, and
// from when on.
type term struct {
	lease time.Duration
	now   func() time.Time
}

func (m *Manager) term() term { return term{lease: max(0, m.opts.Lease), now: m.opts.now} }

// begin begins a lease, of which the client is told. Called under state.mu, for which
// a call may have waited.
func (ca *cache) begin(t term) {
	ca.lease = t.lease
	ca.extend(t)
}

// extend begins a lease of which the client is not told yet: it has as long as it was
// told before to renew, for ever if that was none, as it does not renew then.
func (ca *cache) extend(t term) {
	ca.expires = time.Time{}
	if ca.lease > 0 && t.lease > 0 {
		ca.expires = t.now().Add(max(ca.lease, t.lease))
	}
}

// nextBeat is when a server that calls now is failed unless it calls again.
func (m *Manager) nextBeat() time.Time { return m.opts.now().Add(m.opts.Silence) }

// renew postpones the end of a cache's lease, and returns that as clients are told: in
// milliseconds, 0 for none.
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

// abandoned is a cache that nobody has renewed, or whose time is over, and what it held.
type abandoned struct {
	id     string
	reason string
	grants []*grant
}

// postpone moves what servers and clients have to call by: nobody heard them for so
// long. Notices of VMs run on.
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

// takeExpired takes the caches whose lease has ended before now, as take does; and, if
// durations are enforced, those that are older than they were to become (A29).
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
			reason = fmt.Sprintf("it was asked for %v, which are over", ca.duration())
		}
		if reason != "" {
			all = append(all, abandoned{id: id, reason: reason, grants: c.takeOut(ca, reason)})
		}
	}
	return all, nil
}

// duration is how long a cache was expected to live; 0: until it is deallocated.
func (ca *cache) duration() time.Duration { return time.Duration(ca.demand.duration) * time.Second }

// over says whether a cache is older than it was expected to become. Called under mu.
func (ca *cache) over(now time.Time) bool {
	return ca.demand.duration > 0 && !ca.created.IsZero() && now.Sub(ca.created) > ca.duration()
}

// expire is one step of monitor: it fails the VMs whose notice was up before now, looks
// for servers that are silent, and deallocates the caches whose time was up (A33). All of
// them at once, so that one that does not answer keeps no other waiting.
func (m *Manager) expire(now time.Time) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { m.audit(now) })
	given, sees := m.listen(now)
	for _, l := range append(m.state.overdue(now), given...) {
		ending.Go(func() { m.fail(l.vm, l.reason) })
	}
	if !sees {
		return
	}
	abandoned, err := m.takeExpired(now)
	if err != nil {
		return // what the store still has, nobody may take away
	}
	for _, ca := range abandoned {
		m.opts.Logger.Warn("cache deallocated", "cache", ca.id, "reason", ca.reason)
		ending.Go(func() { m.release(ca.id, ca.grants, true) })
	}
}
