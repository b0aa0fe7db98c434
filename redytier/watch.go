package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// EventKind says what happened to a cache.
type EventKind int

// Kinds of events.
const (
	// VMLost: a VM is gone and its addresses answer with ErrRegionUnavailable.
	VMLost EventKind = iota + 1
	// VMReclaimed: a VM will be gone at Deadline.
	VMReclaimed
	// CacheDeleted: the manager has taken the cache away.
	CacheDeleted
)

// String names the kind as logs print it.
func (k EventKind) String() string {
	switch k {
	case VMLost:
		return "VM lost"
	case VMReclaimed:
		return "VM reclaimed"
	case CacheDeleted:
		return "cache deleted"
	}
	return fmt.Sprintf("event %d", int(k))
}

// Event is something that happened to a cache. From and To are the addresses
// concerned.
type Event struct {
	Kind     EventKind
	VM       string
	From, To int64
	Deadline time.Time // of VMReclaimed
	Err      error     // why, of VMLost
}

// Pauses between attempts to reach a manager that does not answer.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// watcher learns from the manager what happens to the cache's VMs and tells the
// application. The data path does not need it (A34): while the manager is gone
// it tries again, and lost VMs are noticed by their connections.
type watcher struct {
	cache   *Cache
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	told   map[string]bool // what was reported already
	events chan Event      // has room for everything that can be reported
}

func newWatcher(c *Cache) *watcher {
	return &watcher{
		cache: c, told: make(map[string]bool),
		events: make(chan Event, 2*len(c.table.vms)+1), // each VM lost and reclaimed, the cache deleted
	}
}

func (w *watcher) start(onEvent func(Event)) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.running.Add(2)
	go func() {
		defer w.running.Done()
		w.watch(ctx)
	}()
	go func() {
		defer w.running.Done()
		for e := range w.events {
			if onEvent != nil {
				onEvent(e)
			}
		}
	}()
}

// report passes an event on unless it was reported before or the watcher is
// stopped. It never blocks.
func (w *watcher) report(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := e.Kind.String() + " " + e.VM
	if w.told == nil || w.told[key] {
		return
	}
	w.told[key] = true
	w.events <- e
}

// stop returns when all that was reported has been delivered.
func (w *watcher) stop() {
	w.cancel()
	w.mu.Lock()
	w.told = nil
	close(w.events)
	w.mu.Unlock()
	w.running.Wait()
}

// watch follows the manager's stream, and takes it up again where it breaks,
// until ctx ends.
func (w *watcher) watch(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		heard, err := w.follow(ctx)
		if connect.CodeOf(err) == connect.CodeNotFound {
			w.report(Event{Kind: CacheDeleted, To: w.cache.table.capacity})
			return
		}
		if heard {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, longPause)
	}
}

// follow reads one stream to its end and says whether it brought anything.
func (w *watcher) follow(ctx context.Context) (heard bool, err error) {
	stream, err := w.cache.mgr.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{CacheId: w.cache.id}))
	if err != nil {
		return false, err
	}
	for stream.Receive() {
		heard = true
		w.take(stream.Msg())
	}
	return heard, errors.Join(stream.Err(), stream.Close())
}

func (w *watcher) take(m *managerv1.WatchResponse) {
	if m.Kind == managerv1.WatchResponse_KIND_CACHE_DELETED {
		w.report(Event{Kind: CacheDeleted, To: w.cache.table.capacity})
		return
	}
	for _, v := range w.cache.table.vms {
		if v.id != m.VmId {
			continue
		}
		switch m.Kind {
		case managerv1.WatchResponse_KIND_VM_FAILED:
			w.cache.lose(v, fmt.Errorf("manager: %s", m.Reason))
		case managerv1.WatchResponse_KIND_VM_RECLAIMED:
			from, to := w.cache.table.span(v)
			w.report(Event{Kind: VMReclaimed, VM: v.id, From: from, To: to, Deadline: time.UnixMilli(m.DeadlineUnixMs)})
		}
	}
}
