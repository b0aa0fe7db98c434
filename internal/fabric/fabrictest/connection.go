package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/mem"
)

func testQueueFull(t *testing.T, open Open) {
	const depth = 5
	l := connect(t, open, depth)
	_, r := region(t, l.server, l.here, 64)
	b := make([]byte, 8)
	for range 3 {
		for tag := range uint64(depth) {
			check(t, l.here.Read(b, r, 0, tag))
		}
		if err := l.here.Read(b, r, 0, 9); !errors.Is(err, fabric.ErrQueueFull) {
			t.Fatalf("beyond depth: %v", err)
		}
		check(t, l.here.Submit())
		for tag := range uint64(depth) {
			expect(t, l.here, tag, 8)
		}
	}
}

func testDepth(t *testing.T, open Open) {
	p := open()
	t.Cleanup(func() { check(t, p.Close()) })
	for _, depth := range []int{-1, 0, 1 << 30} {
		if _, err := p.Listen("", depth); err == nil {
			t.Errorf("listen with depth %d worked", depth)
		}
	}
	for _, size := range []int{-1, 0, 1 << 62, int(mem.Total()) + 1} {
		if _, err := p.Alloc(size); err == nil {
			t.Errorf("alloc of %d bytes worked", size)
		}
	}
}

// testImmediate checks that the bytes are in place when the immediate arrives.
func testImmediate(t *testing.T, open Open) {
	const rounds = 300
	l := connect(t, open, 4)
	g, r := region(t, l.server, l.here, 4*rounds)
	heard := make(chan error, 1)
	go func() { heard <- hear(l.there, g, rounds) }()
	for i := range uint32(rounds) {
		b := binary.LittleEndian.AppendUint32(nil, i)
		check(t, l.here.WriteImm(b, r, int64(4*i), i, uint64(i)))
		check(t, l.here.Submit())
		if c := next(t, l.here); c.Err != nil || c.Tag != uint64(i) || c.Op != fabric.OpWrite || c.N != 4 {
			t.Fatalf("sender's completion %+v", c)
		}
	}
	check(t, <-heard)
}

// hear receives n immediates. Each is the index of the 4 bytes that were written with it.
func hear(q fabric.QueuePair, g fabric.Region, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var done [16]fabric.Completion
	for i := 0; i < n; {
		if err := q.Wait(ctx); err != nil {
			return err
		}
		for _, c := range done[:q.Poll(done[:])] {
			if c.Err != nil || c.Op != fabric.OpRecv || c.Imm != uint32(i) || c.N != 4 {
				return fmt.Errorf("immediate %d is %+v", i, c)
			}
			if got := binary.LittleEndian.Uint32(g.Bytes()[4*i:]); got != uint32(i) {
				return fmt.Errorf("immediate %d arrived before its bytes: %d", i, got)
			}
			i++
		}
	}
	return nil
}

// testImmediateFlood sends more immediates to a peer that does not poll than are buffered for
// it, and then lets the peer poll.
func testImmediateFlood(t *testing.T, open Open) {
	const sent = 10_000
	l := connect(t, open, 64)
	g, r := region(t, l.server, l.here, 4*sent)
	heard := make(chan error, 1)
	ctx := deadline(t)
	var done [64]fabric.Completion
	enqueued, finished, started := 0, 0, false
	for finished < sent {
		full := false
		for enqueued < sent && !full {
			b := binary.LittleEndian.AppendUint32(nil, uint32(enqueued))
			err := l.here.WriteImm(b, r, int64(4*enqueued), uint32(enqueued), uint64(enqueued))
			if full = errors.Is(err, fabric.ErrQueueFull); !full {
				check(t, err)
				enqueued++
			}
		}
		check(t, l.here.Submit())
		if !started && enqueued > 2500 {
			t.Fatal("a peer that never polls takes immediates without bound")
		}
		if !started && enqueued > 1000 {
			started = true
			go func() { heard <- hear(l.there, g, sent) }()
		}
		check(t, l.here.Wait(ctx))
		for _, c := range done[:l.here.Poll(done[:])] {
			if c.Err != nil || c.Tag != uint64(finished) {
				t.Fatalf("completion %+v, want %d", c, finished)
			}
			finished++
		}
	}
	check(t, <-heard)
}

// testBothDirections reads and writes from both ends at the same time.
func testBothDirections(t *testing.T, open Open) {
	l := connect(t, open, 8)
	_, there := region(t, l.server, l.here, 1<<20)
	_, here := region(t, l.client, l.there, 1<<20)
	ended := make(chan error, 2)
	for _, end := range []struct {
		q fabric.QueuePair
		r fabric.Remote
	}{{l.here, there}, {l.there, here}} {
		go func() { ended <- exchange(end.q, end.r) }()
	}
	for range 2 {
		check(t, <-ended)
	}
}

