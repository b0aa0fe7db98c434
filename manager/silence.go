package manager

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file decides what missed heartbeats mean. A silent server may be running: the
// network between it and the manager may be broken, or only the manager's end of it. So no
// cache loses memory by it:
//
//   - no memory of a silent server is granted;
//   - caches that have memory there are told that the server is suspected
//     (KIND_VM_SUSPECTED). The client decides: if it reaches the server it keeps using
//     the memory, else it replaces it and settles without the server;
//   - a silent server on which no cache has memory is failed.
//
// If at least half of the servers fall silent together, the manager is blind: it assumes
// that its own network is broken, suspects no server and ends no lease. Blindness ends
// when fewer servers are silent, or when the manager has received other calls, of servers
// or clients, for blindTerms. Then the servers that are still silent are suspected.

// silence is the result of one check of the heartbeats.
type silence struct {
	servers   int    // that send heartbeats, and were not suspected before
	quiet     int    // of servers, those whose heartbeats are late, though perhaps not silent yet
	blind     bool   // at least half of the servers are quiet
	changed   bool   // blind has changed
	lost      []loss // silent servers without grants
	suspected []loss // silent servers whose caches have been notified in this check
}

// blindFrom is the minimum of quiet servers that make the manager blind.
const blindFrom = 2

// blindTerms bounds how long a manager that receives some calls stays blind, in multiples
// of the longer of Options.Silence and Options.Lease. Each client and server that can
// reach the manager calls several times within that time.
const blindTerms = 4

// lostShare bounds the servers that are failed for their silence alone in one check, as a part
// of all: one in so many.
const lostShare = 100

// listen checks when each server called last. It marks silent servers as suspected, or
// returns them in lost if they have no grants.
func (c *state) listen(now time.Time, heartbeat, silent, lease time.Duration) (s silence, err error) {
	// A server is quiet before it is silent, so that when the first of many servers becomes
	// silent, the others already count.
	quiet := max(silent/2, min(silent, 2*heartbeat))
	c.mu.Lock()
	defer c.end(&err)
	for _, v := range c.vms {
		if v.deadline.IsZero() || v.suspected {
			continue
		}
		s.servers++
		if v.deadline.Add(quiet - silent).Before(now) {
			s.quiet++
		}
	}
	if s.blind = s.quiet >= blindFrom && 2*s.quiet >= s.servers; s.blind {
		term := max(silent, lease)
		if !c.blind || s.quiet == s.servers && now.Sub(c.renewed) > term {
			c.blindSince = now // it begins, or the manager receives no calls at all
		}
		s.blind = now.Sub(c.blindSince) <= blindTerms*term
	}
	c.blind, s.changed = s.blind, s.blind != c.blind
	for _, v := range c.vms {
		if v.deadline.IsZero() || !v.deadline.Before(now) {
			continue
		}
		v.silent = true
		c.list(v)
		switch l := (loss{v, fmt.Sprintf("no heartbeat for %v", silent)}); {
		case s.blind:
		case v.lent == 0 && len(s.lost) < max(1, s.servers/lostShare):
			s.lost = append(s.lost, l)
		case v.lent == 0: // in one of the next checks
		case !v.suspected:
			v.suspected = true
			c.notify(v, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_SUSPECTED, Reason: l.reason})
			s.suspected = append(s.suspected, l)
		}
	}
	for _, all := range [][]loss{s.lost, s.suspected} {
		slices.SortFunc(all, func(a, b loss) int { return cmp.Compare(a.vm.id, b.vm.id) })
	}
	return s, nil
}

// heard postpones the deadline of a server that called. It ends its suspicion, and tells its
// caches. Called under mu.
func (c *state) heard(v *vm, deadline time.Time) {
	silent := v.silent
	v.deadline, v.silent, v.called = deadline, false, true
	if silent {
		c.list(v)
	}
	if !v.suspected {
		return
	}
	v.suspected = false
	for _, ca := range c.users(v) {
		ca.log.remove(func(e event) bool {
			return e.vm == v && e.message.GetKind() == managerv1.WatchResponse_KIND_VM_SUSPECTED
		})
		c.tell(ca, v, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_TRUSTED, VmId: v.id, Start: v.Start})
	}
}

// prolong restarts the leases of all caches: a manager that does not receive heartbeats
// may not receive renewals either.
func (c *state) prolong(t term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ca := range c.caches {
		ca.extend(t)
	}
}

// listen is one step of monitor. It returns the servers that have failed, and whether the
// manager is blind.
func (l *leader) listen(now time.Time) (lost []loss, blind bool) {
	s, err := l.state.listen(now, l.opts.Heartbeat, l.opts.Silence, l.opts.Lease)
	switch {
	case err != nil:
		return nil, true // the leader ends, as the catalog does
	case s.changed && s.blind:
		l.counts.note(func(n *Metrics) { n.Blinded++ })
		l.opts.Logger.Error("at least half of the servers fell silent together: the manager is blind, and treats none as lost",
			"silent", s.quiet, "servers", s.servers)
	case s.changed:
		l.opts.Logger.Info("the manager is not blind any more", "silent", s.quiet, "servers", s.servers)
	}
	for _, v := range s.suspected {
		l.counts.note(func(n *Metrics) { n.Suspected++ })
		l.opts.Logger.Warn("server is suspected", "vm", v.vm.id, "reason", v.reason)
	}
	if s.blind {
		l.state.prolong(l.term())
	}
	return s.lost, s.blind
}
