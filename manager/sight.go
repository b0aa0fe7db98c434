package manager

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file says what a manager concludes from silence. A server that misses its
// heartbeats has not ended for certain: the network between the two may be broken, or
// only the manager's end of it. So nothing is taken from anybody:
//
//   - nobody is given memory of a server that is silent;
//   - a cache that has memory there is told that the server is suspected
//     (KIND_VM_SUSPECTED). Its client decides: if it reaches the server it goes on,
//     else it replaces what it had there and settles without it;
//   - a server on which no cache has anything is given up.
//
// Where most servers fall silent together the manager suspects its own sight instead:
// it suspects no server and ends no lease until it hears enough of them again, or has heard
// others, servers or clients, for blindTerms: then those that stay silent are suspected.

// silence is what a manager finds in one look at the heartbeats.
type silence struct {
	servers   int    // that send heartbeats, and were not suspected before
	quiet     int    // of them, those that are late by now, though perhaps not silent yet
	blind     bool   // too many are quiet at once
	changed   bool   // blind is not as before
	given     []loss // silent, and of no use to any cache
	suspected []loss // silent, which their caches were told now
}

// blindFrom is the least number of servers whose silence may be the manager's own fault.
const blindFrom = 2

// blindTerms is how long a manager that hears some does not trust its sight, in multiples
// of the longer of Options.Silence and Options.Lease: within that time each of its clients
// and servers calls several times.
const blindTerms = 4

// listen looks at the heartbeats.
func (c *catalog) listen(now time.Time, heartbeat, silent, lease time.Duration) (s silence, err error) {
	// A server is quiet before it is silent, so that the first of many whose turn comes
	// is not taken for the only one.
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
			c.blindSince = now // or hears nobody at all
		}
		s.blind = now.Sub(c.blindSince) <= blindTerms*term
	}
	c.blind, s.changed = s.blind, s.blind != c.blind
	for _, v := range c.vms {
		if v.deadline.IsZero() || !v.deadline.Before(now) {
			continue
		}
		v.unheard = true
		switch l := (loss{v, fmt.Sprintf("no heartbeat for %v", silent)}); {
		case s.blind:
		case v.grants == 0:
			s.given = append(s.given, l)
		case !v.suspected:
			v.suspected = true
			c.tell(v, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_SUSPECTED, VmId: v.id, Reason: l.reason})
			s.suspected = append(s.suspected, l)
		}
	}
	for _, all := range [][]loss{s.given, s.suspected} {
		slices.SortFunc(all, func(a, b loss) int { return cmp.Compare(a.vm.id, b.vm.id) })
	}
	return s, nil
}

// heard postpones the deadline of a server that called. What its caches were told of its
// silence is void. Called under mu.
func (c *catalog) heard(v *vm, deadline time.Time) {
	v.deadline, v.unheard, v.called = deadline, false, true
	if !v.suspected {
		return
	}
	v.suspected = false
	for _, ca := range c.caches {
		if ca.holds(v) {
			c.touchCache(ca)
			ca.log.withdraw(managerv1.WatchResponse_KIND_VM_SUSPECTED, v)
		}
	}
}

// prolong begins the leases of all caches anew: a manager that hears no server may not
// hear their clients either.
func (c *catalog) prolong(t term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ca := range c.caches {
		ca.extend(t)
	}
}

// listen is one step of monitor. It returns the servers that are given up, and whether
// the manager trusts its own sight.
func (m *Manager) listen(now time.Time) (given []loss, sees bool) {
	s, err := m.catalog.listen(now, m.opts.Heartbeat, m.opts.Silence, m.opts.Lease)
	switch {
	case err != nil:
		return nil, false // the manager ends, as the store does
	case s.changed && s.blind:
		m.counts.note(func(n *Metrics) { n.Blinded++ })
		m.opts.Logger.Error("servers fell silent together: the manager does not trust its sight, and takes none for lost",
			"silent", s.quiet, "servers", s.servers)
	case s.changed:
		m.opts.Logger.Info("the manager trusts its sight again", "silent", s.quiet, "servers", s.servers)
	}
	for _, l := range s.suspected {
		m.counts.note(func(n *Metrics) { n.Suspected++ })
		m.opts.Logger.Warn("server is suspected", "vm", l.vm.id, "reason", l.reason)
	}
	if s.blind {
		m.catalog.prolong(m.term())
	}
	return s.given, !s.blind
}
