package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// EventKind is the kind of an Event.
type EventKind int

// Kinds of events.
const (
	// VMLost: a VM is gone, and its addresses answer with ErrRegionUnavailable.
	VMLost EventKind = iota + 1
	// VMReclaimed: a VM will be gone at Deadline; its regions move away before.
	VMReclaimed
	// VMLeft: the addresses have moved away from a VM, with their bytes.
	VMLeft
	// Restored: lost addresses answer again. They hold what Config.File or
	// Config.Recover provided; else zeros, and DataLost is set (A46).
	Restored
	// CacheDeleted: the manager has deallocated the cache, or was restarted without its
	// state and has not adopted the cache. The cache's memory is used until some of it is lost, but a device's cache
	// loses all of it at once. The cache is then allocated again as soon as possible:
	// regions that still answer move, with VMLeft, and Restored follows for the others.
	CacheDeleted
	// CacheTaken: another client has taken the cache up. All of its addresses answer with
	// ErrRegionUnavailable and ErrTaken from now on.
	CacheTaken
	// DataLost: there is no copy of the bytes at lost addresses. They will be zeros, but
	// answer with ErrRegionUnavailable until OnEvent has returned (A46).
	DataLost
)

// String names the kind as logs print it.
func (k EventKind) String() string {
	names := [...]string{"VM lost", "VM reclaimed", "VM left", "restored", "cache deleted", "cache taken", "data lost"}
	if k < VMLost || k > DataLost {
		return fmt.Sprintf("event %d", int(k))
	}
	return names[k-VMLost]
}

// Event reports something that happened to a cache, at the addresses from From to To-1.
// Addresses that are not contiguous get an event each.
type Event struct {
	Kind     EventKind
	VM       string
	From, To int64
	Deadline time.Time // of VMReclaimed
	Err      error     // of VMLost: the cause
	DataLost bool      // of Restored
	Epoch    uint64    // of the regions: see RegionInfo
}

// Pauses between attempts that fail.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// watcher renews the cache's lease, receives the manager's events about the cache's VMs, and
// delivers events to the application. The data path does not need the manager (A34): while
// it does not answer, the watcher retries, and connections detect lost VMs.
type watcher struct {
	cache   *Cache
	running sync.WaitGroup
	stream  atomic.Pointer[context.CancelFunc] // ends the current stream of events

	mu     sync.Mutex     // guards over and queue
	over   bool           // stopped
	queue  []notification // not delivered yet
	queued chan struct{}  // holds a token while queue is not empty or over is set
}

// notification is an event to deliver. delivered, if set, is closed afterwards.
type notification struct {
	Event
	delivered chan<- struct{}
}

func newWatcher(c *Cache) *watcher { return &watcher{cache: c, queued: make(chan struct{}, 1)} }

// report queues an event unless the watcher is stopped. It never blocks.
func (w *watcher) report(e Event) { w.add(notification{Event: e}) }

// reportAll reports events, at least one, and returns when they are delivered or ctx ends.
func (w *watcher) reportAll(ctx context.Context, events []Event) error {
	delivered := make(chan struct{})
	for i, e := range events {
		n := notification{Event: e}
		if i == len(events)-1 {
			n.delivered = delivered
		}
		w.add(n)
	}
	select {
	case <-delivered:
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

// deliver calls onEvent for reported events.
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
			if n.delivered != nil {
				close(n.delivered)
			}
		}
		if over {
			return
		}
	}
}

// log logs an event. Losses are logged where they are found, with their cause.
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
		log.Warn("there is no copy of lost memory: it will be zeros")
	case CacheDeleted:
		w.cache.log.Warn("the manager does not know the cache")
	case CacheTaken:
		w.cache.log.Warn("another client has taken the cache up")
	}
}

// stop waits until all events are delivered. The cache's context must have ended.
func (w *watcher) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	offer(w.queued)
	w.running.Wait()
}

// renew renews the cache's lease (A33), and reports what the cache gives. After a failure it tries
// again soon, and has the stream of events opened again: a connection may be dead although nothing
// says so.
func (w *watcher) renew(ctx context.Context, id string, holder uint64, lease time.Duration) {
	for wait := time.Duration(0); lease > 0 && clock.Sleep(ctx, cmp.Or(wait, lease/6+rand.N(lease/12+1))); {
		wait = 0
		call, cancel := context.WithTimeout(ctx, max(lease/4, time.Second))
		some := w.cache.windows.waiting(time.Now())
		r, err := w.cache.mgr.Renew(call, connect.NewRequest(&managerv1.RenewRequest{CacheId: id, Holder: holder, Windows: some, Answered: w.cache.answered.Load()}))
		if err = w.cache.heed(err); errors.Is(err, ErrTaken) {
			cancel()
			return
		}
		switch {
		case err == nil:
			lease = time.Duration(r.Msg.GetLeaseMs()) * time.Millisecond
			w.cache.lease.Store(int64(lease))
			w.cache.windows.received(some)
		case connect.CodeOf(err) == connect.CodeInvalidArgument && len(some) > 0: // the lease matters more
			w.cache.log.Warn("the manager refuses what was measured: it is left out", "err", err)
			w.cache.windows.received(some)
			wait = 1
		case connect.CodeOf(err) == connect.CodeNotFound:
			if !w.cache.adopted(id) {
				cancel()
				return
			}
			lease, wait = time.Duration(w.cache.lease.Load()), clock.Jitter(firstPause)
		case connect.CodeOf(err) == connect.CodeAborted:
			w.cache.renewed(id)
			wait = clock.Jitter(time.Second)
		default:
			w.cache.log.Warn("lease not renewed", "err", err)
			wait = clock.Jitter(min(5*time.Second, lease/8))
			w.restart()
		}
		cancel()
	}
}

