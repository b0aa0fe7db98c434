package catalog

import (
	"context"
	"sync"
	"sync/atomic"
)

// backend keeps the records of a local store. Its methods are called under the mutex of
// electorate.
type backend interface {
	load(each func(Record) error) error
	version(key string) (int64, error)
	// write makes changes durable, atomically.
	write([]Change) error
	close() error
	// error returns why the backend has failed; nil: it has not.
	error() error
}

// electorate elects a leader among the stores of one process that share a backend.
type electorate struct {
	seat   chan struct{}             // has an element while there is a term
	leader atomic.Pointer[localTerm] // the present term; nil: none
	mu     sync.Mutex                // guards backend and stores; held while it reads and writes
	data   backend
	stores int // that are not closed
}

// local is a store in this process.
type local struct {
	*electorate
	closed chan struct{}
	once   sync.Once
}

// localTerm implements Term.
type localTerm struct {
	of   *local
	url  string
	lost chan struct{}
	once sync.Once
}

var (
	_ Store = (*local)(nil)
	_ Term  = (*localTerm)(nil)
)

func newElectorate(data backend) *electorate {
	return &electorate{seat: make(chan struct{}, 1), data: data}
}

// join returns one more candidate.
func (e *electorate) join() *local {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stores++
	return &local{electorate: e, closed: make(chan struct{})}
}

func (s *local) Campaign(ctx context.Context, url string) (Term, error) {
	select {
	case <-s.closed:
		return nil, errClosed
	default:
	}
	select {
	case s.seat <- struct{}{}:
	case <-s.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t := &localTerm{of: s, url: url, lost: make(chan struct{})}
	s.leader.Store(t)
	// Close and fail end the term that they find. One that they did not find is ended here.
	select {
	case <-s.closed:
		t.end()
		return nil, errClosed
	default:
	}
	if err := s.data.error(); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

func (s *local) Leader() string {
	if t := s.leader.Load(); t != nil {
		return t.url
	}
	return ""
}

// Trouble returns nil: a backend that has failed ends Campaign and Commit.
func (s *local) Trouble() error { return nil }

func (s *local) Shared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stores > 1
}

// Close closes the backend with the last store.
func (s *local) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		if t := s.leader.Load(); t != nil && t.of == s {
			t.end()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stores--; s.stores == 0 {
			err = s.data.close()
		}
	})
	return err
}

// fail ends the present term because the backend failed. It can be called under mu.
func (e *electorate) fail() {
	if t := e.leader.Load(); t != nil {
		t.end()
	}
}

func (t *localTerm) Lost() <-chan struct{} { return t.lost }

func (t *localTerm) end() {
	t.once.Do(func() {
		close(t.lost)
		t.of.leader.Store(nil)
		<-t.of.seat
	})
}

func (t *localTerm) Resign(context.Context) error {
	t.end()
	return nil
}

// over reports whether the term has ended. If it has not, no later term reads or writes
// before the caller releases mu.
func (t *localTerm) over() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

func (t *localTerm) Load(ctx context.Context, each func(Record) error) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.over() {
		return ErrNotLeader
	}
	return t.of.data.load(func(r Record) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return each(r)
	})
}

func (t *localTerm) Commit(_ context.Context, changes []Change) error {
	if err := check(changes); err != nil {
		return err
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.over() {
		return ErrNotLeader
	}
	for _, c := range changes {
		version, err := t.of.data.version(c.Key)
		if err != nil {
			t.end()
			return err
		}
		if version != c.Version {
			return conflict(c, version)
		}
	}
	if err := t.of.data.write(changes); err != nil {
		t.end()
		return err
	}
	return nil
}
