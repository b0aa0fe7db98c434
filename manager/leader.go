package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
)

// leader is a manager's work during one term, in which it alone changes the catalog. When the
// term ends the leader ends with all that it has in memory; the next one starts from the
// catalog.
type leader struct {
	*Manager
	office  catalog.Term
	state   *state
	earlier *catalogv1.Setting // as an earlier leader stored it
	keys    keys               // of the reconcilers
	steps   steps              // under way
	self    controltoken.Incarnation
	signs   controltoken.SourceKey       // the sources of pulls
	alive   *managerv1.HeartbeatResponse // to all heartbeats
	renewed *managerv1.RenewResponse     // to renewals by the present lease
	auditor auditor
	wake    chan struct{} // capacity 1: tells monitor that there may be an earlier deadline
	better  chan struct{} // capacity 1: tells mover that offers have become better
	taken   chan struct{} // capacity 1: tells warmer that a pool may lack a VM
	breach  chan struct{} // capacity 1: tells keeper that there are caches to consider

	calibrating sync.Mutex // held by the calibration that is under way

	ctx    context.Context // ends with the term
	cancel context.CancelCauseFunc

	// work counts the calls that change something, and the loops. It is increased under
	// Manager.mu while the leader is the manager's, so that end can wait for it.
	work    sync.WaitGroup
	writing sync.WaitGroup // the writer, which ends last
}

// ErrStateAddress is the error of a state directory whose caches and servers call a
// manager at another address: they would lose it.
var ErrStateAddress = errors.New("state directory is that of a manager at another address")

// campaign waits until the manager leads, and begins to lead.
func (m *Manager) campaign(ctx context.Context) (*leader, error) {
	t, err := m.store.Campaign(ctx, m.URL())
	if err != nil {
		return nil, err
	}
	l, err := m.begin(t)
	if err != nil {
		return nil, errors.Join(err, resign(t))
	}
	return l, nil
}

// resign ends a term, so that the next candidate need not wait for its lease.
func resign(t catalog.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	return t.Resign(ctx)
}

// errVMs is the error of an allocator that does not tell which VMs run.
var errVMs = errors.New("VMs of an earlier manager are not known")

// restorePause is the pause after errVMs.
const restorePause = time.Second

// run leads again and again until the manager closes or its catalog fails. l is the first
// leader; nil: there is none yet.
func (m *Manager) run(l *leader) {
	for {
		if l == nil {
			var err error
			l, err = m.campaign(m.ctx)
			switch {
			case m.ctx.Err() != nil:
				return
			case errors.Is(err, catalog.ErrNotLeader), errors.Is(err, catalog.ErrUnavailable):
				m.opts.Logger.Warn("manager does not lead", "err", err)
				l = nil
				continue
			case errors.Is(err, errVMs), errors.Is(err, errStuck): // another manager may have more luck, or this one later
				m.opts.Logger.Warn("manager does not lead", "err", err)
				l = nil
				clock.Sleep(m.ctx, restorePause)
				continue
			case err != nil:
				m.broken(err)
				return
			}
		}
		<-l.ctx.Done()
		m.mu.Lock()
		m.leader = nil
		m.mu.Unlock()
		l.end()
		m.goesOn()
		if m.ctx.Err() == nil {
			m.opts.Logger.Warn("manager leads no more", "err", context.Cause(l.ctx))
		}
		l = nil
	}
}