func exchange(q fabric.QueuePair, r fabric.Remote) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
	var done [2]fabric.Completion
	for round := range byte(6) {
		for i := range src {
			src[i] = byte(i) ^ round
		}
		if err := errors.Join(q.Write(src, r, 0, 1), q.Read(dst, r, 0, 2), q.Submit()); err != nil {
			return err
		}
		for seen := 0; seen < 2; {
			if err := q.Wait(ctx); err != nil {
				return err
			}
			n := q.Poll(done[:])
			for _, c := range done[:n] {
				if c.Err != nil {
					return c.Err
				}
			}
			seen += n
		}
		if !bytes.Equal(src, dst) {
			return fmt.Errorf("round %d read other bytes than it wrote", round)
		}
	}
	return nil
}

func testWake(t *testing.T, open Open) {
	l := connect(t, open, 4)
	for range 50 {
		ended := make(chan error, 1)
		ctx := deadline(t)
		go func() { ended <- l.here.Wait(ctx) }()
		l.here.Wake() // Wait returns whether Wake comes before or during it
		check(t, <-ended)
	}
}

func testWaitContext(t *testing.T, open Open) {
	l := connect(t, open, 4)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.here.Wait(ctx) }()
	cancel()
	wantError(t, <-ended, context.Canceled, "wait with a cancelled context")
}

func testPeerCloses(t *testing.T, open Open) {
	l := connect(t, open, 4)
	g, r := region(t, l.server, l.here, 64)
	check(t, l.here.Read(make([]byte, 8), r, 0, 1))
	check(t, l.there.Close())
	awaitEnd(t, l.here)
	// The region exists, but this queue pair has lost its peer.
	wantError(t, l.here.Read(make([]byte, 8), r, 0, 2), fabric.ErrDisconnected, "read after disconnect")
	wantError(t, l.here.Submit(), fabric.ErrDisconnected, "submit after disconnect")
	if c := next(t, l.here); c.Tag != 1 || !errors.Is(c.Err, fabric.ErrDisconnected) {
		t.Errorf("pending operation: %+v", c)
	}
	wantError(t, errorOf(l.here.Import(deadline(t), g.Token())), fabric.ErrDisconnected, "import after disconnect")
	wantError(t, l.here.Wait(deadline(t)), fabric.ErrDisconnected, "wait after disconnect")
	// Other connections are not affected.
	_, q := l.dial(4)
	again, err := q.Import(deadline(t), g.Token())
	check(t, err)
	read(t, q, make([]byte, 8), again, 0)
}

