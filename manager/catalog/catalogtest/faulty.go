// Package catalogtest tests implementations of catalog.Store, and makes stores fail for tests
// of their users.
package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/manager/catalog"
)

// Fault is what happens to a Commit.
type Fault int

const (
	// KillBefore ends the term before the changes are made, and KillAfter after they are
	// made and before the caller knows it, as a kill of the manager's process does.
	KillBefore Fault = iota + 1
	KillAfter
	// Unavailable makes no changes. Unanswered makes them, but reports them as unavailable.
	Unavailable
	Unanswered
	// Full makes no changes.
	Full
)

// Faulty is a store whose Commits fail on request.
type Faulty struct {
	catalog.Store

	mu      sync.Mutex
	commits int            // guarded by mu, as are the following
	kinds   map[string]int // commits by the kinds of records in them
	faults  map[int]Fault  // by number of the commit
	delay   time.Duration
	killed  chan struct{} // closed by the first kill
}

// NewFaulty returns a store without faults.
func NewFaulty(s catalog.Store) *Faulty {
	return &Faulty{Store: s, kinds: make(map[string]int), faults: make(map[int]Fault), killed: make(chan struct{})}
}

// At requests a fault for n Commits, beginning with number k, which counts from 0 since
// NewFaulty. Repeated commits count, too, and those without changes do not.
func (f *Faulty) At(k, n int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		f.faults[k+i] = fault
	}
}

// Delay makes each Commit take so much longer.
func (f *Faulty) Delay(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

// Commits returns the number of Commits that were begun.
func (f *Faulty) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

// CommitsOf is Commits of those with a record of a kind, the part of its key before "/".
func (f *Faulty) CommitsOf(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kinds[kind]
}

// Killed returns a channel that is closed by KillBefore or KillAfter.
func (f *Faulty) Killed() <-chan struct{} { return f.killed }

// next counts a Commit, and returns its fault and its delay.
func (f *Faulty) next(changes []catalog.Change) (Fault, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(changes) == 0 {
		return 0, f.delay
	}
	f.commits++
	in := make(map[string]bool)
	for _, c := range changes {
		kind, _, _ := strings.Cut(c.Key, "/")
		in[kind] = true
	}
	for kind := range in {
		f.kinds[kind]++
	}
	return f.faults[f.commits-1], f.delay
}

// kill ends a term.
func (f *Faulty) kill(ctx context.Context, t catalog.Term) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.killed:
	default:
		close(f.killed)
	}
	return t.Resign(ctx)
}

func (f *Faulty) Campaign(ctx context.Context, url string) (catalog.Term, error) {
	t, err := f.Store.Campaign(ctx, url)
	if err != nil {
		return nil, err
	}
	return &faultyTerm{Term: t, of: f}, nil
}

type faultyTerm struct {
	catalog.Term
	of         *Faulty
	unanswered []catalog.Change // changes that were made and reported as unavailable
}

var errInjected = errors.New("injected fault")

func (t *faultyTerm) Commit(ctx context.Context, changes []catalog.Change) error {
	fault, delay := t.of.next(changes)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-t.Lost(): // Commit returns the error
		}
	}
	switch fault {
	case KillBefore:
		return errors.Join(catalog.ErrNotLeader, t.of.kill(ctx, t.Term))
	case KillAfter:
		return errors.Join(t.commit(ctx, changes), catalog.ErrNotLeader, catalog.ErrUnavailable, t.of.kill(ctx, t.Term))
	case Unavailable:
		return fmt.Errorf("%w: %w", catalog.ErrUnavailable, errInjected)
	case Full:
		return fmt.Errorf("%w: %w", catalog.ErrFull, errInjected)
	case Unanswered:
		if err := t.commit(ctx, changes); err != nil {
			return err
		}
		t.unanswered = changes
		return fmt.Errorf("%w: %w", catalog.ErrUnavailable, errInjected)
	}
	return t.commit(ctx, changes)
}

// commit makes changes, unless they were made by the last Commit.
func (t *faultyTerm) commit(ctx context.Context, changes []catalog.Change) error {
	if t.unanswered == nil {
		return t.Term.Commit(ctx, changes)
	}
	if !catalog.Same(changes, t.unanswered) {
		return errors.New("catalogtest: a commit of unknown outcome must be repeated first")
	}
	select {
	case <-t.Lost():
		return fmt.Errorf("%w, %w", catalog.ErrNotLeader, catalog.ErrUnavailable)
	default:
		t.unanswered = nil
		return nil
	}
}
