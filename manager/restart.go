package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
)

// ErrStateAddress is the error of a state directory whose caches and servers call a
// manager at another address: they would lose it.
var ErrStateAddress = errors.New("state directory is that of a manager at another address")

// open makes the manager's catalog. With a state directory it is what an earlier
// manager left: caches go on with a new lease, of which their clients have time to be
// told, servers are expected to call within Silence as if they had just done so, and
// launched VMs that are not there any more are failed.
func (m *Manager) open() error {
	m.state = newState(nil, m.broken)
	m.state.learnt = m.learnt
	m.guard.LaunchKey = rand.Text() + rand.Text()
	if m.opts.State == "" && m.opts.store == nil {
		return m.beginEpoch()
	}
	s := m.opts.store
	if s == nil {
		var err error
		if s, err = catalog.OpenPebble(m.opts.State, m.opts.Logger, m.broken); err != nil {
			return err
		}
	}
	m.state.store = s
	if err := m.restore(); err != nil {
		m.shut() // the allocator has been told of the manager
		m.work.Wait()
		return errors.Join(err, s.Close())
	}
	return nil
}

// broken ends the manager, whose catalog cannot be written any more. It may be
// called under state.mu.
func (m *Manager) broken(err error) {
	if !errors.Is(err, errStore) {
		err = fmt.Errorf("%w: %w", errStore, err)
	}
	m.cancel(connect.NewError(connect.CodeUnavailable, err))
	go func() { _ = m.http.Close() }() // for Serve to return
}

func (m *Manager) restore() error {
	if err := m.state.load(m.term(), m.nextBeat()); err != nil {
		return err
	}
	if err := m.beginEpoch(); err != nil {
		return err
	}
	m.relearn(&m.state.earlier.Learnt)
	m.state.nameRegion(m.cloudRegion())
	if err := m.keepToken(); err != nil {
		return err
	}
	launched := m.state.launchedIDs()
	var running []string
	if r, ok := m.opts.Allocator.(allocator.Restorer); ok {
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
	caches, vms := m.state.size()
	m.opts.Logger.Info("catalog read", "directory", m.opts.State, "caches", caches, "vms", vms)
	return nil
}

// nameRegion says where clients and launched VMs are that no region was named for.
func (c *state) nameRegion(region string) {
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
	if token := m.state.earlier.LaunchKey; token != "" {
		m.guard.LaunchKey = token
		return nil
	}
	changes := catalog.Changes{}
	changes.LaunchKey(m.guard.LaunchKey)
	return m.state.store.Apply(changes)
}

// keepSetting says how this manager, which is served now, is unlike the one before in
// what servers and clients of that one will miss. Those who call that one at its address
// would all be lost: that is an ErrStateAddress, unless it was meant.
func (m *Manager) keepSetting() error {
	c := m.state
	c.mu.Lock()
	defer c.mu.Unlock()
	was := &c.earlier.Setting
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
	changes := catalog.Changes{}
	if err := changes.Setting(is); err != nil {
		return err
	}
	return c.store.Apply(changes)
}

// beginEpoch gives this run of the manager its name, by which servers tell it from those
// before it, and from another one on a copy of its state. The epoch is stored before any
// server hears it. It is also a time, so that a manager whose state was lost, or that has
// none, is newer than those before it.
func (m *Manager) beginEpoch() error {
	c := m.state
	last := uint64(0)
	if c.earlier != nil {
		last = c.earlier.Epoch
	}
	m.self = controltoken.Incarnation{
		Epoch: max(last+1, uint64(time.Now().UnixMicro())), ID: rand.Text(), Bound: max(m.opts.Silence, m.opts.Lease),
	}
	if c.store == nil {
		return nil
	}
	changes := catalog.Changes{}
	changes.Epoch(m.self.Epoch)
	return c.store.Apply(changes)
}

// incarnation is what servers are told.
func (m *Manager) incarnation() *managerv1.Incarnation {
	return &managerv1.Incarnation{Epoch: m.self.Epoch, Id: m.self.ID, BoundMs: m.self.Bound.Milliseconds()}
}
