package manager

import (
	"github.com/redykv/redykv/internal/api/managerv1"
)

// eventLog is what happened to one cache, in order. A watcher gets all of it,
// however late it comes, so that no event falls between Allocate and Watch
// (A35). The log grows by one event for each VM lost and one at the end. It is
// guarded by the catalog's mutex.
type eventLog struct {
	events  []*managerv1.WatchResponse // immutable once appended
	changed chan struct{}              // closed at the next append
}

func newEventLog() eventLog { return eventLog{changed: make(chan struct{})} }

// append numbers e and wakes the watchers.
func (l *eventLog) append(e *managerv1.WatchResponse) {
	e.Sequence = uint64(len(l.events)) + 1
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}
