package manager

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
)

// This file decides what it means that leases are not renewed, where that is not the end of a client.
//
//   - A renewal that is refused for its token, which was removed, has expired or is another one, is a
//     sign of life: the client uses its memory. The lease goes on for Options.RenewalGrace from the
//     first refusal, under each leader, so that the token can be mended.
//   - If at least half of the clients are quiet together, of those whose caches do not linger, what is
//     in front of the manager may be broken: none of their leases ends, for blindTerms leases. Few clients
//     may end together, so brakeFrom have to be quiet.

// DefaultRenewalGrace is the default of Options.RenewalGrace.
const DefaultRenewalGrace = time.Hour

// brakeFrom is the minimum of quiet clients for which no lease ends.
const brakeFrom = 3

// hearRefused is an interceptor that notes renewals that are refused for their token.
func (m *Manager) hearRefused(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		r, err := next(ctx, req)
		renewal, ok := req.Any().(*managerv1.RenewRequest)
		if refusal, refused := errors.AsType[*api.TokenError](err); ok && refused {
			if l, _, leave, err := m.enter(ctx); err == nil {
				defer leave()
				l.refused(renewal, refusal)
			}
		}
		return r, err
	}
}

// refused notes a renewal that was refused for its token.
func (l *leader) refused(req *managerv1.RenewRequest, refusal error) {
	first, until := l.state.refused(req.GetCacheId(), req.GetHolder(), l.opts.RenewalGrace, l.term())
	l.counts.note(func(n *Metrics) { n.RenewalsRefused++ })
	if first {
		l.opts.Logger.Warn("renewal is refused: the cache is deallocated if that goes on", "cache", req.GetCacheId(), "kept_until", until, "err", refusal)
	}
}

// refused prolongs the lease of a cache whose client's renewal was refused, until the grace since
// the first refusal has passed. It reports whether this is the first since a renewal.
func (c *state) refused(id string, holder uint64, grace time.Duration, t term) (first bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.held(id, holder)
	if err != nil || ca.expires.IsZero() || !ca.lingers.IsZero() {
		return false, until
	}
	now := t.now()
	if first = ca.refused.IsZero(); first {
		ca.refused = now
	}
	if until = ca.refused.Add(grace); now.Before(until) {
		ca.extend(t)
	}
	return first, until
}

// brake reports whether no lease ends now, as too many clients are quiet, and whether that has
// changed.
func (c *state) brake(now time.Time, lease time.Duration) (on, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	leased, quiet := 0, 0
	for _, ca := range c.caches {
		if !ca.ready || ca.expires.IsZero() || ca.linger > 0 {
			continue // one that lingers loses nothing yet
		}
		leased++
		// A client is quiet before its lease ends, so that when the first of many leases ends, the
		// others already count.
		if ca.expires.Add(-max(ca.lease, lease) / 2).Before(now) {
			quiet++
		}
	}
	was := c.braked
	if c.braked = quiet >= brakeFrom && 2*quiet >= leased; c.braked && !was {
		c.brakedSince = now
	}
	return c.braked && now.Sub(c.brakedSince) <= blindTerms*lease, c.braked != was
}

// brake is the step of monitor that reports whether no lease ends now.
func (l *leader) brake(now time.Time) bool {
	on, changed := l.state.brake(now, max(0, l.opts.Lease))
	if on && changed {
		l.counts.note(func(n *Metrics) { n.Braked++ })
		l.opts.Logger.Error("at least half of the clients fell silent together: no lease ends for a while", "for", blindTerms*l.opts.Lease)
	}
	return on
}
