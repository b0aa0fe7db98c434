package manager

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// eventLog holds the events of one cache in order: those about VMs of the cache, and its
// end. A watcher gets all of them, so that no event is lost between Allocate and Watch
// (A35). Events about VMs that the cache no longer has are removed. It is guarded by state.mu.
//
// The log is bounded. A watcher that needs older events, or has a higher sequence number
// than the log, from a manager that has lost its state, gets the cache's state instead.
type eventLog struct {
	events  []event
	last    uint64        // sequence number
	dropped uint64        // not all events up to this one are kept
	changed chan struct{} // closed when there are more
}

// maxEvents bounds the events that are kept of one cache.
const maxEvents = 256

type event struct {
	vm      *vm                      // nil: about the cache
	txn     uint64                   // with which it is written; watchers get it afterwards
	message *managerv1.WatchResponse // immutable once appended
}

func newEventLog() eventLog { return eventLog{changed: make(chan struct{})} }

// tell appends an event about a VM, or about the cache if v is nil. Watchers get it when the
// present change is written. Called under mu.
func (c *state) tell(ca *cache, v *vm, e *managerv1.WatchResponse) {
	l := &ca.log
	l.last++
	e.Sequence = l.last
	l.events = append(l.events, event{vm: v, txn: c.txns + 1, message: e})
	if len(l.events) > maxEvents {
		l.dropped = l.events[0].message.GetSequence()
		l.events = slices.Delete(l.events, 0, 1)
	}
	c.wake(l)
}

// wake makes watchers look again when the present changes are written. Called under mu.
func (c *state) wake(l *eventLog) {
	c.then(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(l.changed)
		l.changed = make(chan struct{})
	})
}

// complete reports whether after(sequence) returns all later events.
func (l *eventLog) complete(sequence uint64) bool { return l.dropped <= sequence && sequence <= l.last }

// after returns the kept events with numbers above sequence that are written. Reclaims have
// the time that is left from now, unless now is zero.
func (l *eventLog) after(sequence, written uint64, now time.Time) []*managerv1.WatchResponse {
	var all []*managerv1.WatchResponse
	for _, e := range l.events {
		m := e.message
		if m.GetSequence() <= sequence || e.txn > written {
			continue
		}
		if m.GetKind() == managerv1.WatchResponse_KIND_VM_RECLAIMED && !now.IsZero() {
			m = proto.CloneOf(m)
			m.LeftMs = e.vm.left(now)
		}
		all = append(all, m)
	}
	return all
}

// remove removes the events that no longer hold.
func (l *eventLog) remove(ended func(event) bool) { l.events = slices.DeleteFunc(l.events, ended) }

// eventsAfter returns the events of a cache with numbers above sequence, or one event with
// the cache's state if not all of them are kept, and a channel that is closed when there are
// more. LeftMs of events is relative to now. The error is that of a client that does not hold
// the cache any more; a nil holder is no client.
func (c *state) eventsAfter(ca *cache, holder *uint64, sequence uint64, now time.Time) ([]*managerv1.WatchResponse, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if holder != nil {
		if err := ca.checkHolder(*holder); err != nil {
			return nil, nil, err
		}
	}
	if ca.log.complete(sequence) || ca.ended { // a deleted cache's last event is enough
		return ca.log.after(sequence, c.writer.written.Load(), now), ca.log.changed, nil
	}
	state := ca.whole()
	for i, g := range ca.all() {
		state.Grants[i].Vm.LeftMs = g.vm.left(now)
	}
	return []*managerv1.WatchResponse{{
		Kind: managerv1.WatchResponse_KIND_STATE, Sequence: ca.log.last, State: state,
	}}, ca.log.changed, nil
}
