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

// open creates the manager's state. With a state directory it restores that of the earlier
// manager: caches begin a new lease, servers have to send a heartbeat within Silence, and
// launched VMs that do not run any more fail.
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
		if s, err = catalog.OpenOldPebble(m.opts.State, m.opts.Logger, m.broken); err != nil {
			return err
		}
	}
	m.state.store = s
	if err := m.restore(); err != nil {
		m.shut() // the allocator may call the manager
		m.work.Wait()
		return errors.Join(err, s.Close())
	}
	return nil
}

// broken ends the manager because its catalog cannot be written. It may be called under
// state.mu.
func (m *Manager) broken(err error) {
	if !errors.Is(err, errStore) {
		err = fmt.Errorf("%w: %w", errStore, err)
	}
	m.cancel(connect.NewError(connect.CodeUnavailable, err))
	go func() { _ = m.http.Close() }() // so that Serve returns
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
			m.fail(id, nil, "ended while there was no manager")
		}
	}
	caches, vms := m.state.size()
	m.opts.Logger.Info("catalog read", "directory", m.opts.State, "caches", caches, "vms", vms)
	return nil
}

// nameRegion sets the cloud region of caches and launched VMs that have none.
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

// keepToken takes over the earlier manager's key for tokens of launched servers, or stores
// this manager's.
func (m *Manager) keepToken() error {
	if token := m.state.earlier.LaunchKey; token != "" {
		m.guard.LaunchKey = token
		return nil
	}
	changes := catalog.Changes{}
	changes.LaunchKey(m.guard.LaunchKey)
	return m.state.store.Apply(changes)
}

// keepSetting stores this manager's setting, and warns of differences from the earlier one's
// that affect its servers and clients. Another address is an ErrStateAddress, unless
// Options.Moved is set, as they would all be lost.
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
	if was.GetTransport() != "" { // it is not a new state directory
		warn := func(what, then, now string) {
			if then != now {
				m.opts.Logger.Warn("the state directory was used with another "+what, "directory", m.opts.State, "then", then, "now", now)
			}
		}
		warn("address: earlier servers and clients still call it", was.GetUrl(), is.GetUrl())
		warn("transport: earlier caches keep theirs", was.GetTransport(), is.GetTransport())
		warn("cloud region: earlier caches keep theirs", was.GetCloudRegion(), is.GetCloudRegion())
		if was.GetAllocator() && !is.GetAllocator() {
			m.opts.Logger.Warn("the state directory was used with an allocator, and there is none now: its VMs count as failed, and are not terminated", "directory", m.opts.State)
		}
	}
	changes := catalog.Changes{}
	if err := changes.Setting(is); err != nil {
		return err
	}
	return c.store.Apply(changes)
}

// beginEpoch sets this run's incarnation, by which servers distinguish it from earlier runs
// and from a manager with a copy of its state. The epoch is stored before it is used. It is
// at least the present time, so that a manager without the earlier state has a higher one.
func (m *Manager) beginEpoch() error {
	c := m.state
	last := uint64(0)
	if c.earlier != nil {
		last = c.earlier.Epoch
	}
	m.self = controltoken.Incarnation{
		Epoch: max(last+1, uint64(time.Now().UnixMicro())), ID: rand.Text(), Bound: max(m.opts.Silence, m.opts.Lease),
	}
	c.epoch = m.self.Epoch
	if c.store == nil {
		return nil
	}
	changes := catalog.Changes{}
	changes.Epoch(m.self.Epoch)
	return c.store.Apply(changes)
}

// incarnation returns this run's incarnation as a message.
func (m *Manager) incarnation() *managerv1.Incarnation {
	return &managerv1.Incarnation{Epoch: m.self.Epoch, Id: m.self.ID, BoundMs: m.self.Bound.Milliseconds()}
}
