//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// queuePair is one end of a connection. The owner enqueues and polls. Work is posted
// and completions are taken under mu, usually by the owner, and by the connection's goroutines
// when a loan waits for operations that the owner does not poll.
type queuePair struct {
	provider *provider
	control  *control
	rdma     *endpoint
	terms    core.Terms // of the peer

	core.Requests
	in core.ImmRing // the owner's side of the peer's immediates
	core.Waiter
	tasks sync.WaitGroup
	once  sync.Once
	over  atomic.Bool // no operation accesses memory any more, and none is posted

	granted atomic.Uint64 // credit for immediates beyond the first ImmEntries

	answers *core.Questions[*remote] // questions of Import

	// Owner.
	taken int // immediates since the last credit
	next  int // index of the next receive to post

	// Reader of the control connection.
	lent core.Handles[*loan]

	mu       sync.Mutex
	pipe     pipe
	heard    core.ImmRing // the reader's side of in
	imports  core.Handles[*remote]
	loans    map[uint32]*remote // the peer's loans, by id
	retiring int                // loans that are revoked and have pending work requests
	own      map[*region]*C.struct_ibv_mr
}

// remote is a peer's region.
type remote struct {
	address uint64
	size    int64
	key     uint32
	id      uint32 // of the loan
	pending int    // work requests
	dead    bool   // revoked by the peer or released here: no work request starts
}

// start returns the queue pair of a greeted connection. It owns the endpoint, also on failure.
func start(p *provider, conn *net.TCPConn, e *endpoint, private []byte, depth int, terms core.Terms) (*queuePair, error) {
	q := &queuePair{
		provider: p, control: newControl(conn), rdma: e, terms: terms,
		loans: map[uint32]*remote{}, own: map[*region]*C.struct_ibv_mr{},
	}
	q.Private = private
	q.answers = core.NewQuestions[*remote](&q.State)
	q.pipe.init(e)
	q.Sends.Init(depth)
	q.InitWaiter()
	if err := core.Tune(conn, core.Silence); err != nil {
		return nil, errors.Join(err, e.destroy())
	}
	ring := make([]uint64, core.ImmRingWords)
	q.in, q.heard = core.NewImmRing(ring), core.NewImmRing(ring)
	q.tasks.Go(q.control.write)
	q.tasks.Go(q.read)
	q.tasks.Go(q.watch)
	q.tasks.Go(q.drain)
	if !p.Pairs.Add(q) {
		return nil, errors.Join(fabric.ErrClosed, q.Close())
	}
	return q, nil
}

// fail ends the connection. The reader then cleans up.
func (q *queuePair) fail(reason error) {
	q.State.End(fmt.Errorf("%w: %w", fabric.ErrDisconnected, reason))
	_ = q.control.conn.Close() // may be closed already
}

// ended reports whether the connection has ended: no work is posted or polled any more.
func (q *queuePair) ended() bool { return q.State.Err() != nil }

// watch waits for the connection manager's event that the peer has disconnected.
func (q *queuePair) watch() {
	event, err := q.rdma.events.next()
	if err == nil {
		err = event
	}
	q.fail(err)
}

// read serves the control connection until it ends, and with it the queue pair.
func (q *queuePair) read() {
	var err error
	for err == nil {
		var f wire.Frame
		if f, err = readFrame(q.control.conn); err == nil {
			err = q.handle(f)
		}
	}
	if errors.Is(err, wire.ErrMalformed) {
		q.provider.CountMalformed()
	}
	q.fail(err)
	q.mu.Lock()
	q.rdma.end()
	q.over.Store(true)
	q.mu.Unlock()
	q.control.close()
	_ = q.rdma.events.file.Close()      // ends watch
	_ = q.rdma.completions.file.Close() // ends drain
	q.lent.All(func(l **loan) { (*l).end() })
	q.lent = core.Handles[*loan]{}
	q.answers.End()
	q.Notify()
}

