package beats_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/beats"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// world is a manager that serves beats, and unary calls that count.
type world struct {
	managerv1connect.UnimplementedManagerServiceHandler
	server  *httptest.Server
	client  *http.Client
	refuse  atomic.Bool // the token
	standby atomic.Bool
	unary   atomic.Int64

	written chan struct{} // closed when the beats of the VM "slow" are answered
}

func (w *world) heartbeat(_ context.Context, req *managerv1.HeartbeatRequest) (_ *managerv1.HeartbeatResponse, wait func() error, _ error) {
	if w.standby.Load() {
		return nil, nil, connect.NewError(connect.CodeUnavailable, errors.New("another manager leads"))
	}
	switch req.GetVmId() {
	case "unknown":
		return nil, nil, connect.NewError(connect.CodeNotFound, errors.New("no such VM"))
	case "standby":
		return nil, nil, connect.NewError(connect.CodeUnavailable, errors.New("another manager leads"))
	case "unwritten":
		wait = func() error { return connect.NewError(connect.CodeAborted, errors.New("not written")) }
	case "slow":
		wait = func() error {
			<-w.written
			return nil
		}
	}
	return &managerv1.HeartbeatResponse{Incarnation: &managerv1.Incarnation{Epoch: req.GetFreeMemory(), Id: req.GetVmId()}}, wait, nil
}

func (w *world) renew(context.Context, *managerv1.RenewRequest) (*managerv1.RenewResponse, func() error, error) {
	return &managerv1.RenewResponse{LeaseMs: 30_000}, nil, nil
}

func (w *world) Heartbeat(ctx context.Context, req *connect.Request[managerv1.HeartbeatRequest]) (*connect.Response[managerv1.HeartbeatResponse], error) {
	w.unary.Add(1)
	r, _, err := w.heartbeat(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(r), nil
}

var errToken = errors.New("token: unknown")

func newWorld(t *testing.T, streams, tls bool) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{written: make(chan struct{})}
	h := &beats.Handler{
		Context: ctx, Heartbeat: w.heartbeat, Renew: w.renew,
		Admit: func(ctx context.Context, procedure, authorization string) (context.Context, error) {
			client := procedure == managerv1connect.ManagerServiceRenewProcedure
			if w.refuse.Load() || authorization != "Bearer good" && (client || authorization != "Bearer server") {
				return nil, connect.NewError(connect.CodeUnauthenticated, errToken)
			}
			return ctx, nil
		},
	}
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(w))
	if streams {
		mux.Handle(beats.Path, h)
	}
	if tls {
		w.server = httptest.NewTLSServer(mux)
	} else {
		w.server = httptest.NewServer(mux)
	}
	w.client = w.server.Client()
	t.Cleanup(func() {
		cancel()
		h.Wait()
		w.server.Close()
	})
	return w
}

func (w *world) dial(t *testing.T, token string) *beats.Stream {
	t.Helper()
	s, err := beats.Dial(t.Context(), w.client, w.server.URL, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Many callers share a stream, and each gets its own answer.
func TestStream(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprint("tls=", tls), func(t *testing.T) {
			s := newWorld(t, true, tls).dial(t, "good")
			var callers sync.WaitGroup
			for caller := range 8 {
				callers.Go(func() {
					vm := fmt.Sprint("vm-", caller)
					for i := range uint64(50) {
						r, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: vm, FreeMemory: i})
						if err != nil || r.GetIncarnation().GetId() != vm || r.GetIncarnation().GetEpoch() != i {
							t.Errorf("%s: %v, %v", vm, r, err)
							return
						}
						if r, err := s.Renew(t.Context(), &managerv1.RenewRequest{CacheId: vm}); err != nil || r.GetLeaseMs() != 30_000 {
							t.Errorf("renew: %v, %v", r, err)
							return
						}
					}
				})
			}
			callers.Wait()
			var refused *beats.RefusedError
			if _, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "unknown"}); !errors.As(err, &refused) || refused.Code != connect.CodeNotFound {
				t.Errorf("an unknown VM: %v", err)
			}
			if s.Err() != nil {
				t.Errorf("a refused beat ends the stream: %v", s.Err())
			}
		})
	}
}

