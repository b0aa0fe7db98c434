package manager

import (
	"fmt"
	"time"

	"github.com/redykv/redykv/manager/api"
)

// A cache whose lease has ended lingers, if its client asked for that: its memory is kept and
// paid for, until another client takes it up, its client renews the lease after all, or its
// time is up. Servers keep grants for that time as well (Terms.keep_ms).

// DefaultMaxLinger is the default of Options.MaxLinger.
const DefaultMaxLinger = 24 * time.Hour

// MostLinger bounds Options.MaxLinger: servers keep grants of silent clients for 30 days at most.
const MostLinger = 29 * 24 * time.Hour

func checkLinger(ms int64) error {
	if ms < 0 || ms > mostAskedLinger.Milliseconds() {
		return fmt.Errorf("linger_ms %d: want 0 to %d", ms, mostAskedLinger.Milliseconds())
	}
	return nil
}

// mostAskedLinger bounds what a client may ask for, of which it gets Options.MaxLinger.
const mostAskedLinger = 100 * 365 * 24 * time.Hour

// grantedLinger returns how long a cache lingers for which a client has asked for ms.
func (l *leader) grantedLinger(ms int64) time.Duration {
	return min(time.Duration(ms)*time.Millisecond, l.opts.MaxLinger)
}

// lets reports whether a cache whose lease has ended lingers now. It begins to at the first
// call. Called under mu.
func (c *state) lets(ca *cache, now time.Time) bool {
	if ca.linger > 0 && ca.lingers.IsZero() {
		ca.lingers = ca.expires.Add(ca.linger)
		c.touch(ca)
	}
	return now.Before(ca.lingers)
}

// lingers returns when a loaded cache has lingered; zero: it does not linger. The earlier
// leader's clock may have been ahead of this one.
func (l *loader) lingers(ca *cache, unixMs int64) time.Time {
	at := api.FromMillis(unixMs)
	if latest := l.now.Add(ca.linger); at.After(latest) {
		l.c.touch(ca) // so that the next leader does not begin the time anew
		return latest
	}
	return at
}
