//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
	"github.com/redykv/redykv/internal/testrun"
)

// patience bounds how long a test waits for an event that must happen.
var patience = testrun.Patience(20 * time.Second)

func open(t *testing.T) *provider {
	t.Helper()
	p, err := Open()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { check(t, p.Close()) })
	return p.(*provider)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// host listens and accepts every peer; accepted receives its queue pairs.
func host(t *testing.T, depth int) (p *provider, addr string, accepted chan *queuePair) {
	t.Helper()
	p = open(t)
	l, err := p.Listen("", depth)
	check(t, err)
	accepted = make(chan *queuePair, 16)
	go func() {
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			if q, err := r.Accept(nil, fabric.ReadWrite); err == nil {
				accepted <- q.(*queuePair)
			}
		}
	}()
	return p, l.Addr(), accepted
}

func dial(t *testing.T, p *provider, addr string, depth int) *queuePair {
	t.Helper()
	q, err := p.Dial(within(t), addr, nil, depth)
	check(t, err)
	return q.(*queuePair)
}

// next waits for one completion.
func next(t *testing.T, q *queuePair) fabric.Completion {
	t.Helper()
	var done [1]fabric.Completion
	ctx := within(t)
	for q.Poll(done[:]) == 0 {
		if err := q.Wait(ctx); err != nil {
			t.Fatalf("wait: %v", err)
		}
	}
	return done[0]
}