// watch follows the manager's stream of events, and reconnects, until ctx ends or the manager
// does not know the cache.
func (w *watcher) watch(ctx context.Context, id string, holder uint64) {
	wait := firstPause
	h := streamState{cache: id, holder: holder, notices: map[string]bool{}}
	for ctx.Err() == nil {
		stream, cancel := context.WithCancel(ctx)
		w.stream.Store(&cancel)
		heard, err := w.follow(stream, &h)
		cancel()
		switch err = w.cache.heed(err); {
		case errors.Is(err, ErrTaken):
			return
		case connect.CodeOf(err) == connect.CodeNotFound:
			if !w.cache.adopted(id) {
				return
			}
		case connect.CodeOf(err) == connect.CodeAborted:
			w.cache.renewed(id)
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

// restart ends the current stream of events, which watch opens again.
func (w *watcher) restart() {
	if cancel := w.stream.Load(); cancel != nil {
		(*cancel)()
	}
}

// streamState is what the watcher has received, over all streams: each event comes at least
// once (A35).
type streamState struct {
	cache    string          // id
	holder   uint64          // this client
	sequence uint64          // of the last event; 0: none yet
	notices  map[string]bool // received, by VM and deadline
}

// follow reads one stream to its end and reports whether it brought a message.
func (w *watcher) follow(ctx context.Context, h *streamState) (heard bool, err error) {
	stream, err := w.cache.mgr.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{
		CacheId: h.cache, AfterSequence: h.sequence, Holder: &h.holder,
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

// receive handles a message unless it is old. A message with the state of the cache replaces
// those that the manager has not kept.
func (w *watcher) receive(m *managerv1.WatchResponse, h *streamState) {
	if m.Kind == managerv1.WatchResponse_KIND_STATE {
		h.sequence = m.Sequence
		for _, s := range m.State.GetGrants() {
			vm := s.GetVm()
			e := &managerv1.WatchResponse{
				VmId: vm.GetId(), Start: vm.GetStart(), DeadlineUnixMs: vm.GetDeadlineUnixMs(), LeftMs: vm.GetLeftMs(), Reason: "it has failed",
			}
			sight := &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_TRUSTED, VmId: vm.GetId(), Start: vm.GetStart()}
			if vm.GetSuspected() {
				sight.Kind, sight.Reason = managerv1.WatchResponse_KIND_VM_SUSPECTED, "it is silent"
			}
			w.receive(sight, h)
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
		if h.notices[key] {
			return
		}
		h.notices[key] = true
	}
	w.apply(m)
}

func (w *watcher) apply(m *managerv1.WatchResponse) {
	c := w.cache
	t := c.table.Load()
	switch m.Kind {
	case managerv1.WatchResponse_KIND_VM_FAILED:
		for _, g := range c.grantsOf(m) {
			c.lose(g, fmt.Errorf("manager: %s", m.Reason))
		}
	case managerv1.WatchResponse_KIND_VM_SUSPECTED:
		for _, g := range c.grantsOf(m) {
			c.checkSuspected(g, fmt.Errorf("manager: %s", m.Reason))
		}
	case managerv1.WatchResponse_KIND_VM_TRUSTED:
		for _, g := range c.grantsOf(m) {
			c.trust(g)
		}
	case managerv1.WatchResponse_KIND_VM_RECLAIMED:
		deadline := deadlineOf(m)
		for _, g := range t.grants() {
			if !g.concerns(m) {
				continue
			}
			for _, span := range t.spans(t.on(g)) {
				w.report(t.event(Event{Kind: VMReclaimed, VM: g.vm, Deadline: deadline}, span))
			}
		}
		// Even if the VM holds nothing yet: regions may be moving there.
		c.controller.do(func() { c.controller.duties.reclaimed(m.VmId, deadline) })
	case managerv1.WatchResponse_KIND_SLO_BROKEN:
		c.log.Warn("the SLO is broken", "why", m.Reason)
	case managerv1.WatchResponse_KIND_SLO_KEPT:
		c.log.Info("the SLO is kept again", "why", m.Reason)
	case managerv1.WatchResponse_KIND_SLO_CHANGE:
		c.log.Info("the manager changes something for the SLO", "what", m.Reason)
	case managerv1.WatchResponse_KIND_RECONFIGURE:
		if m.Configuration != nil && m.InsteadOf != nil {
			to, now := configurationOf(m.Configuration), configurationOf(m.InsteadOf)
			c.controller.do(func() { c.controller.duties.reconfigure(to, now, m.Saving) })
		}
	case managerv1.WatchResponse_KIND_VM_DEAR:
		if len(m.VmIds) > 0 {
			c.controller.do(func() { c.controller.duties.cheaper(m.VmIds) })
		}
	}
}

// deadlineOf returns a VM's deadline by the local clock, from the time that is left.
func deadlineOf(m *managerv1.WatchResponse) time.Time {
	return time.Now().Add(time.Duration(min(max(0, m.LeftMs), maxLeft.Milliseconds())) * time.Millisecond)
}

// maxLeft bounds the time left of a notice.
const maxLeft = 365 * 24 * time.Hour

// concerns reports whether an event about a VM is about the grant's: the server that runs there now
// need not be the one that the event is about.
func (g *grant) concerns(m *managerv1.WatchResponse) bool {
	return g.vm == m.VmId && (m.Start == 0 || g.start == 0 || g.start == m.Start)
}

// grantsOf lists the grants that an event about a VM is about, including those that regions are
// about to move to.
func (c *Cache) grantsOf(m *managerv1.WatchResponse) (grants []*grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		if g := e.grant; g.concerns(m) && !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	return grants
}
