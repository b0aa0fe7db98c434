package manager

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// eventLog is what happened to one cache, in order. A watcher gets all of it,
// however late it comes, so that no event falls between Allocate and Watch
// (A35); but not what is about VMs that the cache no longer has, for another VM
// may have the id meanwhile. So the log holds what was announced about the VMs of
// the cache, and its end. It is guarded by the catalog's mutex.
//
// The log has a bound. Who asks for more than is kept, or knows of more than there
// is, as the log of a manager that has lost its state may say, is told what the
// cache is now instead.
type eventLog struct {
	events  []event
	last    uint64        // sequence number
	dropped uint64        // events up to this one are not all kept
	changed chan struct{} // closed at the next append
}

// maxEvents bounds the events that are kept of one cache.
const maxEvents = 256

type event struct {
	vm      *vm                      // nil: it is about the cache
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

// complete says whether who knows all up to sequence learns the rest by after.
func (l *eventLog) complete(sequence uint64) bool { return l.dropped <= sequence && sequence <= l.last }

// after returns the events that are numbered above sequence and kept. Announcements
// that a VM goes say how much time is left from now, unless now is zero.
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

// retract drops the events of a kind that newer ones make void.
func (l *eventLog) retract(kind managerv1.WatchResponse_Kind) {
	l.events = slices.DeleteFunc(l.events, func(e event) bool { return e.message.GetKind() == kind })
}

// withdraw drops the events of a kind about one VM.
func (l *eventLog) withdraw(kind managerv1.WatchResponse_Kind, v *vm) {
	l.events = slices.DeleteFunc(l.events, func(e event) bool { return e.vm == v && e.message.GetKind() == kind })
}

// forget drops the events about VMs that are not held any more.
func (l *eventLog) forget(held func(*vm) bool) {
	l.events = slices.DeleteFunc(l.events, func(e event) bool { return e.vm != nil && !held(e.vm) })
}