// An answer that has to wait holds up no other stream, and the later ones of its own follow it.
func TestWait(t *testing.T) {
	for _, tls := range []bool{false, true} {
		w := newWorld(t, true, tls)
		slow, other := w.dial(t, "good"), w.dial(t, "good")
		var callers sync.WaitGroup
		for _, vm := range []string{"slow", "vm", "slow", "unwritten", "vm"} {
			callers.Go(func() {
				r, err := slow.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: vm})
				var refused *beats.RefusedError
				if vm == "unwritten" {
					if !errors.As(err, &refused) || refused.Code != connect.CodeAborted {
						t.Errorf("tls %v: a beat that was not written: %v, %v", tls, r, err)
					}
				} else if err != nil || r.GetIncarnation().GetId() != vm {
					t.Errorf("tls %v: %s: %v, %v", tls, vm, r, err)
				}
			})
		}
		for range 10 {
			if _, err := other.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "vm"}); err != nil {
				t.Errorf("tls %v: another stream: %v", tls, err)
			}
		}
		close(w.written)
		callers.Wait()
		if _, err := slow.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "vm"}); err != nil {
			t.Errorf("tls %v: afterwards: %v", tls, err)
		}
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, true, false)
	var unsupported *beats.UnsupportedError
	if _, err := beats.Dial(t.Context(), w.client, w.server.URL, "bad"); !errors.As(err, &unsupported) {
		t.Errorf("a bad token: %v", err)
	}
	s := w.dial(t, "server")
	if _, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "vm"}); err != nil {
		t.Error(err)
	}
	var refused *beats.RefusedError
	if _, err := s.Renew(t.Context(), &managerv1.RenewRequest{}); !errors.As(err, &refused) || refused.Code != connect.CodeUnauthenticated {
		t.Errorf("a server's token renews a lease: %v", err)
	}
	w.refuse.Store(true)
	testrun.Until(t, "the token is checked again", func() bool {
		_, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "vm"})
		if err != nil && (!errors.As(err, &refused) || refused.Code != connect.CodeUnauthenticated) {
			t.Errorf("a token that was withdrawn: %v", err)
		}
		return err != nil
	})
}

// A client beats over a stream where it can, and else by unary calls.
func TestClient(t *testing.T) {
	for _, streams := range []bool{false, true} {
		w := newWorld(t, streams, false)
		dialled := 0
		c := beats.NewClient(managerv1connect.NewManagerServiceClient(w.client, w.server.URL), func(ctx context.Context) (*beats.Stream, error) {
			dialled++
			return beats.Dial(ctx, w.client, w.server.URL, "good")
		})
		c.SetClock(new(handClock).now)
		beat := func(vm string, want connect.Code, unary int64) {
			t.Helper()
			before := w.unary.Load()
			_, err := c.Heartbeat(t.Context(), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: vm}))
			if err == nil && want != 0 || err != nil && connect.CodeOf(err) != want {
				t.Errorf("streams %v: %s: %v, want code %v", streams, vm, err, want)
			}
			if !streams {
				unary = 1
			}
			if n := w.unary.Load() - before; n != unary {
				t.Errorf("streams %v: %s: %d unary calls, want %d", streams, vm, n, unary)
			}
		}
		beat("vm", 0, 0)
		beat("vm", 0, 0)
		beat("unknown", connect.CodeNotFound, 1)
		beat("vm", 0, 0)
		beat("standby", connect.CodeUnavailable, 1) // asks for the leader
		beat("standby", connect.CodeUnavailable, 0) // there was none a moment ago
		beat("vm", 0, 0)
		if dialled != 1 {
			t.Errorf("streams %v: dialled %d times, want once", streams, dialled)
		}
	}
}

// A stream to a manager that stands by ends when a unary call finds the leader.
func TestLeaderElsewhere(t *testing.T) {
	standby, leader := newWorld(t, true, false), newWorld(t, true, false)
	var streams []*beats.Stream
	c := beats.NewClient(managerv1connect.NewManagerServiceClient(leader.client, leader.server.URL), func(ctx context.Context) (*beats.Stream, error) {
		s, err := beats.Dial(ctx, standby.client, standby.server.URL, "good")
		streams = append(streams, s)
		return s, err
	})
	standby.standby.Store(true)
	if _, err := c.Heartbeat(t.Context(), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "vm"})); err != nil {
		t.Error(err)
	}
	if len(streams) != 1 || streams[0].Err() == nil {
		t.Errorf("%d streams, and the one to the manager that stands by goes on", len(streams))
	}
}

// handClock advances only by pass.
type handClock struct{ passed time.Duration }

func (c *handClock) now() time.Time       { return time.Unix(1e9, 0).Add(c.passed) }
func (c *handClock) pass(d time.Duration) { c.passed += d }

