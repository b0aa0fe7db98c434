package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/catalog"
)

// This file writes the state's changes to the catalog. A change is made in memory and
// encoded under state.mu, and queued. One goroutine writes the queue, in order and in groups,
// so that a slow disk or network costs time and not throughput. Nobody is told of a change
// before it is written: not its caller, no watcher, no server.

// record is an object with a record in the catalog.
type record interface {
	meta() *stored
	key() string
	// encode returns the record; nil: it is deleted. Called under state.mu.
	encode() ([]byte, error)
}

// stored is the part of an object that concerns its record.
type stored struct {
	version int64 // of the record; 0: there is none. The writer's, once the state is loaded.
	dirty   bool  // the object differs from its record as queued; guarded by state.mu
}

func (s *stored) meta() *stored { return s }

// change is one record as it is to be written.
type change struct {
	of    *stored
	key   string
	value []byte // nil: it is deleted
}

// txn are the changes of one call, in an order of which every beginning is sound: what a
// record names is written before it.
type txn struct {
	number  uint64 // of txns, in order; from 1
	changes []change
	after   []func() // called when the changes are written
	// confirms: without changes, too, the catalog is asked whether the term goes on.
	confirms bool
	done     chan struct{}
	err      error // set before done is closed
}

// writer writes txns in order.
type writer struct {
	term   catalog.Term
	took   func(time.Duration) // of a commit
	failed func(error)         // the term has ended
	warn   func(msg string, args ...any)

	mu     sync.Mutex
	queue  []*txn
	next   chan struct{} // capacity 1: the queue is not empty
	closed error         // why nothing is written any more

	written atomic.Uint64 // number of the last txn that is written
	commits atomic.Uint64 // twice the number of calls of Commit that have ended, and 1 if one is under way
	trouble atomic.Pointer[trouble]
}

// trouble is a catalog that can not be written now.
type trouble struct {
	since time.Time
	err   error
}

// errStore is the error of a change that could not be stored.
var errStore = errors.New("catalog not written")

func newWriter(t catalog.Term, took func(time.Duration), failed func(error), warn func(string, ...any)) *writer {
	return &writer{term: t, took: took, failed: failed, warn: warn, next: make(chan struct{}, 1)}
}

// add queues a txn. Called under state.mu, which orders txns.
func (w *writer) add(t *txn) {
	t.done = make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		t.err = w.closed
		close(t.done)
		return
	}
	w.queue = append(w.queue, t)
	wake(w.next)
}

// patience is how long a call waits for a catalog that can not be written.
const patience = 10 * time.Second

// wait waits until a txn is written. If the catalog can not be written for long, it returns
// an error, and the txn may be written later.
func (w *writer) wait(t *txn) error {
	select {
	case <-t.done:
		return t.err
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-t.done:
			return t.err
		case <-timer.C:
			if bad := w.trouble.Load(); bad != nil {
				return fmt.Errorf("%w yet: %w", errStore, bad.err)
			}
			timer.Reset(patience)
		}
	}
}

// refusal returns why a call that would change something should not begin: the catalog has
// not been writable for a while.
func (w *writer) refusal() error {
	if bad := w.trouble.Load(); bad != nil && time.Since(bad.since) > time.Second {
		return fmt.Errorf("%w for %v: %w", errStore, time.Since(bad.since).Round(time.Second), bad.err)
	}
	return nil
}

// progress returns a number that changes when a call of the catalog begins or ends, and whether one is
// under way.
func (w *writer) progress() (n uint64, under bool) {
	n = w.commits.Load()
	return n, n%2 == 1
}

// hangs notes that a call of the catalog does not return.
func (w *writer) hangs(err error) {
	w.trouble.CompareAndSwap(nil, &trouble{since: time.Now(), err: err})
}

