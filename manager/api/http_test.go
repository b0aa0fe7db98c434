package api

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// controlServer is served as control APIs are.
type controlServer struct {
	*httptest.Server
	client  *http.Client
	waiting *waiting
}

// forKinds runs a test with HTTP/1.1 and HTTP/2, with and without TLS. start serves a handler
// with at most most waiting connections of each kind.
func forKinds(t *testing.T, test func(t *testing.T, start func(most int, h http.Handler) controlServer)) {
	for name, kind := range map[string]struct{ secure, http2 bool }{
		"http": {}, "http2": {http2: true}, "https": {secure: true}, "https and http2": {secure: true, http2: true},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(most int, h http.Handler) controlServer {
				s := controlServer{Server: httptest.NewUnstartedServer(nil), waiting: newWaiting(most)}
				s.Config = NewHTTPServer(h, slog.New(slog.DiscardHandler))
				s.Config.ConnState = s.waiting.observe
				s.EnableHTTP2 = kind.http2
				if kind.secure {
					s.StartTLS()
				} else {
					s.Start()
				}
				t.Cleanup(s.Close)
				s.client = s.Client()
				transport := s.client.Transport.(*http.Transport)
				transport.Protocols = new(http.Protocols)
				transport.Protocols.SetHTTP1(!kind.http2)
				transport.Protocols.SetHTTP2(kind.http2 && kind.secure)
				transport.Protocols.SetUnencryptedHTTP2(kind.http2 && !kind.secure)
				return s
			})
		})
	}
}

func (s controlServer) post(t *testing.T, body io.Reader) (string, error) {
	t.Helper()
	r, err := s.client.Post(s.URL, "text/plain", body)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r.Body)
	return string(text), errors.Join(err, r.Body.Close())
}

func (s controlServer) answers(t *testing.T) {
	t.Helper()
	const want = "a request"
	if got, err := s.post(t, strings.NewReader(want)); got != want || err != nil {
		t.Errorf("answer %q, %v", got, err)
	}
}

// counts returns how many connections wait for their first and for a later request.
func (s controlServer) counts() (fresh, idle, all int) {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	return s.waiting.fresh.Len(), s.waiting.idle.Len(), len(s.waiting.at)
}

// ended fails the test if connections are counted after their end.
func (s controlServer) ended(t *testing.T) {
	t.Helper()
	s.Close()
	testrun.Until(t, "no connection is counted", func() bool {
		_, _, all := s.counts()
		return all == 0
	})
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// Connections that send nothing, or half a header, take one another's places. A client is
// served, whether it connected before them or after.
func TestSilentConnections(t *testing.T) {
	forKinds(t, func(t *testing.T, start func(int, http.Handler) controlServer) {
		const most = 8
		s := start(most, http.HandlerFunc(echo))
		s.answers(t)
		var silent []net.Conn
		for i := range 20 * most {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if i%2 == 0 {
				_, _ = c.Write([]byte("POST / HTT")) // the server may have closed it
			}
			silent = append(silent, c)
		}
		s.answers(t)
		s.client.CloseIdleConnections()
		s.answers(t) // on a new connection: the server has accepted the others
		if fresh, _, _ := s.counts(); fresh > most {
			t.Errorf("%d connections without a request, want at most %d", fresh, most)
		}
		for _, c := range silent[:len(silent)-2*most] { // half a header over TLS is refused at once
			_, _ = io.Copy(io.Discard, c) // until it is closed
		}
		s.ended(t)
	})
}

// Idle connections are bounded as well, and a client whose connection was closed connects
// again.
func TestIdleConnections(t *testing.T) {
	forKinds(t, func(t *testing.T, start func(int, http.Handler) controlServer) {
		const most = 3
		s := start(most, http.HandlerFunc(echo))
		var clients []controlServer
		for range 4 * most {
			other := s
			transport := s.client.Transport.(*http.Transport).Clone()
			other.client = &http.Client{Transport: transport}
			clients = append(clients, other)
			defer transport.CloseIdleConnections()
		}
		for range 3 {
			for _, c := range clients {
				for { // a request may meet the end of its connection
					if _, err := c.post(t, bytes.NewReader([]byte("x"))); err == nil {
						break
					}
				}
				if _, idle, _ := s.counts(); idle > most {
					t.Fatalf("%d idle connections, want at most %d", idle, most)
				}
			}
		}
		s.ended(t)
	})
}

// A request whose body does not arrive ends. One whose answer takes longer does not.
func TestSlowBodies(t *testing.T) {
	forKinds(t, func(t *testing.T, start func(int, http.Handler) controlServer) {
		var patience atomic.Int64
		handled := make(chan error, 1)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			handled <- err
			if err != nil {
				return
			}
			for range 3 { // for longer than the body may take
				select {
				case <-time.After(time.Duration(patience.Load()) / 2):
				case <-r.Context().Done():
					t.Error("the request ended before its answer")
				}
				_, _ = w.Write(body)
				_ = http.NewResponseController(w).Flush()
			}
		})
		s := start(8, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			promptly(handler, time.Duration(patience.Load())).ServeHTTP(w, r)
		}))
		for wait := 100 * time.Millisecond; ; wait *= 2 { // until the machine is quick enough for the first body
			patience.Store(int64(wait))
			got, err := s.post(t, strings.NewReader("x"))
			if read := testrun.Receive(t, "the body is read", handled); read != nil {
				if wait > testrun.Bound {
					t.Fatal(read)
				}
				continue
			}
			if got != "xxx" || err != nil {
				t.Errorf("answer %q, %v", got, err)
			}
			break
		}
		patience.Store(int64(20 * time.Millisecond))
		body, never := io.Pipe()
		posted := make(chan struct{})
		go func() {
			defer close(posted)
			_, _ = s.post(t, body) // ends with the request, in a way of each kind's own
		}()
		if err := testrun.Receive(t, "the request ends", handled); err == nil {
			t.Error("a body that does not end was read")
		}
		if err := never.Close(); err != nil {
			t.Error(err)
		}
		testrun.Receive(t, "the caller has its answer", posted)
		s.ended(t)
	})
}

// A peer that sends half a body, and then nothing, is disconnected: the server looks for the
// body's end for no longer than the peer may take to send it.
func TestHalfBody(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewHTTPServer(nil, slog.New(slog.DiscardHandler))
	s.Config.Handler = promptly(http.HandlerFunc(echo), 20*time.Millisecond)
	s.Start()
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(testrun.Patience(time.Minute))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the connection is not closed: %v", err)
	}
}