// Of the beats to a manager that refuses connections, few are tried, and the others fail at
// once. When it serves again, the beats go over a stream.
func TestAway(t *testing.T) {
	w := newWorld(t, true, false)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	var there atomic.Bool
	dialled, unary := 0, 0
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !there.Load() {
			address = closed.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	defer client.CloseIdleConnections()
	counts := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			unary++
			return next(ctx, req)
		}
	})
	c := beats.NewClient(managerv1connect.NewManagerServiceClient(client, w.server.URL, connect.WithInterceptors(counts)), func(ctx context.Context) (*beats.Stream, error) {
		dialled++
		return beats.Dial(ctx, client, w.server.URL, "good")
	})
	clock := new(handClock)
	c.SetClock(clock.now)
	beat := func() error {
		_, err := c.Heartbeat(t.Context(), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "vm"}))
		return err
	}
	for range 100 {
		if err := beat(); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("beat to a manager that is not there: %v, want code %v", err, connect.CodeUnavailable)
		}
	}
	if dialled != 1 || unary != 1 {
		t.Errorf("100 beats made %d streams and %d unary calls, want 1 of each", dialled, unary)
	}
	for range 3 {
		clock.pass(beats.PauseOpen)
		_ = beat()
	}
	if dialled != 4 || unary != 1 {
		t.Errorf("3 pauses later there were %d streams and %d unary calls, want 4 and 1", dialled, unary)
	}
	clock.pass(beats.PauseAsk)
	if err := beat(); err == nil || dialled != 5 || unary != 2 {
		t.Errorf("later: %v, after %d streams and %d unary calls, want 5 and 2", err, dialled, unary)
	}
	there.Store(true)
	if err := beat(); err == nil || dialled != 5 || unary != 2 {
		t.Errorf("before a stream is due: %v, after %d streams and %d unary calls, want 5 and 2", err, dialled, unary)
	}
	clock.pass(beats.PauseOpen)
	if err := beat(); err != nil || c.Stream() == nil {
		t.Errorf("to a manager that is there again: %v", err)
	}
	before := unary
	if err := beat(); err != nil || unary != before {
		t.Errorf("beat over the stream: %v, and %d unary calls", err, unary-before)
	}
	if err := c.Close(); err != nil || c.Stream() != nil {
		t.Errorf("Close: %v, and the stream is %v", err, c.Stream())
	}
}

// A unary call that no manager answers does not end the stream to a manager that stands by.
func TestNoAnswer(t *testing.T) {
	standby := newWorld(t, true, false)
	standby.standby.Store(true)
	silent := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("no manager answers"))
		}
	})
	c := beats.NewClient(managerv1connect.NewManagerServiceClient(standby.client, standby.server.URL, connect.WithInterceptors(silent)), func(ctx context.Context) (*beats.Stream, error) {
		return beats.Dial(ctx, standby.client, standby.server.URL, "good")
	})
	_, err := c.Heartbeat(t.Context(), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "vm"}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("beat: %v, want code %v", err, connect.CodeDeadlineExceeded)
	}
	if c.Stream() == nil {
		t.Error("the stream to the manager that stands by has ended")
	}
}

// A beat that cannot be sent leaves the stream to the others.
func TestOversized(t *testing.T) {
	w := newWorld(t, true, false)
	s := w.dial(t, "good")
	if _, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: strings.Repeat("x", beats.MaxMessage)}); err == nil || s.Err() != nil {
		t.Errorf("beat: %v, want an error; stream: %v", err, s.Err())
	}
	if _, err := s.Heartbeat(t.Context(), &managerv1.HeartbeatRequest{VmId: "vm"}); err != nil {
		t.Error(err)
	}
}

// Callers that come while a stream is opened wait for it.
func TestOpeningIsShared(t *testing.T) {
	w := newWorld(t, true, false)
	var dialled atomic.Int64
	unblock := make(chan struct{})
	c := beats.NewClient(managerv1connect.NewManagerServiceClient(w.client, w.server.URL), func(ctx context.Context) (*beats.Stream, error) {
		dialled.Add(1)
		<-unblock
		return beats.Dial(ctx, w.client, w.server.URL, "good")
	})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := c.Heartbeat(t.Context(), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "vm"})); err != nil {
				t.Error(err)
			}
		})
	}
	close(unblock)
	callers.Wait()
	if dialled.Load() != 1 || w.unary.Load() != 0 {
		t.Errorf("dialled %d times, %d unary calls, want one stream for all", dialled.Load(), w.unary.Load())
	}
}

// A manager that stops to answer is given up, and the stream with it.
func TestHalfOpen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		in := bufio.NewReader(conn)
		_, _ = http.ReadRequest(in)
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
	}()
	s, err := beats.Dial(t.Context(), &http.Client{Transport: &http.Transport{}}, "http://"+ln.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Heartbeat(ctx, &managerv1.HeartbeatRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	if s.Err() == nil {
		t.Error("the stream goes on")
	}
	<-done
	_ = s.Close()
	_ = ln.Close()
}

// FuzzHandler sends bytes of any kind after the upgrade. The manager ends the stream or
// answers, and does not fail.
func FuzzHandler(f *testing.F) {
	var good bytes.Buffer
	if _, err := protodelim.MarshalTo(&good, &managerv1.Beat{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm"}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(append(good.Bytes(), good.Bytes()...))
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{0x80, 0x10, 1, 2, 3})
	f.Fuzz(func(t *testing.T, sent []byte) {
		w := newWorld(t, true, false)
		conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAuthorization: Bearer good\r\n\r\n", beats.Path, beats.Protocol)
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, nil) //nolint:bodyclose // the stream is read from in
		if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", r, err)
		}
		for {
			var a managerv1.BeatAnswer
			if err := protodelim.UnmarshalFrom(in, &a); err != nil {
				return
			}
		}
	})
}
