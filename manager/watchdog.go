package manager

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redykv/redykv/manager/catalog"
)

// stuckAfter is the time after which a leader is stuck that makes no progress. A catalog that answers
// with errors does not make it stuck: see trouble.
const stuckAfter = 15 * time.Second

// errStuck is the end of a leader that is stuck.
var errStuck = errors.New("the leader is stuck")

// watchdog watches the leader's progress: whether its state's lock is held, one write of the catalog is
// under way, or one step is under way, for too long. A catalog to which nothing is written is asked now
// and then whether it can be. Time in which this process stands still does not count. While the leader
// is stuck, health says so, for a supervisor to restart the process. If managers share the catalog the
// leader resigns, and another one leads.
func (l *leader) watchdog() {
	every := l.opts.stuckAfter / 15
	// A step has its own bounds: a launch has the longest, and its result has to be written.
	longest := l.opts.LaunchTimeout + patience + l.opts.stuckAfter
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	free := make(chan struct{}, 1) // the lock was free
	try := func(confirm bool) {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		if confirm {
			l.state.confirm()
		}
		free <- struct{}{}
	}
	go try(false)
	var locked, writing, quiet time.Duration // without progress
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
		n, under := l.state.writer.progress()
		switch {
		case n != commits:
			commits, writing, quiet = n, 0, 0
		case under:
			writing += passed
		default:
			quiet += passed
		}
		step, took := l.steps.pass(passed)
		select {
		case <-free:
			locked = 0
			confirm := quiet >= l.opts.stuckAfter/3 && !l.steps.under(takeover)
			if confirm {
				quiet = 0
			}
			go try(confirm)
		default:
			locked += passed
		}
		switch {
		case locked >= l.opts.stuckAfter:
			l.stands(fmt.Errorf("%w: its state has been locked for %v", errStuck, locked.Round(time.Second)))
		case writing >= l.opts.stuckAfter:
			err := fmt.Errorf("a write has been under way for %v", writing.Round(time.Second))
			l.state.writer.hangs(err)
			l.stands(fmt.Errorf("%w: catalog: %w", errStuck, err))
		case took >= longest:
			l.stands(fmt.Errorf("%w: the %s has been under way for %v", errStuck, step, took.Round(time.Second)))
		default:
			l.goesOn()
		}
	}
}

// steps are the steps that are under way: those for reconcilers' keys, and takeover.
type steps struct {
	mu    sync.Mutex
	clock time.Duration            // of pass
	since map[string]time.Duration // by name; clock at the last progress
}

// takeover is the step from a term's begin until the leader has taken over what an earlier one has left.
const takeover = "takeover"

// progress notes that a step has begun or makes progress.
func (s *steps) progress(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[name] = s.clock
}

func (s *steps) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, name)
}

func (s *steps) under(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.since[name]
	return ok
}

// pass lets d pass, and returns the step that has made no progress for longest, and for how long.
func (s *steps) pass(d time.Duration) (name string, longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock += d
	for n, since := range s.since {
		if s.clock-since > longest {
			name, longest = n, s.clock-since
		}
	}
	return name, longest
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
