// Package fabrictest is the conformance test of the providers of package fabric, and the
// benchmark that compares them.
package fabrictest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// patience is the timeout of every wait. It does not measure speed.
var patience = testrun.Patience(time.Minute)

// Open returns a new provider.
type Open func() fabric.Provider

// Run runs all tests against providers from open. A test's two providers stand for two hosts.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"Model", testModel},
		{"Order", testOrder},
		{"Empty", testEmpty},
		{"Large", testLarge},
		{"Bounds", testBounds},
		{"BadToken", testBadToken},
		{"Revoked", testRevoked},
		{"RevokeUnderLoad", testRevokeUnderLoad},
		{"Fence", testFence},
		{"FenceUnderLoad", testFenceUnderLoad},
		{"Release", testRelease},
		{"ImportBesideOwner", testImportBesideOwner},
		{"CloseEndsImport", testCloseEndsImport},
		{"Discard", testDiscard},
		{"QueueFull", testQueueFull},
		{"Immediate", testImmediate},
		{"ImmediateFlood", testImmediateFlood},
		{"BothDirections", testBothDirections},
		{"Wake", testWake},
		{"WaitContext", testWaitContext},
		{"PeerCloses", testPeerCloses},
		{"PeerClosesWhileWaiting", testPeerClosesWhileWaiting},
		{"CloseTwice", testCloseTwice},
		{"ProviderCloses", testProviderCloses},
		{"Private", testPrivate},
		{"ReadOnly", testReadOnly},
		{"Reject", testReject},
		{"DialNobody", testDialNobody},
		{"DialGivesUp", testDialGivesUp},
		{"Depth", testDepth},
		{"Allocations", testAllocations},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

// link is two connected hosts.
type link struct {
	t              testing.TB
	server, client fabric.Provider
	listener       fabric.Listener
	there, here    fabric.QueuePair // the server's and the client's end
}

func connect(t testing.TB, open Open, depth int) *link {
	t.Helper()
	l := &link{t: t, server: open(), client: open()}
	t.Cleanup(func() {
		check(t, l.client.Close())
		check(t, l.server.Close())
	})
	var err error
	l.listener, err = l.server.Listen("", depth)
	check(t, err)
	l.there, l.here = l.dial(depth)
	return l
}

// dial opens one more connection.
func (l *link) dial(depth int) (there, here fabric.QueuePair) {
	l.t.Helper()
	return l.dialFor(fabric.ReadWrite, depth)
}

// dialFor opens a connection with rights to the server's regions.
func (l *link) dialFor(rights fabric.Rights, depth int) (there, here fabric.QueuePair) {
	l.t.Helper()
	accepted := make(chan fabric.QueuePair, 1)
	go func() {
		defer close(accepted)
		r, err := l.listener.Accept(deadline(l.t))
		if err != nil {
			l.t.Errorf("accept: %v", err)
			return
		}
		q, err := r.Accept(nil, rights)
		if err != nil {
			l.t.Errorf("accept: %v", err)
			return
		}
		accepted <- q
	}()
	here, err := l.client.Dial(deadline(l.t), l.listener.Addr(), nil, depth)
	check(l.t, err)
	there = <-accepted
	if there == nil {
		l.t.FailNow()
	}
	return there, here
}

// region allocates a region at p and imports it at q.
func region(t testing.TB, p fabric.Provider, q fabric.QueuePair, size int) (fabric.Region, fabric.Remote) {
	t.Helper()
	r, err := p.Alloc(size)
	check(t, err)
	remote, err := q.Import(deadline(t), r.Token())
	check(t, err)
	if remote.Size != int64(size) {
		t.Fatalf("imported %d bytes of %d", remote.Size, size)
	}
	return r, remote
}

// next waits for one completion of q.
func next(t testing.TB, q fabric.QueuePair) fabric.Completion {
	t.Helper()
	var done [1]fabric.Completion
	ctx := deadline(t)
	for q.Poll(done[:]) == 0 {
		if err := q.Wait(ctx); err != nil {
			t.Fatalf("wait: %v", err)
		}
	}
	return done[0]
}

// expect waits for the completion of operation tag on n bytes.
func expect(t testing.TB, q fabric.QueuePair, tag uint64, n int) {
	t.Helper()
	c := next(t, q)
	if c.Err != nil || c.Tag != tag || c.N != n {
		t.Fatalf("completion %+v, want tag %d and %d bytes", c, tag, n)
	}
}

func read(t testing.TB, q fabric.QueuePair, dst []byte, r fabric.Remote, offset int64) {
	t.Helper()
	check(t, q.Read(dst, r, offset, 71))
	check(t, q.Submit())
	expect(t, q, 71, len(dst))
}

func write(t testing.TB, q fabric.QueuePair, src []byte, r fabric.Remote, offset int64) {
	t.Helper()
	check(t, q.Write(src, r, offset, 72))
	check(t, q.Submit())
	expect(t, q, 72, len(src))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks that an operation failed with want.
func wantError(t testing.TB, err, want error, operation string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", operation, err, want)
	}
}

// errorOf returns the error of a call with another result.
func errorOf[T any](_ T, err error) error { return err }

// deadline returns a context that expires after patience.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