// begin begins to lead with what the catalog has: caches begin a new lease, servers have to
// send a heartbeat within Silence, and launched VMs that do not run any more fail.
func (m *Manager) begin(t catalog.Term) (_ *leader, err error) {
	l := &leader{Manager: m, office: t, keys: newKeys(), wake: make(chan struct{}, 1), better: make(chan struct{}, 1), taken: make(chan struct{}, 1), breach: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(m.ctx)
	l.steps.since = make(map[string]time.Duration)
	l.steps.progress(takeover)
	w := newWriter(t, m.counts.commits.add, l.cancel, m.opts.Logger.Warn)
	l.state = newState(w, l.keys.add)
	l.state.watch = m.opts.SLOWatch
	l.state.learnt = single{name: learntKey, make: func() ([]byte, error) { return encoded(m.learnt()) }}
	l.work.Add(1) // of begin itself
	writing, stop := context.WithCancelCause(context.WithoutCancel(m.ctx))
	context.AfterFunc(l.ctx, func() {
		m.mu.Lock() // after this, no call enters any more
		cause := context.Cause(l.ctx)
		m.mu.Unlock()
		l.work.Wait()
		stop(cause)
	})
	l.writing.Go(func() { w.run(writing) })
	l.work.Go(l.watchdog)
	all := &contents{decisions: make(map[string]*catalogv1.Decisions), versions: make(map[string]int64)}
	if err = t.Load(l.ctx, func(r catalog.Record) error {
		l.steps.progress(takeover)
		return all.add(r)
	}); err == nil {
		err = l.restore(all)
	}
	if err == nil {
		m.mu.Lock()
		m.leader = l
		m.mu.Unlock()
		err = l.restoreVMs()
	}
	if err != nil {
		m.mu.Lock()
		m.leader = nil
		m.mu.Unlock()
		l.cancel(err)
		l.keys.shutDown()
		l.work.Done()
		l.work.Wait()
		l.writing.Wait()
		m.goesOn()
		return nil, err
	}
	l.steps.end(takeover)
	l.work.Go(l.reconcile)
	l.work.Go(l.monitor)
	if l.opts.Economy.Every > 0 {
		l.work.Go(l.mover)
	}
	if l.opts.Allocator != nil {
		l.work.Go(l.warmer)
	}
	if l.opts.Calibrate != nil {
		l.work.Go(l.calibrator)
	}
	if l.opts.SLOWatch == Correct && !l.opts.byHand {
		l.work.Go(l.keeper)
	}
	l.work.Done()
	return l, nil
}

// end waits until a leader whose context has ended has stopped, and resigns.
func (l *leader) end() {
	l.work.Wait()
	l.writing.Wait()
	if err := resign(l.office); err != nil && !errors.Is(err, catalog.ErrNotLeader) {
		l.opts.Logger.Warn("leader has not resigned: the next one waits for its lease", "err", err)
	}
}

// restore takes over what an earlier leader has stored.
func (l *leader) restore(all *contents) error {
	epoch := max(all.epoch+1<<20, uint64(time.Now().UnixMicro()))
	l.self = controltoken.Incarnation{Epoch: epoch, ID: rand.Text(), Bound: max(l.opts.Silence, l.opts.Lease)}
	l.alive = &managerv1.HeartbeatResponse{Incarnation: l.incarnation()}
	l.renewed = &managerv1.RenewResponse{LeaseMs: l.term().lease.Milliseconds()}
	l.state.setting = single{name: settingKey, make: func() ([]byte, error) { return encoded(l.setting()) }}
	for _, s := range []*single{&l.state.setting, &l.state.learnt} {
		s.version = all.versions[s.name]
	}
	// The epoch is written before it is used, and is at least the present time, so that a
	// manager without the earlier catalog has a higher one.
	e := &single{name: epochKey, make: func() ([]byte, error) { return binary.BigEndian.AppendUint64(nil, epoch), nil }}
	e.version = all.versions[epochKey]
	if err := l.state.put(e); err != nil {
		return err
	}
	if err := l.state.load(all, l.term(), l.nextBeat(), epoch); err != nil {
		return err
	}
	l.relearn(&all.learnt)
	l.earlier = &all.setting
	l.state.nameRegion(l.cloudRegion())
	if all.launchKey == "" {
		all.launchKey = rand.Text() + rand.Text()
		key := &single{name: tokenKey, make: func() ([]byte, error) { return []byte(all.launchKey), nil }}
		if err := l.state.put(key); err != nil {
			return err
		}
	}
	l.guard.SetLaunchKey(all.launchKey)
	l.signs = controltoken.NewSourceKey(all.launchKey)
	caches, vms := l.state.size()
	if l.durable {
		l.opts.Logger.Info("manager leads", "epoch", epoch, "caches", caches, "vms", vms)
	}
	return nil
}

// restoreVMs takes over the launched VMs that run. Others fail, and those of earlier managers
// that the catalog does not know end.
func (l *leader) restoreVMs() error {
	lent, idle := l.state.launchedIDs()
	var running []string
	if r, ok := l.opts.Allocator.(allocator.Restorer); ok {
		ctx, cancel := context.WithTimeout(l.ctx, l.opts.LaunchTimeout)
		defer cancel()
		var err error
		if running, err = r.Restore(ctx, l.self.Epoch, lent, idle); err != nil {
			return fmt.Errorf("%w: %w", errVMs, err)
		}
	}
	l.state.restored(running)
	runs := make(map[string]bool, len(running))
	for _, id := range running {
		runs[id] = true
	}
	for _, id := range slices.Concat(lent, idle) {
		if !runs[id] && l.state.up(id) != nil {
			l.fail(id, nil, "ended while there was no manager")
		}
	}
	return nil
}

// restored notes the launched VMs that run.
func (c *state) restored(running []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range running {
		if v := c.vms[id]; v != nil {
			v.launching = true
		}
	}
}

// errUnusable is the error of a catalog that needs an operator.
var errUnusable = errors.New("catalog cannot be used")

// broken ends the manager because its catalog cannot be used.
func (m *Manager) broken(err error) {
	m.cancel(fmt.Errorf("%w: %w", errUnusable, err))
	go func() { _ = m.http.Close() }() // so that Serve returns
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

// setting returns this manager's setting.
func (m *Manager) setting() *catalogv1.Setting {
	return &catalogv1.Setting{
		Url: m.URL(), Transport: m.opts.Transport, Allocator: m.opts.Allocator != nil, CloudRegion: m.cloudRegion(),
	}
}

// keepSetting stores this manager's setting, and warns of differences from the earlier one's
// that affect its servers and clients. Another address is an ErrStateAddress, unless
// Options.Moved is set, as they would all be lost.
func (l *leader) keepSetting() error {
	was, is := l.earlier, l.setting()
	if proto.Equal(was, is) {
		return nil
	}
	caches, vms := l.state.size()
	if then := was.GetUrl(); then != "" && then != is.GetUrl() && caches+vms > 0 && !l.opts.Moved && !l.store.Shared() {
		return fmt.Errorf("%w: its caches (%d) and VMs (%d) call %s, and this one is at %s", ErrStateAddress, caches, vms, then, is.GetUrl())
	}
	if was.GetTransport() != "" { // it is not a new state directory
		warn := func(what, then, now string) {
			if then != now {
				l.opts.Logger.Warn("the state directory was used with another "+what, "directory", l.opts.State, "then", then, "now", now)
			}
		}
		warn("address: earlier servers and clients still call it", was.GetUrl(), is.GetUrl())
		warn("transport: earlier caches keep theirs", was.GetTransport(), is.GetTransport())
		warn("cloud region: earlier caches keep theirs", was.GetCloudRegion(), is.GetCloudRegion())
		if was.GetAllocator() && !is.GetAllocator() {
			l.opts.Logger.Warn("the state directory was used with an allocator, and there is none now: its VMs count as failed, and are not terminated", "directory", l.opts.State)
		}
	}
	return l.state.put(&l.state.setting)
}

// incarnation returns this leader's incarnation as a message.
func (l *leader) incarnation() *managerv1.Incarnation {
	return &managerv1.Incarnation{Epoch: l.self.Epoch, Id: l.self.ID, BoundMs: l.self.Bound.Milliseconds()}
}

// notLeader is the error of calls of a manager that does not lead.
func (m *Manager) notLeader() error {
	reason := errors.New("this manager stands by")
	if bad := m.store.Trouble(); bad != nil {
		reason = fmt.Errorf("%w: %w", reason, bad)
	}
	err := connect.NewError(connect.CodeUnavailable, reason)
	if d, e := connect.NewErrorDetail(&managerv1.NotLeaderDetail{LeaderUrl: m.store.Leader()}); e == nil {
		err.AddDetail(d)
	}
	return err
}

// leading returns the manager's leader. It fails if the manager does not lead, or closes.
func (m *Manager) leading() (*leader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present()
}

// present is leading, called under mu.
func (m *Manager) present() (*leader, error) {
	switch {
	case m.closed:
		return nil, errClosing
	case m.ctx.Err() != nil: // the catalog cannot be used
		return nil, api.Refuse(connect.CodeUnavailable, context.Cause(m.ctx))
	case m.leader == nil || m.leader.ctx.Err() != nil:
		return nil, m.notLeader()
	}
	return m.leader, nil
}

// join begins work for the leader, whose work.Done ends it.
func (m *Manager) join() (*leader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.present()
	if err == nil {
		l.work.Add(1)
	}
	return l, err
}

// enter begins a call that changes something, and leave ends it. The returned context ends
// with the leader.
func (m *Manager) enter(ctx context.Context) (_ *leader, _ context.Context, leave func(), err error) {
	l, err := m.join()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return l, ctx, func() {
		stop()
		cancel(nil)
		l.work.Done()
	}, nil
}
