package tcp_test

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/testrun"
)

// TestHalfOpen removes the network between two connected hosts: nothing is refused or reset.
// Both sides notice the silence, whether or not they wait for an answer.
func TestHalfOpen(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	ended := make(chan func(*testing.T), 1)
	go func() {
		// Sockets of this thread are in a network namespace, which ends with the goroutine
		// because the thread is not unlocked.
		runtime.LockOSThread()
		ended <- halfOpen()
	}()
	(<-ended)(t)
}

// halfOpen returns the checks to run in the test's goroutine.
func halfOpen() func(*testing.T) {
	skip := func(err error) func(*testing.T) { return func(t *testing.T) { t.Skip(err) } }
	fail := func(err error) func(*testing.T) { return func(t *testing.T) { t.Error(err) } }
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return skip(err)
	}
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return skip(err)
	}
	server, client := tcp.Open(tcp.Options{}), tcp.Open(tcp.Options{})
	defer func() { _ = errors.Join(client.Close(), server.Close()) }()
	l, err := server.Listen("", 4)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(time.Minute))
	defer cancel()
	accepted := make(chan fabric.QueuePair, 2)
	go func() {
		for range cap(accepted) {
			if r, err := l.Accept(ctx); err == nil {
				if q, err := r.Accept(nil, fabric.ReadWrite); err == nil {
					accepted <- q
				}
			}
		}
		close(accepted)
	}()
	asking, err := client.Dial(ctx, l.Addr(), nil, 4)
	if err != nil {
		return fail(err)
	}
	idle, err := client.Dial(ctx, l.Addr(), nil, 4)
	if err != nil {
		return fail(err)
	}
	region, err := server.Alloc(64)
	if err != nil {
		return fail(err)
	}
	remote, err := asking.Import(ctx, region.Token())
	if err != nil {
		return fail(err)
	}
	pairs := []fabric.QueuePair{asking, idle}
	for q := range accepted {
		pairs = append(pairs, q)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "down").CombinedOutput(); err != nil {
		return fail(errors.Join(err, errors.New(string(out))))
	}
	began := time.Now()
	if err := errors.Join(asking.Read(make([]byte, 8), remote, 0, 1), asking.Submit()); err != nil {
		return fail(err)
	}
	for _, q := range pairs {
		for q.Err() == nil {
			if err := q.Wait(ctx); ctx.Err() != nil {
				return fail(errors.New("silence was not noticed"))
			} else if err != nil && !errors.Is(err, fabric.ErrDisconnected) {
				return fail(err)
			}
		}
	}
	took := time.Since(began)
	return func(t *testing.T) {
		t.Logf("noticed after %v", took)
		var done [1]fabric.Completion
		if n := asking.Poll(done[:]); n != 1 || !errors.Is(done[0].Err, fabric.ErrDisconnected) {
			t.Errorf("the read ended as %+v", done[:n])
		}
	}
}