// awaitEnd waits until q fails, and checks that its error is that of a disconnected peer.
func awaitEnd(t *testing.T, q *queuePair) {
	t.Helper()
	ctx := within(t)
	for q.Err() == nil {
		if err := q.Wait(ctx); err != nil && q.Err() == nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(q.Err(), fabric.ErrDisconnected) {
		t.Errorf("ended with %v", q.Err())
	}
}

// stranger is a peer that follows the protocol as far as a test requires.
type stranger struct {
	conn *net.TCPConn
	rdma *endpoint
}

func newStranger(t *testing.T, addr string) *stranger {
	t.Helper()
	p := open(t)
	c, err := net.Dial("tcp", addr)
	check(t, err)
	s := &stranger{conn: c.(*net.TCPConn)}
	s.rdma, _, err = p.greet(within(t), s.conn, wire.Peer{1}, nil, 4)
	check(t, err)
	t.Cleanup(func() {
		_ = s.conn.Close()
		check(t, s.rdma.destroy())
	})
	s.send(t, wire.Frame{Kind: wire.Ready})
	return s
}

func (s *stranger) send(t *testing.T, f wire.Frame) {
	t.Helper()
	_, err := s.conn.Write(f.Append(nil))
	check(t, err)
}

// A peer that does not give back a revoked region is disconnected, and the region is freed.
func TestRegionIsNotGivenBack(t *testing.T) {
	p, addr, accepted := host(t, 4)
	r, err := p.Alloc(4096)
	check(t, err)
	s := newStranger(t, addr)
	q := <-accepted
	s.send(t, wire.Frame{Kind: wire.Import, Number: 1, Token: r.Token()})
	if f, err := readFrame(s.conn); err != nil || f.Kind != wire.Lent {
		t.Fatalf("answer %+v, %v", f, err)
	}
	check(t, r.Close())
	awaitEnd(t, q)
	if !errors.Is(q.Err(), errKept) {
		t.Errorf("ended with %v", q.Err())
	}
}

func TestMalformedFrames(t *testing.T) {
	p, addr, accepted := host(t, 4)
	for _, b := range [][]byte{
		make([]byte, wire.FrameSize),
		(&wire.Frame{Kind: wire.Release, ID: 7}).Append(nil),
		(&wire.Frame{Kind: wire.Ready}).Append(nil),
		(&wire.Frame{Kind: wire.Credit, Number: 1 << 30}).Append(nil),
	} {
		before := p.Malformed()
		s := newStranger(t, addr)
		q := <-accepted
		_, err := s.conn.Write(b)
		check(t, err)
		awaitEnd(t, q)
		if p.Malformed() != before+1 {
			t.Errorf("frame %x: %d malformed, want one more than %d", b[:8], p.Malformed(), before)
		}
	}
}

// Answers that were not requested are given back or dropped.
func TestUnaskedAnswers(t *testing.T) {
	_, addr, accepted := host(t, 4)
	s := newStranger(t, addr)
	q := <-accepted
	s.send(t, wire.Frame{Kind: wire.Refused, Number: 9})
	s.send(t, wire.Frame{Kind: wire.Lent, Number: 9, ID: 5, Address: 4096, Size: 4096})
	if f, err := readFrame(s.conn); err != nil || f != (wire.Frame{Kind: wire.Release, ID: 5}) {
		t.Errorf("a region that nobody asked for: %+v, %v", f, err)
	}
	check(t, q.Err())
}

// Without the nonce of a greeting an RDMA connection is refused.
func TestStrangeNonce(t *testing.T) {
	p := open(t)
	l, err := p.Listen("", 4)
	check(t, err)
	at := netip.MustParseAddrPort(l.Addr())
	_, err = connect(within(t), p, wire.Peer{1}, netip.AddrPortFrom(at.Addr(), 0),
		netip.AddrPortFrom(at.Addr(), l.(*listener).port), wire.Nonce{1}, 4)
	if err == nil || !strings.Contains(err.Error(), "connect") {
		t.Errorf("connected with %v", err)
	}
	if p.Malformed() != 1 {
		t.Errorf("%d malformed", p.Malformed())
	}
}

// A region's key is valid on the connections of the process that presented the token, and on no
// other.
func TestKeyOfAnotherProcess(t *testing.T) {
	server, addr, accepted := host(t, 4)
	r, err := server.Alloc(4096)
	check(t, err)
	friend, thief := dial(t, open(t), addr, 4), dial(t, open(t), addr, 4)
	<-accepted
	victim := <-accepted
	i, err := friend.Import(within(t), r.Token())
	check(t, err)
	stolen := **friend.imports.Get(i.Handle)
	handle, err := thief.imports.Put(&stolen)
	check(t, err)
	secret := []byte("secret")
	copy(r.Bytes(), secret)
	got := make([]byte, len(secret))
	check(t, thief.Read(got, fabric.Remote{Handle: handle, Size: i.Size}, 0, 1))
	_ = thief.Submit() // the connection may have ended already
	if c := next(t, thief); c.Err == nil || string(got) == string(secret) {
		t.Fatalf("read %q with a stolen key: %+v", got, c)
	}
	awaitEnd(t, thief)
	awaitEnd(t, victim) // the host's end of the thief's connection
	check(t, friend.Read(got, i, 0, 2))
	check(t, friend.Submit())
	if c := next(t, friend); c.Err != nil || string(got) != string(secret) {
		t.Errorf("the friend read %q: %+v", got, c)
	}
}

// A region is revoked while operations on it are pending and their owner does not poll. The
// operations end, and the connection remains.
func TestRevokeUnderAnIdleOwner(t *testing.T) {
	server, addr, _ := host(t, 64)
	q := dial(t, open(t), addr, 64)
	const size = 1 << 20
	r, err := server.Alloc(size)
	check(t, err)
	i, err := q.Import(within(t), r.Token())
	check(t, err)
	buf := make([]byte, size)
	for tag := range uint64(8) {
		check(t, q.Read(buf, i, 0, tag))
	}
	check(t, q.Submit())
	check(t, r.Close())
	for tag := range uint64(8) {
		if c := next(t, q); c.Tag != tag || c.Err != nil && !errors.Is(c.Err, fabric.ErrBadToken) {
			t.Errorf("completion %+v, want tag %d", c, tag)
		}
	}
	check(t, q.Err())
}

// Immediates beyond the credit are queued on this side.
func TestCredit(t *testing.T) {
	server, addr, accepted := host(t, 2*core.ImmEntries)
	q := dial(t, open(t), addr, 2*core.ImmEntries)
	there := <-accepted
	r, err := server.Alloc(64)
	check(t, err)
	i, err := q.Import(within(t), r.Token())
	check(t, err)
	for n := range uint32(core.ImmEntries + 1) {
		check(t, q.WriteImm(nil, i, 0, n, uint64(n)))
	}
	check(t, q.Submit())
	for n := range uint64(core.ImmEntries) {
		if c := next(t, q); c.Err != nil || c.Tag != n {
			t.Fatalf("completion %+v, want %d", c, n)
		}
	}
	if !q.Sends.Waiting() {
		t.Fatal("an immediate went without credit")
	}
	for n := range uint32(core.ImmEntries) {
		if c := next(t, there); c.Imm != n {
			t.Fatalf("heard %+v, want %d", c, n)
		}
	}
	if c := next(t, q); c.Err != nil || c.Tag != core.ImmEntries {
		t.Fatalf("the one that was held back: %+v", c)
	}
}

// Reads that are pending when the peer ends fail. Their buffers then belong to the caller, and
// nothing is written to them afterwards.
func TestFailedReadDoesNotLandLate(t *testing.T) {
	const size, depth = 1 << 20, 16
	server, addr, accepted := host(t, depth)
	far, err := server.Alloc(size)
	check(t, err)
	for i := range far.Bytes() {
		far.Bytes()[i] = 0xee
	}
	client := open(t)
	own, err := client.Alloc(depth * size) // reads into it need no copy
	check(t, err)
	failed := 0
	for round := 0; round < 4 || failed == 0; round++ { // the connection may end between two reads
		q := dial(t, client, addr, depth)
		there := <-accepted
		i, err := q.Import(within(t), far.Token())
		check(t, err)
		pending := 0
		read := func(tag uint64) {
			if q.Read(own.Bytes()[tag*size:][:size], i, 0, tag) == nil {
				pending++
				_ = q.Submit() // the completions report the connection's end
			}
		}
		for tag := range uint64(depth) {
			read(tag)
		}
		closed := make(chan error)
		go func() { closed <- there.Close() }()
		for ; pending > 0; pending-- {
			c := next(t, q)
			if c.Err == nil {
				read(c.Tag)
				continue
			}
			failed++
			if !errors.Is(c.Err, fabric.ErrDisconnected) || q.rdma.queue.id.qp != nil {
				t.Fatalf("%+v, queue pair %p", c, q.rdma.queue.id.qp)
			}
		}
		clear(own.Bytes())
		check(t, q.Close())
		check(t, <-closed)
		if at := bytes.IndexByte(own.Bytes(), 0xee); at >= 0 {
			t.Fatalf("a read that had failed changed byte %d", at)
		}
	}
}
