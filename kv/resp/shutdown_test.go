package resp

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// serving starts a server that the test shuts down itself.
func serving(t *testing.T) (s *Server, st *kv.Store, addr string, served chan error) {
	t.Helper()
	options := inMemory()
	options.Logger = quietly
	st, err := kv.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(st, Options{Logger: quietly})
	served = make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	return s, st, ln.Addr().String(), served
}

// TestShutdown: clients that are idle or in the middle of a command do not delay a shutdown.
// All answered writes are in the store.
func TestShutdown(t *testing.T) {
	s, st, addr, served := serving(t)
	idle, half := dial(t, addr), dial(t, addr)
	if got := idle.do("SET", "a", "1"); got != "+OK" {
		t.Error(got)
	}
	half.send(encode("SET", "b", "2") + "*3\r\n$3\r\nSET\r\n$1\r\n")
	if got := half.reply(); got != "+OK" {
		t.Error(got)
	}
	shutDown(t, s, served)
	idle.expectEnd()
	half.expectEnd()
	for key, want := range map[string]string{"a": "1", "b": "2"} {
		if got, err := st.Read(context.Background(), []byte(key), nil); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Error(err)
	} else if err := s.Serve(ln); err != nil {
		t.Errorf("serving after the end: %v", err)
	}
	if err := st.Close(); err != nil { // fails if a session is open
		t.Error(err)
	}
}

// TestShutdownDeadline: a client that does not read its replies delays a shutdown up to its
// deadline only.
func TestShutdownDeadline(t *testing.T) {
	s, st, addr, served := serving(t)
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 1<<20)); got != "+OK" {
		t.Error(got)
	}
	// The replies fill all buffers, so the server blocks in a write.
	p.send(strings.Repeat(encode("GET", "a"), 1000))
	if _, err := p.in.ReadByte(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown with a client that does not read: %v", err)
	}
	if err := errors.Join(testrun.Receive(t, "Serve ends", served), st.Close()); err != nil {
		t.Error(err)
	}
}

// TestClosedStore: closing the store too early ends the connections only.
func TestClosedStore(t *testing.T) {
	s, st, addr, served := serving(t)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	p := dial(t, addr)
	p.send(encode("PING") + encode("GET", "a") + encode("PING"))
	if got := p.reply(); got != "+PONG" {
		t.Error(got)
	}
	p.expectEnd()
	if err := errors.Join(s.Close(), testrun.Receive(t, "Serve ends", served)); err != nil {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, opts := range []Options{
		{MaxClients: -1}, {MaxBulk: -1}, {MaxBulk: MaxMaxBulk + 1}, {MaxRequest: 1}, {MaxRequest: maxRequest + 1},
		{MaxBuffers: 1}, {Sessions: -1}, {WriteTimeout: -1},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := NewServer(nil, opts).Serve(ln); err == nil || !strings.HasPrefix(err.Error(), "resp: ") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestShutdownWhileServed: a client that waits gets the elements that another one is about to take for it when
// the server ends.
func TestShutdownWhileServed(t *testing.T) {
	s, st, addr, served := serving(t)
	peers := blocked(t, s, addr, "BLPOP taken 0", "BLPOP other 0")
	b := &s.blocking
	b.mu.Lock()
	w := b.queues["taken"][0]
	b.mu.Unlock()
	if !b.take(w) {
		t.Fatal("it does not wait")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	peers[1].expectEnd()
	select {
	case err := <-ended:
		t.Fatalf("the server ended before: %v", err)
	default:
	}
	b.finish(w, []byte("+element\r\n"))
	if got := peers[0].reply(); got != "+element" {
		t.Error(got)
	}
	peers[0].expectEnd()
	if err := errors.Join(testrun.Receive(t, "the server ends", ended), testrun.Receive(t, "Serve returns", served)); err != nil {
		t.Error(err)
	}
	if s.large.used.Load() != 0 {
		t.Errorf("%d bytes of requests are left", s.large.used.Load())
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
