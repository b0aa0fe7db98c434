package manager

import (
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/manager/catalog"
)

// This file keeps what answers a late repetition of an Allocate whose cache has ended: it would
// allocate another cache, of which no client knows.

// past is what is kept of an ended cache. It has taken over the cache's record. Guarded by
// state.mu; only forgotten changes.
type past struct {
	*stored             // the cache's
	cache     string    // its id
	requestID string    // of its Allocate
	at        time.Time // when it ended, or this leader began
	forgotten bool
}

func (p *past) key() string { return cachePrefix + p.cache }

func (p *past) encode() ([]byte, error) {
	if p.forgotten {
		return nil, nil
	}
	return encoded(&catalogv1.Cache{Id: p.cache, RequestId: p.requestID, Ended: true})
}

// refusal is the error of an Allocate of the ended cache's request.
func (p *past) refusal() error {
	return fmt.Errorf("request_id %s: its cache %s %w", p.requestID, p.cache, errEnded)
}

// remember keeps what answers repetitions of an ended cache's Allocate. Called under mu.
func (c *state) remember(p *past) {
	c.ended[p.requestID] = p
	c.past = append(c.past, p)
}

// endedFor is how long an ended cache is remembered. No network and no proxy holds a call for
// longer, and clients give one up after less than a minute.
const endedFor = 5 * time.Minute

// Forgetting ended caches is put off by at most endedMore, until as many are due as one
// transaction deletes. Of more than endedMost the oldest are forgotten earlier. mu is held
// for endedBatch.
const (
	endedMore  = time.Minute
	endedMost  = 100_000
	endedBatch = 16 * catalog.MaxChanges
)

// forgetEnded forgets the caches that have ended long ago.
func (c *state) forgetEnded(now time.Time) (err error) {
	for more := true; more && err == nil; {
		more, err = c.forgetSome(now)
	}
	return err
}

// forgetSome forgets at most endedBatch ended caches. It reports whether more may be due.
func (c *state) forgetSome(now time.Time) (more bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	due := 0
	for due < min(len(c.past), endedBatch) && (now.Sub(c.past[due].at) > endedFor || len(c.past)-due > endedMost) {
		due++
	}
	if due == 0 || due < catalog.MaxChanges && now.Sub(c.past[0].at) <= endedFor+endedMore {
		return false, nil
	}
	for _, p := range c.past[:due] {
		p.forgotten = true
		delete(c.ended, p.requestID)
		c.touch(p)
	}
	c.past = c.past[due:]
	return due == endedBatch, nil
}
