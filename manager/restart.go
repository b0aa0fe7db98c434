package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
)

// open makes the manager's catalog. With a state directory it is what an earlier
// manager left: caches go on with a new lease, of which their clients have time to be
// told, servers are expected to call within Silence as if they had just done so, and
// launched VMs that are not there any more are failed.
func (m *Manager) open() error {
	m.catalog = newCatalog(nil, m.broken)
	m.catalog.learnt = m.learnt
	m.guard.own = rand.Text() + rand.Text()
	if m.opts.State == "" && m.opts.store == nil {
		return m.beginEpoch()
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
	if err := m.catalog.load(m.term(), m.nextBeat()); err != nil {
		return err
	}
	if err := m.beginEpoch(); err != nil {
		return err
	}
	m.relearn(&m.catalog.earlier.learnt)
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

// keepToken has the servers that an earlier manager launched go on with the tokens
// that it gave them.
func (m *Manager) keepToken() error {
	if token := m.catalog.earlier.token; token != "" {
		m.guard.own = token
		return nil
	}
	return m.catalog.store.apply(map[string][]byte{tokenKey: []byte(m.guard.own)})
}

// keepSetting says how this manager, which is served now, is unlike the one before in
// what servers and clients of that one will miss. Those who call that one at its address
// would all be lost: that is an ErrStateAddress, unless it was meant.
func (m *Manager) keepSetting() error {
	c := m.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	was := &c.earlier.setting
	is := &catalogv1.Setting{
		Url: m.URL(), Transport: m.opts.Transport, Allocator: m.opts.Allocator != nil, CloudRegion: m.cloudRegion(),
	}
	if proto.Equal(was, is) {
		return nil
	}
	caches, vms := len(c.caches), len(c.vms)
	if then := was.GetUrl(); then != "" && then != is.GetUrl() && caches+vms > 0 && !m.opts.Moved {
		return fmt.Errorf("%w: its caches (%d) and VMs (%d) call %s, and this one is at %s", ErrStateAddress, caches, vms, then, is.GetUrl())
	}
	if was.GetTransport() != "" { // else the state directory is new
		warn := func(what, then, now string) {
			if then != now {
				m.opts.Logger.Warn("the state directory was used with another "+what, "directory", m.opts.State, "then", then, "now", now)
			}
		}
		warn("address: servers and clients of then still call that", was.GetUrl(), is.GetUrl())
		warn("transport: caches of then keep theirs", was.GetTransport(), is.GetTransport())
		warn("cloud region: caches of then keep theirs", was.GetCloudRegion(), is.GetCloudRegion())
		if was.GetAllocator() && !is.GetAllocator() {
			m.opts.Logger.Warn("the state directory was used with an allocator, and there is none now: VMs that it has launched count as failed, and nobody ends them", "directory", m.opts.State)
		}
	}
	value, err := proto.Marshal(is)
	if err != nil {
		return err
	}
	return c.store.apply(map[string][]byte{settingKey: value})
}