// run writes txns until ctx ends or the term does. The txns that are left fail.
func (w *writer) run(ctx context.Context) {
	for {
		err := ctx.Err()
		if err == nil {
			select {
			case <-w.next:
				err = w.drain(ctx)
			case <-w.term.Lost():
				err = catalog.ErrNotLeader
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminateTimeout)
				err = errors.Join(context.Cause(ctx), w.drain(last)) // what was queued before
				cancel()
			}
		}
		if err != nil {
			w.close(err)
			return
		}
	}
}

// close fails all txns that are queued now or later.
func (w *writer) close(err error) {
	if !errors.Is(err, errStore) {
		err = fmt.Errorf("%w: %w", errStore, err)
	}
	w.mu.Lock()
	left := w.queue
	w.queue, w.closed = nil, err
	w.mu.Unlock()
	for _, t := range left {
		t.err = err
		close(t.done)
	}
	w.failed(err)
}

// group is a part of the queue that is written together.
type group struct {
	changes  []change
	at       map[string]int // index in changes, by key
	whole    []*txn         // whose last changes are in it
	confirms bool           // one of whole does
}

// drain writes all that is queued.
func (w *writer) drain(ctx context.Context) error {
	for {
		g := w.take()
		if g == nil {
			return nil
		}
		if err := w.commit(ctx, g); err != nil {
			w.mu.Lock() // so that close finds them
			w.queue = append(g.whole, w.queue...)
			w.mu.Unlock()
			return err
		}
		for _, t := range g.whole {
			w.written.Store(t.number)
			for _, do := range t.after {
				do()
			}
			close(t.done)
		}
	}
}

// take takes a group from the front of the queue; nil: it is empty. Of several changes of one
// record the last is written.
func (w *writer) take() *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	g := &group{at: make(map[string]int)}
	size := 0
	for len(w.queue) > 0 {
		t := w.queue[0]
		for len(t.changes) > 0 {
			c := t.changes[0]
			i, again := g.at[c.key]
			if again && g.changes[i].of != c.of {
				return g // another object of the same key: its record is written next
			}
			// A record that is too large alone is for the catalog to refuse.
			if size += len(c.key) + len(c.value); size > catalog.MaxBytes && len(g.changes) > 0 {
				return g
			}
			switch {
			case again:
				g.changes[i].value = c.value
			case len(g.changes) == catalog.MaxChanges:
				return g
			default:
				g.at[c.key] = len(g.changes)
				g.changes = append(g.changes, c)
			}
			t.changes = t.changes[1:]
		}
		g.whole = append(g.whole, t)
		g.confirms = g.confirms || t.confirms
		w.queue = w.queue[1:]
	}
	return g
}

// Pauses of commit.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// commit writes a group, repeatedly while the catalog is away or full.
func (w *writer) commit(ctx context.Context, g *group) error {
	var write []catalog.Change
	for _, c := range g.changes {
		if c.value != nil || c.of.version > 0 {
			write = append(write, catalog.Change{Key: c.key, Value: c.value, Version: c.of.version})
		}
	}
	for pause := firstPause; len(write) > 0 || g.confirms; pause = min(2*pause, maxPause) {
		began := time.Now()
		w.commits.Add(1)
		err := w.term.Commit(ctx, write)
		w.commits.Add(1)
		if err == nil {
			if len(write) > 0 {
				w.took(time.Since(began))
			}
			if bad := w.trouble.Swap(nil); bad != nil {
				w.warn("catalog is written again", "after", time.Since(bad.since))
			}
			break
		}
		if !errors.Is(err, catalog.ErrUnavailable) && !errors.Is(err, catalog.ErrFull) {
			return err
		}
		if w.trouble.CompareAndSwap(nil, &trouble{since: time.Now(), err: err}) {
			w.warn("catalog is not written: trying again", "err", err)
		}
		select {
		case <-w.term.Lost():
			return fmt.Errorf("%w: %w", catalog.ErrNotLeader, err)
		default:
		}
		if !clock.Sleep(ctx, pause) {
			return err
		}
	}
	for _, c := range g.changes {
		c.of.version++
		if c.value == nil {
			c.of.version = 0
		}
	}
	return nil
}
