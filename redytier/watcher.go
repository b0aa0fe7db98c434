package redytier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// EventKind says what happened to a cache.
type EventKind int

// Kinds of events.
const (
	// VMLost: a VM is gone and its addresses answer with ErrRegionUnavailable.
	VMLost EventKind = iota + 1
	// VMReclaimed: a VM will be gone at Deadline; its regions move before.
	VMReclaimed
	// VMLeft: the addresses have moved away from a VM, with all they hold.
	VMLeft
	// Restored: addresses that were lost answer again. They hold what Config.File
	// or Config.Recover had for them; else zeros, and DataLost is set (A46).
	Restored
	// CacheDeleted: the manager has taken the cache away, or was restarted without its
	// state and does not know it. What still answers goes on, but for a device's cache,
	// all of which is lost. When nothing answers any more, the cache is allocated anew,
	// as soon as that can be done, and Restored follows.
	CacheDeleted
	// DataLost: nobody has a copy of what was at addresses that are lost. They will be
	// zeros, but answer with ErrRegionUnavailable until OnEvent has returned (A46).
	DataLost
)

// String names the kind as logs print it.
func (k EventKind) String() string {
	switch k {
	case VMLost:
		return "VM lost"
	case VMReclaimed:
		return "VM reclaimed"
	case VMLeft:
		return "VM left"
	case Restored:
		return "restored"
	case CacheDeleted:
		return "cache deleted"
	case DataLost:
		return "data lost"
	}
	return fmt.Sprintf("event %d", int(k))
}

// Event is something that happened to a cache. From and To are the addresses
// concerned; where they are several runs, there is an event for each.
type Event struct {
	Kind     EventKind
	VM       string
	From, To int64
	Deadline time.Time // of VMReclaimed
	Err      error     // why, of VMLost
	DataLost bool      // of Restored
	Epoch    uint64    // of the regions: see RegionInfo
}

// Pauses between attempts to reach a manager that does not answer.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// watcher keeps the cache's lease, learns from the manager what happens to the
// cache's VMs, and tells the application. The data path does not need the manager
// (A34): while it is gone the watcher tries again, and lost VMs are noticed by
// their connections.
type watcher struct {
	cache   *Cache
	running sync.WaitGroup

	mu     sync.Mutex
	over   bool
	queue  []notification
	queued chan struct{} // holds a token while there is something in queue, or over is set
}

// notification is an event to be delivered. told, if there is one, is closed afterwards.
type notification struct {
	Event
	told chan<- struct{}
}

func newWatcher(c *Cache) *watcher { return &watcher{cache: c, queued: make(chan struct{}, 1)} }

func (w *watcher) start(onEvent func(Event)) {
	w.running.Go(func() { w.deliver(onEvent) })
}

// report passes an event on unless the watcher is stopped. It never blocks.
func (w *watcher) report(e Event) { w.add(notification{Event: e}) }

// reportAll reports events, one at least, and returns when they are delivered or ctx ends.
func (w *watcher) reportAll(ctx context.Context, events []Event) error {
	told := make(chan struct{})
	for i, e := range events {
		n := notification{Event: e}
		if i == len(events)-1 {
			n.told = told
		}
		w.add(n)
	}
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watcher) add(n notification) {
	w.mu.Lock()
	if !w.over {
		w.queue = append(w.queue, n)
	}
	w.mu.Unlock()
	offer(w.queued)
}

// deliver delivers what is reported.
func (w *watcher) deliver(onEvent func(Event)) {
	for range w.queued {
		w.mu.Lock()
		queue, over := w.queue, w.over
		w.queue = nil
		w.mu.Unlock()
		for _, n := range queue {
			w.log(n.Event)
			if onEvent != nil {
				onEvent(n.Event)
			}
			if n.told != nil {
				close(n.told)
			}
		}
		if over {
			return
		}
	}
}

// log says what an operator should know of an event. A loss is logged where it is
// found, with its cause.
func (w *watcher) log(e Event) {
	log := w.cache.log.With("from", e.From, "to", e.To)
	switch e.Kind {
	case VMReclaimed:
		log.Info("VM is reclaimed: its regions move", "vm", e.VM, "deadline", e.Deadline)
	case VMLeft:
		log.Info("regions have moved away from a VM", "vm", e.VM)
	case Restored:
		log.Info("regions have memory again", "zeros", e.DataLost)
	case DataLost:
		log.Warn("nobody has a copy of what was lost: it will be zeros")
	case CacheDeleted:
		w.cache.log.Warn("the manager does not know the cache any more")
	}
}

// stop returns when all that was reported has been delivered. The cache's context
// has ended before.
func (w *watcher) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	offer(w.queued)
	w.running.Wait()
}

// renew keeps the cache's lease (A33), and tells the manager of the present table
// where that failed before.
func (w *watcher) renew(ctx context.Context, id string, lease time.Duration) {
	for lease > 0 && clock.Sleep(ctx, lease/8+rand.N(lease/8+1)) {
		call, cancel := context.WithTimeout(ctx, max(lease/4, time.Second))
		r, err := w.cache.mgr.Renew(call, connect.NewRequest(&managerv1.RenewRequest{CacheId: id}))
		switch {
		case err == nil:
			lease = time.Duration(r.Msg.GetLeaseMs()) * time.Millisecond
		case connect.CodeOf(err) == connect.CodeNotFound:
			cancel()
			w.cache.forgotten(id)
			return
		default:
			w.cache.log.Warn("lease not renewed", "err", err)
		}
		if err == nil && w.cache.unsettled.Load() {
			w.cache.settleAgain(call)
		}
		cancel()
	}
}

