package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// queuePair is one end of a connection. The owner sends requests (requester.go); another
// goroutine may ask for a region; the reader goroutine takes replies and executes the peer's
// requests (reader.go). All write to the outbox.
type queuePair struct {
	provider *Provider
	conn     *stream
	out      *outbox
	waiting  *atomic.Int64 // bytes that wait for all peers that were accepted; nil: this one was not

	// The owner's; State is safe for concurrent use.
	core.Requests
	issued int64 // bytes of the first waiting operation that are sent
	cost   uint64
	imms   uint64                // immediates sent
	taken  uint32                // immediates polled for which no credit was sent yet
	found  *core.Questions[span] // questions of NextData

	// Shared by the owner and the goroutine that imports a region.
	imports core.Handles[remote]
	lent    *core.Questions[remote] // questions of Import

	// Shared by owner and reader.
	requests atomic.Uint64 // sent
	repaid   atomic.Uint64 // cost of the answered requests
	granted  atomic.Uint64 // credit for immediates beyond the first ImmEntries
	in       core.ImmRing  // the owner's side of the peer's immediates
	over     atomic.Bool   // the reader has ended

	heard atomic.Bool // bytes were received since the last beat; set by the reader, cleared by the pulse
	quiet int         // beats since the last bytes; the pulse's

	reader reader
	core.Waiter
	core.Notified
	tasks sync.WaitGroup
	once  sync.Once
}

// remote is a peer's region: the peer's handle for it, and its size.
type remote struct {
	handle uint32
	size   int64
}

// start returns the queue pair of a greeted connection, whose peer has terms for this side's regions.
// waiting counts the bytes that wait for peers that this side has accepted; nil: it has dialed this one.
func start(p *Provider, conn *stream, private []byte, depth int, terms core.Terms, waiting *atomic.Int64) (*queuePair, error) {
	q := &queuePair{provider: p, conn: conn, waiting: waiting}
	q.Private = private
	q.Sends.Init(depth)
	q.lent = core.NewQuestions[remote](&q.State)
	q.found = core.NewQuestions[span](&q.State)
	if err := core.Tune(conn.socket, p.silence); err != nil {
		return nil, err
	}
	raw, err := conn.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	q.InitWaiter()
	out := newOutbox(raw, waiting, q.Notify)
	q.out = out
	if conn.tls != nil {
		conn.wire.out.Store(out)
		q.out = newSealingOutbox(conn.tls, out)
	}
	ring := make([]uint64, core.ImmRingWords)
	q.in = core.NewImmRing(ring)
	q.reader = reader{pair: q, in: newInput(conn, raw), imms: core.NewImmRing(ring), terms: terms}
	p.regions.AddGate(&q.reader.gate)
	q.tasks.Go(out.run)
	q.tasks.Go(q.reader.run)
	if !p.Pairs.Add(q) {
		return nil, errors.Join(fabric.ErrClosed, q.Close())
	}
	p.pulse.start(p)
	return q, nil
}

func (q *queuePair) Close() (err error) {
	q.once.Do(func() {
		q.State.End(fabric.ErrClosed)
		err = q.conn.socket.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil // the reader closed it when the peer disconnected
		}
		q.tasks.Wait()
		q.provider.Pairs.Remove(q)
	})
	return err
}

// ended is called last by the reader: from here on all fields belong to the owner.
func (q *queuePair) ended(reason error) {
	if errors.Is(reason, errFrame) {
		q.provider.CountMalformed()
	}
	q.State.End(fmt.Errorf("%w: %w", fabric.ErrDisconnected, reason))
	_ = q.conn.socket.Close() // already closed, or failed
	q.out.close()
	q.provider.regions.RemoveGate(&q.reader.gate)
	q.over.Store(true)
	q.lent.End()
	q.found.End()
	q.Notify()
}

func (q *queuePair) Import(ctx context.Context, token fabric.Token) (fabric.Remote, error) {
	r, err := q.lent.Ask(ctx, func(question uint32) error {
		q.send(&frame{kind: kindImport, length: tokenSize, imm: question, body: token[:]})
		return nil
	})
	var handle uint32
	if err == nil {
		if handle, err = q.imports.Offer(r); err != nil {
			q.send(&frame{kind: kindRelease, handle: r.handle})
		}
	}
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	return fabric.Remote{Handle: handle, Size: r.size}, nil
}

func (q *queuePair) Release(r fabric.Remote) {
	if i, ok := q.imports.Delete(r.Handle); ok {
		q.send(&frame{kind: kindRelease, handle: i.handle})
	}
}

// span is the range [begin, end) of a region.
type span struct{ begin, end int64 }

// check returns an error if the span is no answer to a question for the data at or behind
// offset of size bytes.
func (s span) check(offset, size int64) error {
	if s.begin < offset || s.end > size || s.end < s.begin || s.end == offset && s.end != size {
		return fmt.Errorf("%w: data at [%d, %d) of %d bytes", errFrame, s.begin, s.end, size)
	}
	return nil
}

// NextData implements fabric.HoleFinder.
func (q *queuePair) NextData(ctx context.Context, r fabric.Remote, offset int64) (begin, end int64, err error) {
	q.imports.Adopt()
	i := q.imports.Get(r.Handle)
	if i == nil {
		return 0, 0, fabric.ErrBadToken
	}
	if err := core.CheckBounds(offset, 0, i.size); err != nil {
		return 0, 0, err
	}
	for {
		s, err := q.found.Ask(ctx, func(question uint32) error {
			q.send(&frame{kind: kindData, handle: i.handle, offset: offset, imm: question})
			return nil
		})
		if err = cmp.Or(err, s.check(offset, i.size)); err != nil {
			return 0, 0, fmt.Errorf("data of a region: %w", err)
		}
		if s.begin < s.end || s.begin == i.size {
			return s.begin, s.end, nil
		}
		offset = s.begin
	}
}

// send writes one frame.
func (q *queuePair) send(f *frame) {
	q.out.mu.Lock()
	defer q.out.mu.Unlock()
	if q.out.err == nil {
		q.out.buf = append(appendHeader(q.out.buf, f), f.body...)
		q.out.flush()
	}
}
