package api

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTPClient is the client for control calls with the default TLS settings. Calls are
// bounded by their contexts.
var HTTPClient = NewHTTPClient(nil)

// Dialer connects control calls.
var Dialer = &net.Dialer{Timeout: 5 * time.Second}

// NewHTTPClient returns a client for control calls. A nil config uses the default TLS settings.
func NewHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         Dialer.DialContext,
		TLSClientConfig:     config,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     30 * time.Second,
	}}
}

// NewHTTPServer returns a server for control APIs: HTTP/1.1, and HTTP/2 with and without
// TLS, which gRPC needs. A peer that takes longer than controlPatience to send a request is
// disconnected.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           promptly(h, controlPatience),
		Protocols:         protocols,
		ReadHeaderTimeout: controlPatience,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// controlPatience is the most time that a peer may take to send a request's header, and the
// same again for its body.
const controlPatience = 10 * time.Second

// promptly bounds the time in which a request's body arrives. http.Server.ReadTimeout would
// also end answers that take longer, as streams do.
func promptly(h http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			c := http.NewResponseController(w)
			if err := c.SetReadDeadline(time.Now().Add(patience)); err == nil {
				r.Body = promptBody{r.Body, c}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// promptBody removes its deadline at its end: later reads find out whether the peer is there.
// After another error the deadline stays, as the server reads on for a while to find the end.
type promptBody struct {
	io.ReadCloser
	controller *http.ResponseController
}

func (b promptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.controller.SetReadDeadline(time.Time{}) // fails only if the connection has ended
	}
	return n, err
}

// BoundWaiting bounds the connections of a server, which is not served yet, that have not sent
// their first request, and those that wait for their next one, to most each. Silent
// connections cost their peers nothing, so each new one takes the place of the oldest.
func BoundWaiting(s *http.Server, most int) {
	s.ConnState = newWaiting(most).observe
}

// waiting holds the connections without a request.
type waiting struct {
	most int

	mu    sync.Mutex
	fresh list.List // of net.Conn, the oldest first: without a request so far
	idle  list.List // the same, after a request
	at    map[net.Conn]*list.Element
}

func newWaiting(most int) *waiting {
	return &waiting{most: most, at: make(map[net.Conn]*list.Element)}
}

func (w *waiting) observe(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
	var of *list.List
	switch state {
	case http.StateNew:
		of = &w.fresh
	case http.StateIdle:
		of = &w.idle
	default:
		return
	}
	w.at[c] = of.PushBack(c)
	if of.Len() > w.most {
		oldest := of.Front().Value.(net.Conn)
		w.remove(oldest)
		if t, ok := oldest.(*tls.Conn); ok {
			oldest = t.NetConn() // whose Close does not wait for the peer
		}
		_ = oldest.Close() // may be closed already
	}
}

// remove is called under mu.
func (w *waiting) remove(c net.Conn) {
	if e := w.at[c]; e != nil {
		w.fresh.Remove(e) // one of them has it
		w.idle.Remove(e)
		delete(w.at, c)
	}
}
