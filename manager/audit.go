package manager

import (
	"context"
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
// back. A manager whose catalog is in memory does not audit: such grants may be of caches of
// an earlier manager, which their clients still use.
type auditor struct {
	mu   sync.Mutex // held during audits
	next time.Time  // of audits
}

// stray is a grant that no cache has.
type stray struct{ cache, grant string }

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
			asking <- struct{}{}
			all.Go(func() {
				defer func() { <-asking }()
				grants, err := l.grantsOf(v)
				if err != nil {
					return // a server that has ended is found by its silence
				}
				for _, s := range l.state.audited(v.ID, grants, now, max(l.opts.Silence, l.opts.Lease)) {
					l.opts.Logger.Warn("grant without a cache is taken back", "vm", v.ID, "cache", s.cache, "grant", s.grant)
				}
			})
		}
		all.Wait()
	})
}

func (l *leader) grantsOf(v node.VM) ([]*serverv1.Grant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
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

// audited compares a server's grants with the state's, and returns the strays that leave now,
// as they were seen for long enough. A server that has no strays, and lends no more than its
// grants, can lend all its other memory.
func (c *state) audited(id string, grants []*serverv1.Grant, now time.Time, enough time.Duration) (left []stray) {
	var err error // of no use here: the leader ends if the catalog does
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil {
		return nil
	}
	held, strays := uint64(0), make(map[stray]time.Time)
	for _, l := range grants {
		held += l.GetBytes()
		s := stray{l.GetCacheId(), l.GetId()}
		if g := c.grants[grantKey(s.cache, s.grant)]; g != nil && g.vm == v {
			c.shows(g, l.GetRegions())
			continue
		}
		first, seen := v.strays[s]
		if !seen {
			first = now
		}
		strays[s] = first
		if now.Sub(first) >= enough {
			left = append(left, s)
			c.expel(v, s)
		}
	}
	if v.strays = strays; len(strays) == 0 && held <= v.reserved && v.memory < v.Memory {
		v.memory = v.Memory
		c.touch(v)
		c.list(v)
	}
	return left
}

// expel makes a stray a leaving grant, which has no memory and no record. Called under mu.
func (c *state) expel(v *vm, s stray) {
	if c.grants[grantKey(s.cache, s.grant)] != nil {
		return // it is another VM's now; both are not to be told apart by their names
	}
	g := &grant{id: s.grant, cache: s.cache, vm: v, phase: leaving, freed: make(chan struct{})}
	v.held[g] = struct{}{}
	c.grants[g.key()] = g
	c.queue(g.key())
}
