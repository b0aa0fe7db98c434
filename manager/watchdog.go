package manager

import (
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/manager/catalog"
)

// stuckAfter is the time after which a leader is stuck that makes no progress. A catalog that answers
// with errors does not make it stuck: see trouble.
const stuckAfter = 15 * time.Second

// errStuck is the end of a leader that is stuck.
var errStuck = errors.New("the leader is stuck")

// watchdog watches the leader's progress: whether its state's lock is held, or one write of the catalog
// is under way, for too long. Time in which this process stands still does not count. While the leader
// is stuck, health says so, for a supervisor to restart the process. If managers share the catalog the
// leader resigns, and another one leads.
func (l *leader) watchdog() {
	every := l.opts.stuckAfter / 15
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	free := make(chan struct{}, 1) // the lock was free
	try := func() {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		free <- struct{}{}
	}
	go try()
	var locked, writing time.Duration // without progress
	commits := uint64(0)
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		now := time.Now()
		passed := min(now.Sub(last), 2*every)
		last = now
		select {
		case <-free:
			locked = 0
			go try()
		default:
			locked += passed
		}
		if n, under := l.state.writer.progress(); under && n == commits {
			writing += passed
		} else {
			commits, writing = n, 0
		}
		switch {
		case locked >= l.opts.stuckAfter:
			l.stands(fmt.Errorf("%w: its state has been locked for %v", errStuck, locked.Round(time.Second)))
		case writing >= l.opts.stuckAfter:
			err := fmt.Errorf("a write has been under way for %v", writing.Round(time.Second))
			l.state.writer.hangs(err)
			l.stands(fmt.Errorf("%w: catalog: %w", errStuck, err))
		default:
			l.goesOn()
		}
	}
}

// stands notes that the leader is stuck.
func (l *leader) stands(err error) {
	if l.stuck.Swap(&err) != nil {
		return // it was already
	}
	l.opts.Logger.Error("the manager's leader makes no progress: restart the manager if that lasts", "err", err)
	if !l.store.Shared() {
		return
	}
	if err := resign(l.office); err != nil && !errors.Is(err, catalog.ErrNotLeader) {
		l.opts.Logger.Warn("leader has not resigned: the next one waits for its lease", "err", err)
	}
	l.cancel(err)
}

// goesOn notes that the leader makes progress.
func (m *Manager) goesOn() {
	if m.stuck.Swap(nil) != nil {
		m.opts.Logger.Warn("the manager's leader goes on")
	}
}
