package manager

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// eventLog holds the events of one cache in order: those about VMs of the cache, and its
// end. A watcher gets all of them, so that no event is lost between Allocate and Watch
// (A35). Events about VMs that the cache no longer has are removed, as another VM may have
// the id meanwhile. It is guarded by state.mu.
//
// The log is bounded. A watcher that needs older events, or has a higher sequence number
// than the log, from a manager that has lost its state, gets the cache's state instead.
type eventLog struct {
	events  []event
	last    uint64        // sequence number
	dropped uint64        // not all events up to this one are kept
	changed chan struct{} // closed at the next append
}

// maxEvents bounds the events that are kept of one cache.
const maxEvents = 256

type event struct {
	vm      *vm                      // nil: about the cache
	message *managerv1.WatchResponse // immutable once appended
}

func newEventLog() eventLog { return eventLog{changed: make(chan struct{})} }

// append numbers e and wakes the watchers.
func (l *eventLog) append(v *vm, e *managerv1.WatchResponse) {
	l.last++
	e.Sequence = l.last
	l.events = append(l.events, event{vm: v, message: e})
	if len(l.events) > maxEvents {
		l.dropped = l.events[0].message.GetSequence()
		l.events = slices.Delete(l.events, 0, 1)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// complete reports whether after(sequence) returns all later events.
func (l *eventLog) complete(sequence uint64) bool { return l.dropped <= sequence && sequence <= l.last }

// after returns the kept events with numbers above sequence. Reclaims have the time that is
// left from now, unless now is zero.
func (l *eventLog) after(sequence uint64, now time.Time) []*managerv1.WatchResponse {
	var all []*managerv1.WatchResponse
	for _, e := range l.events {
		m := e.message
		if m.GetSequence() <= sequence {
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
