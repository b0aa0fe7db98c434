package manager

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/manager/node"
)

// An auditor compares the grants of servers with those of the state. They differ after a
// manager has ended between a change of one and of the other: then a server has a grant that
// no cache has, a stray. It is taken back when it was seen for long enough. A manager without
// a state directory does not audit: such grants may be of caches of an earlier manager,
// which their clients still use.
type auditor struct {
	mu     sync.Mutex // held during an audit
	next   time.Time  // of an audit
	strays map[stray]time.Time
}

// stray is a grant that no cache has. auditor.strays has the time when it was first seen.
type stray struct{ vm, cache, grant string }

// audit is one step of monitor.
func (m *Manager) audit(now time.Time) {
	a := &m.auditor
	if m.state.store == nil || !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if now.Before(a.next) {
		return
	}
	a.next = now.Add(m.opts.Silence)
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
		strays = make(map[stray]time.Time)
	)
	for _, v := range m.state.servers() {
		asking.Go(func() {
			grants, err := m.grantsOf(v)
			if err != nil {
				return // a server that has ended is found by its silence
			}
			unknown := m.state.audited(v.ID, grants)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range unknown {
				first, seen := a.strays[s]
				if !seen {
					first = now
				}
				strays[s] = first
				if now.Sub(first) >= max(m.opts.Silence, m.opts.Lease) {
					asking.Go(func() { m.takeBack(s, v) })
				}
			}
		})
	}
	asking.Wait()
	a.strays = strays
}

// takeBack takes a stray back. If it fails, the next audit finds the stray again.
func (m *Manager) takeBack(s stray, v node.VM) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	err := m.disconnect(ctx, v, s.cache, s.grant)
	m.opts.Logger.Warn("grant without a cache taken back", "vm", s.vm, "cache", s.cache, "grant", s.grant, "err", err)
}

func (m *Manager) grantsOf(v node.VM) ([]*serverv1.Grant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	client := serverv1connect.NewCacheServerServiceClient(m.servers, v.ControlURL, connect.WithReadMaxBytes(maxStatus))
	req := connect.NewRequest(&serverv1.StatusRequest{})
	v.Authorize(req.Header(), m.self)
	r, err := client.Status(ctx, req)
	if err != nil {
		return nil, err
	}
	return r.Msg.GetGrants(), nil
}

// maxStatus bounds the bytes of a server's status.
const maxStatus = 16 << 20

// servers lists the VMs that are up and have called this run of the manager. Grants of others
// may be of a manager with a copy of this one's state.
func (c *state) servers() []node.VM {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []node.VM
	for _, v := range c.vms {
		if v.ControlURL != "" && v.called {
			all = append(all, v.VM)
		}
	}
	return all
}

// audited returns the strays among a server's grants. A server that has no strays, and lends
// no more than its grants, can lend all its other memory.
func (c *state) audited(id string, grants []*serverv1.Grant) (strays []stray) {
	var err error // of no use here: the manager ends if the store does
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil {
		return nil
	}
	held := uint64(0)
	for _, l := range grants {
		held += l.GetBytes()
		if !c.granted(v, l) {
			strays = append(strays, stray{id, l.GetCacheId(), l.GetId()})
		}
	}
	if len(strays) == 0 && held <= v.reserved && v.memory < v.Memory {
		v.memory = v.Memory
		c.touchVM(v)
	}
	return strays
}

// granted reports whether a cache has a grant. A grant that is being released is not a
// cache's, and its release takes it back. Called under mu.
func (c *state) granted(v *vm, l *serverv1.Grant) bool {
	ca := c.caches[l.GetCacheId()]
	if ca == nil {
		return false
	}
	for _, s := range ca.all() {
		if s.vm == v && s.id == l.GetId() {
			return true
		}
	}
	return false
}
