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

// An auditor compares what servers say they have lent with what the catalog says. A
// manager may end between the two: then a server holds what no cache has. It is
// taken back when it was seen for long enough. A manager without a state directory
// does not look: what it does not know may be caches of the manager before it, which
// their clients still use.
type auditor struct {
	mu     sync.Mutex // held during an audit
	next   time.Time  // of an audit
	strays map[stray]time.Time
}

// stray is a grant that no cache has, and when it was first seen is its value in
// auditor.strays.
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
			leases, err := m.leasesOf(v)
			if err != nil {
				return // a server that is gone is found by its silence
			}
			unknown := m.state.audited(v.ID, leases)
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

// takeBack ends a stray. That it is gone meanwhile is no error; where it fails, the
// next audit finds it again.
func (m *Manager) takeBack(s stray, v node.VM) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	err := m.disconnect(ctx, v, s.cache, s.grant)
	m.opts.Logger.Warn("memory taken back that no cache has", "vm", s.vm, "cache", s.cache, "grant", s.grant, "err", err)
}

func (m *Manager) leasesOf(v node.VM) ([]*serverv1.Grant, error) {
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

// maxStatus bounds the bytes of what a server says it has lent.
const maxStatus = 16 << 20

// servers lists the VMs that are up and call this manager. What others have lent, may be
// by the word of a manager that has a copy of its state.
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

// audited returns those of a server's leases that are no grants of a cache. A server
// that has none of these, nor more than caches were promised, can lend all the rest.
func (c *state) audited(id string, leases []*serverv1.Grant) (strays []stray) {
	var err error // of no use here: the manager ends if the store does
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil {
		return nil
	}
	held := uint64(0)
	for _, l := range leases {
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

// granted says whether a cache has a lease. One that is parting from it is on its
// own way to give it back. Called under mu.
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
