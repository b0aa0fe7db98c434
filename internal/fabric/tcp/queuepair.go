package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// queuePair is one end of a connection. The owner sends requests (requester.go),
// the reader goroutine takes replies and carries the peer's requests out
// (reader.go), and both write to the outbox.
type queuePair struct {
	provider *Provider
	conn     *stream
	private  []byte
	out      *outbox

	// Owner; State is anybody's.
	core.Requests
	imports core.Handles[remote]
	issued  int64 // bytes of the operation at the head of what waits
	cost    uint64
	imms    uint64                // immediates sent
	taken   uint32                // immediates polled for which the peer has no credit yet
	lent    *core.Questions[lent] // of what Import asks

	// Owner to reader, and back.
	requests atomic.Uint64 // sent
	repaid   atomic.Uint64 // cost of the requests answered
	granted  atomic.Uint64 // credit for immediates, beyond the first ImmEntries
	in       core.ImmRing  // the owner's side of the peer's immediates
	over     atomic.Bool   // the reader has ended

	heard atomic.Bool // something has come since the last beat; the reader and the pulse
	quiet int         // beats since something came; the pulse's

	reader reader
	waiter core.Waiter
	tasks  sync.WaitGroup
	once   sync.Once
}

// remote is a peer's region: the peer's handle for it, and its size.
type remote struct {
	handle uint32
	size   int64
}

// lent is the answer to an import.
type lent struct {
	remote remote
	err    error
}

// start makes a greeted connection a queue pair.
func start(p *Provider, conn *stream, private []byte, depth int) (*queuePair, error) {
	q := &queuePair{provider: p, conn: conn, private: private}
	q.lent = core.NewQuestions[lent](&q.State)
	if err := errors.Join(q.Sends.Init(depth), core.Tune(conn.socket, p.silence)); err != nil {
		return nil, err
	}
	raw, err := conn.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	q.waiter.Init()
	out := newOutbox(raw, q.waiter.Notify)
	q.out = out
	if conn.tls != nil {
		conn.wire.out.Store(out)
		q.out = newSealingOutbox(conn.tls, out)
	}
	ring := make([]uint64, core.ImmRingWords)
	q.in = core.NewImmRing(ring)
	q.reader = reader{pair: q, imms: core.NewImmRing(ring)}
	p.regions.AddGate(&q.reader.gate)
	q.tasks.Go(out.run)
	q.tasks.Go(q.reader.run)
	if !p.pairs.Add(q) {
		return nil, errors.Join(fabric.ErrClosed, q.Close())
	}
	p.pulse.start(p)
	return q, nil
}

func (q *queuePair) PeerPrivate() []byte { return q.private }

func (q *queuePair) Wake() { q.waiter.Wake() }

func (q *queuePair) Close() (err error) {
	q.once.Do(func() {
		q.State.End(fabric.ErrClosed)
		err = q.conn.socket.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil // the reader closed it when the peer went
		}
		q.tasks.Wait()
		q.provider.pairs.Remove(q)
	})
	return err
}

// ended is the reader's last act: from here on the owner has everything.
func (q *queuePair) ended(reason error) {
	if errors.Is(reason, errFrame) {
		q.provider.malformed.Add(1)
	}
	q.State.End(fmt.Errorf("%w: %w", fabric.ErrDisconnected, reason))
	_ = q.conn.socket.Close() // it failed already, or its owner closes it
	q.out.close()
	q.provider.regions.RemoveGate(&q.reader.gate)
	q.over.Store(true)
	q.lent.End()
	q.waiter.Notify()
}

func (q *queuePair) Import(ctx context.Context, token fabric.Token) (fabric.Remote, error) {
	l, err := q.lent.Ask(ctx, func(question uint32) error {
		q.send(&frame{kind: kindImport, length: tokenSize, imm: question, body: token[:]})
		return nil
	})
	if err == nil {
		err = l.err
	}
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	h, err := q.imports.Put(l.remote)
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	return fabric.Remote{Handle: h, Size: l.remote.size}, nil
}

func (q *queuePair) Release(r fabric.Remote) {
	if i, ok := q.imports.Delete(r.Handle); ok {
		q.send(&frame{kind: kindRelease, handle: i.handle})
	}
}

// send writes one frame of the owner's.
func (q *queuePair) send(f *frame) {
	q.out.mu.Lock()
	defer q.out.mu.Unlock()
	if q.out.err == nil {
		q.out.buf = append(appendHeader(q.out.buf, f), f.body...)
		q.out.flush()
	}
}