// watch follows the manager's stream, and takes it up again where it breaks,
// until ctx ends or the manager does not know the cache.
func (w *watcher) watch(ctx context.Context, id string) {
	wait := firstPause
	h := streamState{cache: id, told: map[string]bool{}}
	for ctx.Err() == nil {
		heard, err := w.follow(ctx, &h)
		if connect.CodeOf(err) == connect.CodeNotFound {
			w.cache.forgotten(id)
			return
		}
		if heard {
			wait = firstPause
		}
		if !clock.Sleep(ctx, clock.Jitter(wait)) {
			return
		}
		wait = min(2*wait, longPause)
	}
}

// streamState is what a watcher has heard of the manager, over all streams: they bring
// each event at least once (A35).
type streamState struct {
	cache    string          // id
	sequence uint64          // of the last event; 0: none yet
	told     map[string]bool // VMs that are reclaimed, and when
}

// follow reads one stream to its end and says whether it brought anything.
func (w *watcher) follow(ctx context.Context, h *streamState) (heard bool, err error) {
	stream, err := w.cache.mgr.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{
		CacheId: h.cache, AfterSequence: h.sequence,
	}))
	if err != nil {
		return false, err
	}
	for stream.Receive() {
		heard = true
		w.receive(stream.Msg(), h)
	}
	return heard, errors.Join(stream.Err(), stream.Close())
}

// receive takes a message that is new. In the place of those that the manager has not
// kept comes the state of the cache: what has happened to its VMs is in there.
func (w *watcher) receive(m *managerv1.WatchResponse, h *streamState) {
	if m.Kind == managerv1.WatchResponse_KIND_STATE {
		h.sequence = m.Sequence
		for _, s := range m.State.GetGrants() {
			vm := s.GetVm()
			e := &managerv1.WatchResponse{
				VmId: vm.GetId(), DeadlineUnixMs: vm.GetDeadlineUnixMs(), LeftMs: vm.GetLeftMs(), Reason: "it has failed",
			}
			if vm.GetSuspected() {
				w.receive(&managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_SUSPECTED, VmId: vm.GetId(), Reason: "it is silent"}, h)
			}
			switch {
			case !vm.GetHealthy():
				e.Kind = managerv1.WatchResponse_KIND_VM_FAILED
			case vm.GetLeaving():
				e.Kind = managerv1.WatchResponse_KIND_VM_RECLAIMED
			}
			w.receive(e, h)
		}
		return
	}
	if m.Sequence != 0 {
		if m.Sequence <= h.sequence {
			return
		}
		h.sequence = m.Sequence
	}
	switch m.Kind {
	case managerv1.WatchResponse_KIND_CACHE_DELETED:
		w.cache.forgotten(h.cache)
		return
	case managerv1.WatchResponse_KIND_VM_RECLAIMED:
		key := fmt.Sprint(m.VmId, " ", m.DeadlineUnixMs)
		if h.told[key] {
			return
		}
		h.told[key] = true
	}
	w.apply(m)
}

func (w *watcher) apply(m *managerv1.WatchResponse) {
	c := w.cache
	t := c.table.Load()
	switch m.Kind {
	case managerv1.WatchResponse_KIND_VM_FAILED:
		for _, g := range c.grantsOf(m.VmId) {
			c.lose(g, fmt.Errorf("manager: %s", m.Reason))
		}
	case managerv1.WatchResponse_KIND_VM_SUSPECTED:
		for _, g := range c.grantsOf(m.VmId) {
			c.checkSuspected(g, fmt.Errorf("manager: %s", m.Reason))
		}
	case managerv1.WatchResponse_KIND_VM_RECLAIMED:
		deadline := deadlineOf(m)
		for _, g := range t.grants() {
			if g.vm != m.VmId {
				continue
			}
			for _, span := range t.spans(t.on(g)) {
				w.report(t.event(Event{Kind: VMReclaimed, VM: g.vm, Deadline: deadline}, span))
			}
		}
		// Even if it holds nothing yet: regions may be on their way there.
		c.keeper.reclaimed(m.VmId, deadline)
	case managerv1.WatchResponse_KIND_VM_DEAR:
		if len(m.VmIds) > 0 {
			c.keeper.cheaper(m.VmIds)
		}
	}
}

// deadlineOf is when a VM goes by the clock here, whatever the manager's says: the
// manager tells how much time is left. One of an earlier release tells only the time by
// its own clock.
func deadlineOf(m *managerv1.WatchResponse) time.Time {
	if m.LeftMs > 0 {
		return time.Now().Add(time.Duration(min(m.LeftMs, maxLeft.Milliseconds())) * time.Millisecond)
	}
	return time.UnixMilli(m.DeadlineUnixMs)
}

// maxLeft bounds what a manager says is left of a notice.
const maxLeft = 365 * 24 * time.Hour

// grantsOf lists what a VM lends to the cache, those grants included that regions
// are about to move to.
func (c *Cache) grantsOf(vm string) (grants []*grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.endpoints {
		if g := l.grant; g.vm == vm && !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	return grants
}
