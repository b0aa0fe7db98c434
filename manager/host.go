package manager

import (
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/node"
)

// host implements [allocator.Host].
type host struct{ m *Manager }

func (h host) URL() string { return h.m.URL() }
func (h host) Credentials(vm string) access.Credentials {
	a := h.m.opts.Access
	if h.m.guard.Tokens != nil {
		a.Token = h.m.guard.LaunchedToken(vm)
	}
	return a
}
func (h host) Failed(id, reason string) {
	h.whileOpen(func() { h.m.fail(id, nil, reason) })
}
func (h host) Reclaimed(id string, deadline time.Time, reason string) {
	h.whileOpen(func() {
		h.m.observe(h.m.state.up(id), true)
		_, _ = h.m.reclaim(id, deadline, reason) // an unknown VM is not an error
	})
}
func (h host) OffersChanged() { wake(h.m.better) }
func (h host) Register(v node.VM) error {
	v.Started = h.m.opts.now()
	if err := v.Check(); err != nil {
		return err
	}
	err := error(errClosing)
	h.whileOpen(func() { err = h.m.state.register(v, "", time.Time{}) })
	return err
}

// whileOpen calls do unless the manager is closing; the next manager then finds out what
// has happened to VMs.
func (h host) whileOpen(do func()) {
	h.m.mu.Lock()
	if h.m.closed {
		h.m.mu.Unlock()
		return
	}
	h.m.work.Add(1)
	h.m.mu.Unlock()
	defer h.m.work.Done()
	do()
}
