package redytier

import (
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/clock"
)

// A server takes memory back from a client that it does not hear for the time that its terms
// say. Sessions are connected only to the servers that they use, so this file makes the client
// heard by the others.

// keepGrants asks the servers of all grants for their status, four times as often as their terms
// demand, until the cache is deleted. A server that does not lend a grant any more has lost it.
func (c *Cache) keepGrants() {
	for clock.Sleep(c.ctx, clock.Jitter(c.keepInterval())) {
		grants := c.table.Load().connected()
		_ = forEach(len(grants), func(i int) error { // other failures are for others to find
			g := grants[i]
			if err := g.checkLent(c.ctx); connect.CodeOf(err) == connect.CodeNotFound && slices.Contains(c.table.Load().connected(), g) {
				c.lose(g, err)
			}
			return nil
		})
	}
}

// keepInterval is the time between two calls of keepGrants to a server.
func (c *Cache) keepInterval() time.Duration {
	interval := time.Minute
	for _, g := range c.table.Load().connected() {
		if keep := time.Duration(g.signed.Load().GetTerms().GetKeepMs()) * time.Millisecond; keep > 0 {
			interval = min(interval, keep/4)
		}
	}
	return max(interval, time.Second)
}
