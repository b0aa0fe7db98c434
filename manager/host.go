package manager

import (
	"cmp"
	"context"
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/node"
)

// host implements [allocator.Host].
type host struct{ m *Manager }

func (h host) URL() string { return cmp.Or(h.m.opts.Managers, h.m.URL()) }
func (h host) Credentials(vm string) access.Credentials {
	a := h.m.opts.Access
	if h.m.guard.Tokens != nil {
		a.Token = h.m.guard.LaunchedToken(vm)
	}
	return a
}
func (h host) Catalog() string { return h.m.guard.Catalog() }
func (h host) Failed(id, reason string) {
	_ = h.leading(func(l *leader) error { l.fail(id, nil, reason); return nil })
}
func (h host) Reclaimed(id string, deadline time.Time, reason string) {
	_ = h.leading(func(l *leader) error {
		l.observe(l.state.up(id), true)
		_, err := l.reclaim(id, 0, deadline, reason)
		return err
	})
}
func (h host) Waiting(id, reason string) {
	_ = h.leading(func(l *leader) error {
		if v := l.state.waiting(id, reason, l.opts.now()); v != nil {
			l.keys.addAfter(v.key(), l.opts.LaunchTimeout)
		}
		return nil
	})
}
func (h host) Unreachable(id, reason string) {
	_ = h.leading(func(l *leader) error {
		if v := l.state.unheard(id); v != nil {
			l.fail(id, v, reason)
		}
		return nil
	})
}
func (h host) Placed(id string, at allocator.Place) {
	at.Distance = min(at.Distance, node.MaxDistance)
	_ = h.leading(func(l *leader) error { return l.state.placed(id, at) })
}
func (h host) OffersChanged() {
	_ = h.leading(func(l *leader) error { wake(l.better); return nil })
}
func (h host) Register(v node.VM) error {
	v.Started = h.m.opts.now()
	if err := v.Check(); err != nil {
		return err
	}
	return h.leading(func(l *leader) error { return l.state.register(v, "", time.Time{}) })
}

// leading calls do with the leader, if the manager leads; the next leader finds out what has
// happened to VMs.
func (h host) leading(do func(*leader) error) error {
	l, _, leave, err := h.m.enter(context.Background())
	if err != nil {
		return err
	}
	defer leave()
	return do(l)
}
