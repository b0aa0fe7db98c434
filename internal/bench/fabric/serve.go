package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redykv/redykv/internal/fabric"
)

// The dialer's private data is the token of the region for the answers to its
// messages, and a byte: 1 if the other side is to poll. The listener's is the
// token of the region that it lends.
const (
	tokenSize = len(fabric.Token{})
	helloSize = tokenSize + 1
)

func encodeHello(answers fabric.Token, idle Idle) []byte {
	b := append(answers[:], 0)
	if idle == Poll {
		b[tokenSize] = 1
	}
	return b
}

func decodeHello(b []byte) (answers fabric.Token, idle Idle, err error) {
	if len(b) != helloSize {
		return answers, "", fmt.Errorf("private data of %d bytes, want %d: the client is not redykv bench", len(b), helloSize)
	}
	idle = Wait
	if b[tokenSize] == 1 {
		idle = Poll
	}
	return fabric.Token(b[:tokenSize]), idle, nil
}

// maxDepth is the most operations that the other side may have in flight.
const maxDepth = 1 << 10

// ServeHere runs Serve in the background at an address that the transport chooses. stop
// ends it.
func ServeHere(ctx context.Context, p fabric.Provider, memory int) (addr string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	addrs, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, p, "", memory, func(addr string) { addrs <- addr }) }()
	select {
	case addr := <-addrs:
		return addr, func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return "", nil, err
	}
}

// Serve lends memory bytes to each peer that connects at addr, until ctx ends. It calls
// ready with the address. Each peer gets a separate region.
func Serve(ctx context.Context, p fabric.Provider, addr string, memory int, ready func(addr string)) (err error) {
	l, err := p.Listen(addr, maxDepth)
	if err != nil {
		return err
	}
	var peers sync.WaitGroup
	defer func() {
		err = errors.Join(err, l.Close())
		peers.Wait()
	}()
	ready(l.Addr())
	for {
		r, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		peers.Go(func() {
			if err := host(ctx, p, r, memory); err != nil {
				_ = r.Reject(err.Error()) // of no effect on one that was accepted
			}
		})
	}
}

// host serves one peer until it disconnects.
func host(ctx context.Context, p fabric.Provider, r fabric.Request, memory int) error {
	token, idle, err := decodeHello(r.Private())
	if err != nil {
		return err
	}
	region, err := p.Alloc(memory)
	if err != nil {
		return err
	}
	defer func() { _ = region.Close() }() // the peer has gone
	for i := 0; i < memory; i += MinMemory {
		region.Bytes()[i] = 1 // a page that was never touched is no memory yet
	}
	lent := region.Token()
	q, err := r.Accept(lent[:], fabric.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { _ = q.Close() }()
	answers, err := q.Import(ctx, token)
	if err != nil {
		return err
	}
	e := echo{q: q, region: region.Bytes(), answers: answers, idle: idle}
	return e.run(ctx)
}

// echo answers messages. A message's immediate is its index in the region; the answer goes
// to the same index of the peer's region of answers.
type echo struct {
	q       fabric.QueuePair
	region  []byte
	answers fabric.Remote
	idle    Idle

	waiting []fabric.Completion // messages for which the queue had no room
	done    [64]fabric.Completion
}

func (e *echo) run(ctx context.Context) error {
	for idle := 0; ; idle++ {
		n := e.q.Poll(e.done[:])
		if n == 0 {
			if e.idle == Poll && idle < spins {
				continue
			}
			if err := e.q.Wait(ctx); err != nil {
				return err
			}
		}
		idle = 0
		for _, c := range e.done[:n] {
			if c.Op == fabric.OpRecv {
				e.waiting = append(e.waiting, c)
			}
		}
		if err := e.answer(); err != nil {
			return err
		}
	}
}

// spins is the number of empty polls before a polling side sleeps: one-sided operations do
// not need it.
const spins = 1 << 14

// answer sends waiting answers, as far as the queue has room.
func (e *echo) answer() error {
	sent := 0
	for _, c := range e.waiting {
		at := int64(c.Imm) * int64(c.N)
		if c.N > MaxSize || at+int64(c.N) > int64(len(e.region)) {
			return fmt.Errorf("message of %d bytes in slot %d: %w", c.N, c.Imm, fabric.ErrOutOfBounds)
		}
		err := e.q.WriteImm(e.region[at:at+int64(c.N)], e.answers, at, c.Imm, 0)
		if errors.Is(err, fabric.ErrQueueFull) {
			break
		}
		if err != nil {
			return err
		}
		sent++
	}
	if sent == 0 {
		return nil
	}
	e.waiting = e.waiting[:copy(e.waiting, e.waiting[sent:])]
	return e.q.Submit()
}