func (q *queuePair) handle(f wire.Frame) error {
	switch f.Kind {
	case wire.Import:
		q.control.send(q.lend(f))
		return nil
	case wire.Release:
		l, ok := q.lent.Delete(f.ID)
		if !ok {
			return fmt.Errorf("%w: release of unknown loan %d", wire.ErrMalformed, f.ID)
		}
		l.end()
		return nil
	case wire.Credit:
		q.granted.Add(uint64(f.Number))
		q.Notify()
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch f.Kind {
	case wire.Lent:
		if q.loans[f.ID] != nil {
			return fmt.Errorf("%w: loan %d was lent twice", wire.ErrMalformed, f.ID)
		}
		r := &remote{address: f.Address, size: f.Size, key: f.Key, id: f.ID}
		q.loans[f.ID] = r
		if !q.answers.Answer(f.Number, r, nil) {
			q.kill(r) // the Import was given up
		}
	case wire.Refused:
		q.answers.Answer(f.Number, nil, fabric.ErrBadToken)
	case wire.Failed:
		q.answers.Answer(f.Number, nil, errUnregistered)
	case wire.Revoke:
		if r := q.loans[f.ID]; r != nil { // else it was released meanwhile
			q.kill(r)
			return q.settleLoans()
		}
	default:
		return fmt.Errorf("%w: unexpected kind %d", wire.ErrMalformed, f.Kind)
	}
	return nil
}

var errUnregistered = fmt.Errorf("%w to register the region; its limit of locked memory may be too low", fabric.ErrExhausted)

// lend answers an import.
func (q *queuePair) lend(f wire.Frame) wire.Frame {
	r, err := q.provider.find(f.Token)
	if err == nil && !q.terms.Lends(f.Token) {
		err = fabric.ErrBadToken
	}
	var l *loan
	if err == nil {
		l, err = r.lend(q)
	}
	switch {
	case errors.Is(err, fabric.ErrBadToken):
		return wire.Frame{Kind: wire.Refused, Number: f.Number}
	case err != nil:
		return wire.Frame{Kind: wire.Failed, Number: f.Number}
	}
	return wire.Frame{
		Kind: wire.Lent, Number: f.Number, ID: l.id, Key: uint32(l.key.rkey), Address: address(r.Bytes()), Size: r.Size(),
	}
}

// Import asks the peer for the region's address and key.
func (q *queuePair) Import(ctx context.Context, token fabric.Token) (fabric.Remote, error) {
	r, err := q.answers.Ask(ctx, func(question uint32) error {
		q.control.send(wire.Frame{Kind: wire.Import, Number: question, Token: token})
		return nil
	})
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h, err := q.imports.Put(r)
	if err != nil {
		q.kill(r)
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	return fabric.Remote{Handle: h, Size: r.size}, nil
}

// Release returns the loan to the peer when no pending operation uses the region.
func (q *queuePair) Release(r fabric.Remote) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.imports.Delete(r.Handle); ok {
		q.kill(i)
		if err := q.settleLoans(); err != nil {
			q.fail(err)
		}
	}
}

// kill prevents new work requests on a peer's region, and returns the loan when none is
// pending. Called with mu held.
func (q *queuePair) kill(r *remote) {
	if r.dead {
		return
	}
	r.dead = true
	if r.pending > 0 {
		q.retiring++
		return
	}
	q.giveBack(r)
}

// giveBack returns a loan to the peer. Called with mu held.
func (q *queuePair) giveBack(r *remote) {
	delete(q.loans, r.id)
	q.control.send(wire.Frame{Kind: wire.Release, ID: r.id})
}

// key returns this connection's key of a region of this process, which it registers on first
// use. Called with mu held.
func (q *queuePair) key(r *region) (C.uint32_t, error) {
	if mr := q.own[r]; mr != nil {
		return mr.lkey, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked {
		return 0, fabric.ErrClosed
	}
	mr, err := q.rdma.domain.register(r.Bytes(), 0)
	if err != nil {
		return 0, err
	}
	q.own[r] = mr
	r.users[q] = struct{}{}
	return mr.lkey, nil
}

// unuse deregisters a region of this process.
func (q *queuePair) unuse(r *region) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	mr := q.own[r]
	if mr == nil {
		return nil
	}
	delete(q.own, r)
	return unregister(mr)
}

// Close ends the connection. A queue pair whose peer has disconnected keeps its resources until
// Close.
func (q *queuePair) Close() (err error) {
	q.once.Do(func() {
		q.State.End(fabric.ErrClosed)
		_ = q.control.conn.Close() // closed already if the peer disconnected
		q.tasks.Wait()
		q.provider.Pairs.Remove(q)
		q.mu.Lock()
		defer q.mu.Unlock()
		for r, mr := range q.own {
			r.mu.Lock()
			delete(r.users, q)
			r.mu.Unlock()
			err = errors.Join(err, unregister(mr))
		}
		clear(q.own)
		err = errors.Join(err, q.rdma.destroy())
	})
	return err
}
