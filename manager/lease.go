package manager

import (
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// term is a new lease: its duration, 0 for none, and the clock for its start.
type term struct {
	lease time.Duration
	now   func() time.Time
}

func (l *leader) term() term { return term{lease: max(0, l.opts.Lease), now: l.opts.now} }

// renew begins a lease that the client is told. Called under state.mu; it reads the clock, as
// a call may wait for mu.
func (ca *cache) renew(t term) {
	ca.lease, ca.refused = t.lease, time.Time{}
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
func (l *leader) nextBeat() time.Time { return l.opts.now().Add(l.opts.Silence) }

// renew begins a new lease of a cache, and judges what its client has measured. It returns the
// lease's duration in milliseconds, 0 for none, and the change that is to be written before the
// call is answered; nil: none. A cache in an older state than its client's is kept until it is adopted.
func (c *state) renew(id string, holder, answered uint64, windows []*managerv1.Window, t term) (millis int64, j judgement, _ *txn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.heldAs(id, holder, answered)
	if known := c.caches[id]; known != nil && (errors.Is(err, errOlder) || holder > known.holder) {
		c.renewed = t.now()
		known.extend(t)
	}
	if err != nil {
		return 0, j, nil, err
	}
	j = c.measured(ca, windows, t.now())
	if ca.lease != t.lease || !ca.lingers.IsZero() {
		ca.lingers = time.Time{}
		c.touch(ca)
	}
	c.renewed = t.now()
	ca.renew(t)
	written, err := c.flush()
	return ca.lease.Milliseconds(), j, written, err
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
		if !ca.lingers.IsZero() {
			ca.lingers = ca.lingers.Add(d)
		}
	}
}

// deleteExpired deletes the caches whose lease ended before now and that have lingered, unless leases are
// braked, and, if durations are enforced, those whose duration has ended (A29). It returns the reasons by
// cache.
func (c *state) deleteExpired(now time.Time, lease time.Duration, braked, enforce bool) (reasons map[string]string, err error) {
	c.mu.Lock()
	defer c.end(&err)
	reasons = make(map[string]string)
	for id, ca := range c.caches {
		switch {
		case !ca.ready:
		case !ca.expires.IsZero() && ca.expires.Before(now) && !c.lets(ca, now) && (!braked || ca.linger > 0):
			reasons[id] = fmt.Sprintf("lease expired: not renewed for %v", max(ca.lease, lease)+ca.linger)
			if !ca.refused.IsZero() {
				reasons[id] = fmt.Sprintf("lease expired: renewals were refused since %v", ca.refused.UTC().Format(time.RFC3339))
			}
		case enforce && ca.over(now):
			reasons[id] = fmt.Sprintf("its duration of %v has ended", ca.duration())
		}
		if reason, ended := reasons[id]; ended {
			c.delete(ca, now, reason)
		}
	}
	return reasons, nil
}

// duration returns the duration of a cache's request; 0: until it is deallocated.
func (ca *cache) duration() time.Duration { return time.Duration(ca.demand.duration) * time.Second }

// over reports whether a cache's duration has ended. Called under mu.
func (ca *cache) over(now time.Time) bool {
	return ca.demand.duration > 0 && !ca.created.IsZero() && now.Sub(ca.created) > ca.duration()
}

// expire is one step of monitor. It fails the reclaimed VMs whose deadline has passed, checks
// servers for silence, ends requests that give way or that no client repeats, forgets what has ended long ago,
// and deletes caches whose lease or duration has ended (A33).
func (l *leader) expire(now time.Time) {
	lost, blind := l.listen(now)
	l.failAll(append(l.state.overdue(now), lost...))
	l.audit(now)
	l.giveWay(now)
	_ = l.state.dropForgotten(now) // the leader ends if the catalog does
	_ = l.state.forgetEnded(now)
	if blind {
		return
	}
	reasons, _ := l.state.deleteExpired(now, l.opts.Lease, l.brake(now), l.opts.EnforceDuration)
	l.counts.note(func(n *Metrics) { n.Expired += uint64(len(reasons)) })
	for id, reason := range reasons {
		l.opts.Logger.Warn("cache deallocated", "cache", id, "reason", reason)
	}
}

// depart is the step of monitor between two of expire: it fails the reclaimed VMs whose
// deadline has passed.
func (l *leader) depart(now time.Time) { l.failAll(l.state.overdue(now)) }
