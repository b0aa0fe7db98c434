package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"
)

// open makes the manager's catalog. With a state directory it is what an earlier
// manager left: caches go on with a new lease, servers are expected to call within
// Silence as if they had just done so, and launched VMs that are not there any more
// are failed.
func (m *Manager) open() error {
	m.catalog = newCatalog(nil, m.broken)
	m.guard.own = rand.Text() + rand.Text()
	if m.opts.State == "" && m.opts.store == nil {
		return nil
	}
	s := m.opts.store
	if s == nil {
		var err error
		if s, err = openPebbleStore(m.opts.State, m.opts.Logger, m.broken); err != nil {
			return err
		}
	}
	m.catalog.store = s
	if err := m.restore(); err != nil {
		m.shut() // the allocator has been told of the manager
		m.work.Wait()
		return errors.Join(err, s.close())
	}
	return nil
}

// broken ends the manager, whose catalog cannot be written any more. It may be
// called under catalog.mu.
func (m *Manager) broken(err error) {
	if !errors.Is(err, errStore) {
		err = fmt.Errorf("%w: %w", errStore, err)
	}
	m.cancel(connect.NewError(connect.CodeUnavailable, err))
	go func() { _ = m.http.Close() }() // for Serve to return
}

func (m *Manager) restore() error {
	if err := m.catalog.load(m.opts.now(), m.expiry(), m.nextBeat()); err != nil {
		return err
	}
	m.catalog.nameRegion(m.cloudRegion())
	if err := m.keepToken(); err != nil {
		return err
	}
	launched := m.catalog.launchedIDs()
	var running []string
	if r, ok := m.opts.Allocator.(Restorer); ok {
		ctx, cancel := context.WithTimeout(m.ctx, m.opts.LaunchTimeout)
		defer cancel()
		var err error
		if running, err = r.Restore(ctx, launched); err != nil {
			return fmt.Errorf("VMs of an earlier manager: %w", err)
		}
	}
	for _, id := range launched {
		if !slices.Contains(running, id) {
			m.failID(id, "ended while there was no manager")
		}
	}
	caches, vms := m.catalog.size()
	m.opts.Logger.Info("catalog read", "directory", m.opts.State, "caches", caches, "vms", vms)
	return nil
}

// nameRegion says where clients and launched VMs are that no region was named for.
func (c *catalog) nameRegion(region string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ca := range c.caches {
		ca.demand.cloudRegion = cmp.Or(ca.demand.cloudRegion, region)
	}
	for _, v := range c.vms {
		if v.launched {
			v.CloudRegion = cmp.Or(v.CloudRegion, region)
		}
	}
}

// keepToken has the servers that an earlier manager launched go on with the token
// that it gave them.
func (m *Manager) keepToken() error {
	if m.catalog.token != "" {
		m.guard.own = m.catalog.token
		return nil
	}
	return m.catalog.store.apply(map[string][]byte{tokenKey: []byte(m.guard.own)})
}