// awaitEnd waits until q reports that its peer is gone.
func awaitEnd(t *testing.T, q fabric.QueuePair) {
	t.Helper()
	ctx := deadline(t)
	for q.Err() == nil {
		if err := q.Wait(ctx); err != nil && q.Err() == nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(q.Err(), fabric.ErrDisconnected) {
		t.Fatalf("ended with %v", q.Err())
	}
}

func testPeerClosesWhileWaiting(t *testing.T, open Open) {
	l := connect(t, open, 4)
	ended := make(chan error, 1)
	ctx := deadline(t)
	go func() { ended <- l.here.Wait(ctx) }()
	check(t, l.there.Close())
	wantError(t, <-ended, fabric.ErrDisconnected, "wait")
}

func testCloseTwice(t *testing.T, open Open) {
	l := connect(t, open, 4)
	_, r := region(t, l.server, l.here, 64)
	check(t, l.here.Read(make([]byte, 8), r, 0, 1))
	check(t, l.here.Close())
	check(t, l.here.Close())
	wantError(t, l.here.Read(make([]byte, 8), r, 0, 2), fabric.ErrClosed, "read after close")
	if c := next(t, l.here); c.Tag != 1 || !errors.Is(c.Err, fabric.ErrClosed) {
		t.Errorf("pending operation: %+v", c)
	}
	check(t, l.listener.Close())
	check(t, l.listener.Close())
	wantError(t, errorOf(l.listener.Accept(deadline(t))), fabric.ErrClosed, "accept after close")
}

func testProviderCloses(t *testing.T, open Open) {
	l := connect(t, open, 4)
	check(t, l.server.Close())
	check(t, l.server.Close())
	awaitEnd(t, l.here)
	wantError(t, l.there.Err(), fabric.ErrClosed, "the server's end")
	wantError(t, errorOf(l.server.Alloc(64)), fabric.ErrClosed, "alloc")
	wantError(t, errorOf(l.server.Listen("", 4)), fabric.ErrClosed, "listen")
}

func testPrivate(t *testing.T, open Open) {
	l := connect(t, open, 4)
	long := bytes.Repeat([]byte("p"), fabric.MaxPrivate)
	_, err := l.client.Dial(deadline(t), l.listener.Addr(), append(long, 'p'), 4)
	wantError(t, err, fabric.ErrPrivate, "dial")
	ended := make(chan error, 1)
	ctx := deadline(t)
	go func() { ended <- acceptPrivate(ctx, l.listener, long) }()
	q, err := l.client.Dial(ctx, l.listener.Addr(), long, 4)
	check(t, errors.Join(err, <-ended))
	if string(q.PeerPrivate()) != "back" {
		t.Errorf("dialer's peer's private data: %q", q.PeerPrivate())
	}
}

// acceptPrivate expects the private data want and answers "back".
func acceptPrivate(ctx context.Context, l fabric.Listener, want []byte) error {
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(r.Private(), want) {
		return fmt.Errorf("request's private data: %q", r.Private())
	}
	if _, err := r.Accept(append(want[:len(want):len(want)], 'p'), fabric.ReadWrite); !errors.Is(err, fabric.ErrPrivate) {
		return fmt.Errorf("accept with too much private data: %w", err)
	}
	q, err := r.Accept([]byte("back"), fabric.ReadWrite)
	if err != nil {
		return err
	}
	if !bytes.Equal(q.PeerPrivate(), want) {
		return fmt.Errorf("acceptor's peer's private data: %q", q.PeerPrivate())
	}
	return nil
}

// testReadOnly: a peer without the right to write reads what another one writes to the same region, and
// changes nothing. Its own regions can be written.
func testReadOnly(t *testing.T, open Open) {
	l := connect(t, open, 4)
	r, shared := region(t, l.server, l.here, 1<<20)
	write := func(q fabric.QueuePair, to fabric.Remote, text string) {
		t.Helper()
		check(t, errors.Join(q.Write([]byte(text), to, 100, 1), q.Submit()))
		expect(t, q, 1, len(text))
	}
	write(l.here, shared, "written")
	for name, try := range map[string]func(q fabric.QueuePair, to fabric.Remote) error{
		"write":          func(q fabric.QueuePair, to fabric.Remote) error { return q.Write([]byte("altered"), to, 100, 3) },
		"with immediate": func(q fabric.QueuePair, to fabric.Remote) error { return q.WriteImm([]byte("altered"), to, 100, 5, 3) },
	} {
		there, here := l.dialFor(fabric.ReadOnly, 4)
		remote, err := here.Import(deadline(t), r.Token())
		check(t, err)
		got := make([]byte, 7)
		check(t, errors.Join(here.Read(got, remote, 100, 2), here.Submit()))
		if expect(t, here, 2, len(got)); string(got) != "written" {
			t.Errorf("read %q", got)
		}
		_, own := region(t, l.client, there, 4<<10)
		write(there, own, "answer")
		err = errors.Join(try(here, remote), here.Submit())
		if err == nil { // else the connection has ended already
			c := next(t, here)
			err = c.Err
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		check(t, errors.Join(here.Close(), there.Close()))
		if got := r.Bytes()[100:107]; string(got) != "written" {
			t.Errorf("%s: the region holds %q", name, got)
		}
	}
	write(l.here, shared, "again")
}

func testReject(t *testing.T, open Open) {
	l := connect(t, open, 4)
	ended := make(chan error, 1)
	ctx := deadline(t)
	go func() {
		r, err := l.listener.Accept(ctx)
		if err == nil {
			err = r.Reject("the ticket has expired")
		}
		ended <- err
	}()
	_, err := l.client.Dial(ctx, l.listener.Addr(), nil, 4)
	check(t, <-ended)
	if !errors.Is(err, fabric.ErrRejected) || !strings.Contains(err.Error(), "the ticket has expired") {
		t.Errorf("dial: %v", err)
	}
}

func testDialNobody(t *testing.T, open Open) {
	l := connect(t, open, 4)
	addr := l.listener.Addr()
	check(t, l.listener.Close())
	if _, err := l.client.Dial(deadline(t), addr, nil, 4); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("dial of a closed listener: %v", err)
	}
}

// testDialGivesUp dials a listener that does not accept before the dialer gives up.
func testDialGivesUp(t *testing.T, open Open) {
	l := connect(t, open, 4)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := l.client.Dial(ctx, l.listener.Addr(), nil, 4)
		ended <- err
	}()
	r, err := l.listener.Accept(deadline(t))
	check(t, err)
	cancel()
	wantError(t, <-ended, context.Canceled, "dial")
	if q, err := r.Accept(nil, fabric.ReadWrite); err == nil {
		awaitEnd(t, q)
	}
	_, q := l.dial(4)
	check(t, q.Err())
}
