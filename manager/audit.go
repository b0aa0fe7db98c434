package manager

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/node"
)

// An audit compares the grants of a server, and their amounts, with those of the state. They differ
// after a leader has ended between a change of one and of the other: then a server has a grant that no
// cache has, a stray. A stray that was seen for long enough leaves, as any other grant that is taken
// back, if the catalog knows or has known its cache and has given it the grant, or if its client is
// silent. Any other may have been given by a leader with another catalog, as this one is empty, an older
// copy or another one: its client uses it, so it stays lent until the cache is adopted, or an
// operator deallocates it. A manager whose catalog is in memory does not audit.
type auditor struct {
	mu   sync.Mutex // held during audits
	next time.Time  // of audits
}

// stray is a grant that no cache has.
type stray struct{ cache, grant string }

// sighting is what audits have seen of a stray.
type sighting struct {
	first time.Time
	stays bool // it was seen for long enough, and its client uses it
}

// auditRate bounds the audits a second: an audit is a call of a server.
const auditRate = 50

// audit is one step of monitor: it begins the audits that are due. Each server is audited
// soon after the leader began, and then in turn.
func (l *leader) audit(now time.Time) {
	a := &l.auditor
	if !l.durable || !a.mu.TryLock() {
		return
	}
	if now.Before(a.next) {
		a.mu.Unlock()
		return
	}
	due := l.state.auditDue(now, l.opts.Silence)
	a.next = now.Add(min(l.opts.Silence, time.Second))
	l.work.Go(func() {
		defer a.mu.Unlock()
		asking := make(chan struct{}, 8)
		var all sync.WaitGroup
		for i, v := range due {
			if i > 0 && i%auditRate == 0 && !clock.Sleep(l.ctx, time.Second) {
				break
			}
			select {
			case asking <- struct{}{}:
			case <-l.ctx.Done():
			}
			if l.ctx.Err() != nil {
				break
			}
			all.Go(func() {
				defer func() { <-asking }()
				grants, err := l.grantsOf(l.ctx, v)
				if err != nil {
					return // a server that has ended is found by its silence
				}
				left, stay := l.state.audited(v.ID, grants, now, max(l.opts.Silence, l.opts.Lease))
				for _, s := range left {
					l.opts.Logger.Warn("grant without a cache is taken back", "vm", v.ID, "cache", s.cache, "grant", s.grant)
				}
				for _, s := range stay {
					l.opts.Logger.Error("a client uses memory of a cache that the catalog does not know: is it the right catalog, and not an older copy? "+
						"The memory stays lent until the cache is deallocated by hand", "vm", v.ID, "cache", s.cache, "grant", s.grant)
				}
			})
		}
		all.Wait()
	})
}

func (l *leader) grantsOf(ctx context.Context, v node.VM) ([]*serverv1.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	client := serverv1connect.NewCacheServerServiceClient(l.servers, v.ControlURL, connect.WithReadMaxBytes(maxStatus))
	req := connect.NewRequest(&serverv1.StatusRequest{})
	v.Authorize(req.Header(), l.self)
	r, err := client.Status(ctx, req)
	if err != nil {
		return nil, err
	}
	return r.Msg.GetGrants(), nil
}

// maxStatus bounds the bytes of a server's status.
const maxStatus = 16 << 20

// auditDue lists the registered servers that have called this leader and were not audited for the
// interval. Grants of others may be of a manager with a copy of this one's state.
func (c *state) auditDue(now time.Time, every time.Duration) []node.VM {
	c.mu.Lock()
	defer c.mu.Unlock()
	every = max(every, time.Duration(len(c.vms))*time.Second/auditRate)
	var all []node.VM
	for v := range pieces(c, c.vms) {
		if !v.launched && v.ControlURL != "" && v.called && !now.Before(v.audited.Add(every)) {
			v.audited = now
			all = append(all, v.VM)
		}
	}
	return all
}

// audited compares a server's grants with the state's. It returns the strays that leave now, as they
// were seen for long enough, and those that from now on stay. A server that has no strays, and lends no
// more than its grants, can lend all its other memory.
func (c *state) audited(id string, grants []*serverv1.Grant, now time.Time, enough time.Duration) (left, stay []stray) {
	var err error // of no use here: the leader ends if the catalog does
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil {
		return nil, nil
	}
	held, strays := uint64(0), make(map[stray]sighting)
	for _, l := range grants {
		held += l.GetBytes()
		s := stray{l.GetCacheId(), l.GetId()}
		if g := c.grants[grantKey(s.cache, s.grant)]; g != nil && g.vm == v {
			c.shows(g, l.GetRegions())
			continue
		}
		seen, before := v.strays[s]
		if !before {
			seen.first = now
		}
		switch {
		case now.Sub(seen.first) < enough:
		case time.Duration(l.GetSilentMs())*time.Millisecond >= enough || c.gave(s):
			seen.stays = false
			left = append(left, s)
			c.expel(v, s)
		case !seen.stays:
			seen.stays = true
			stay = append(stay, s)
		}
		strays[s] = seen
	}
	if v.strays = strays; len(strays) == 0 && held <= v.reserved && v.memory < v.Memory {
		v.memory = v.Memory
		c.touch(v)
		c.list(v)
	}
	return left, stay
}

// gave reports whether the catalog has the cache of a stray and has given it that grant, or had the cache
// not long ago. Called under mu.
func (c *state) gave(s stray) bool {
	if ca := c.caches[s.cache]; ca != nil {
		return grantNumber(s.grant) <= ca.given && grantNumber(s.grant) >= ca.adopted
	}
	return c.had(s.cache)
}

// had reports whether the catalog had a cache not long ago. Called under mu.
func (c *state) had(cache string) bool {
	return slices.ContainsFunc(c.past, func(p *past) bool { return p.cache == cache })
}

// expelAll makes the strays of a cache leave that the catalog does not know, as far as audits have seen
// them, and returns them.
func (c *state) expelAll(cache string) (left []*grant) {
	var err error // of no use here: the leader ends if the catalog does
	c.mu.Lock()
	defer c.end(&err)
	if c.caches[cache] != nil || c.had(cache) {
		return nil // audits find what servers lend to it
	}
	for v := range pieces(c, c.vms) {
		for s := range v.strays {
			if s.cache != cache {
				continue
			}
			delete(v.strays, s)
			if g := c.expel(v, s); g != nil {
				left = append(left, g)
			}
		}
	}
	return left
}

// expel makes a stray a leaving grant, which has no memory and no record. It returns nil if it does not.
// Called under mu.
func (c *state) expel(v *vm, s stray) *grant {
	if c.grants[grantKey(s.cache, s.grant)] != nil {
		return nil // it is another VM's now; both are not to be told apart by their names
	}
	g := &grant{id: s.grant, cache: s.cache, vm: v, phase: leaving, freed: make(chan struct{})}
	v.hold(g)
	c.grants[g.key()] = g
	c.queue(g.key())
	return g
}
