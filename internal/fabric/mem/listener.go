package mem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// backlog is the most dialled connections that wait for Accept; further dials wait.
const backlog = 64

type listener struct {
	provider *provider
	addr     string
	depth    int
	requests chan *request
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Accept(ctx context.Context) (fabric.Request, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, fmt.Errorf("mem accept %q: %w", l.addr, fabric.ErrClosed)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		listeners.Lock()
		delete(listeners.byAddr, l.addr)
		listeners.Unlock()
		l.provider.listeners.Remove(l)
		close(l.closed)
	})
	return nil
}

var errNoListener = errors.New("no listener at this address")

// connect passes q to Accept and waits for the answer.
func (l *listener) connect(ctx context.Context, q *queuePair, private []byte) (fabric.QueuePair, error) {
	r := &request{listener: l, dialer: q, private: private, answer: make(chan error, 1)}
	select {
	case l.requests <- r:
	case <-l.closed:
		return nil, errNoListener
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var err error
	select {
	case err = <-r.answer:
		if err != nil {
			return nil, err
		}
		return q, nil
	case <-l.closed:
		err = errors.New("the listener closed")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !r.answered.CompareAndSwap(false, true) && <-r.answer == nil {
		q.end(fabric.ErrClosed) // accepted at the same moment
	}
	return nil, err
}

// request is one dialled connection. The side that sets answered decides its outcome: the
// accepting side, which then sends the answer, or the dialer, which gives up.
type request struct {
	listener *listener
	dialer   *queuePair
	private  []byte
	answered atomic.Bool
	answer   chan error
	limit    func(fabric.Token) bool
}

func (r *request) Private() []byte { return r.private }

func (r *request) Limit(lends func(fabric.Token) bool) { r.limit = lends }

func (r *request) Accept(private []byte, rights fabric.Rights) (fabric.QueuePair, error) {
	if err := core.CheckPrivate(private); err != nil {
		return nil, err
	}
	if !r.answered.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("mem accept %q: answered before, or the peer gave up: %w", r.listener.addr, fabric.ErrDisconnected)
	}
	q := newQueuePair(r.listener.provider, r.listener.depth)
	q.Private = r.private
	r.dialer.Private, r.dialer.terms = slices.Clone(private), core.Terms{Rights: rights, Limit: r.limit}
	err := join(r.dialer, q)
	r.answer <- err
	if err != nil {
		return nil, fmt.Errorf("mem accept %q: %w", r.listener.addr, err)
	}
	return q, nil
}

func (r *request) Reject(reason string) error {
	if r.answered.CompareAndSwap(false, true) {
		r.answer <- fmt.Errorf("%w: %s", fabric.ErrRejected, reason)
	}
	return nil
}
