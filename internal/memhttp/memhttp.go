// Package memhttp carries HTTP calls, with streamed answers, between parties of one process.
// It opens no socket and waits on channels only, so calls run on the virtual time of
// testing/synctest. It is for tests, and fails calls as they ask for.
package memhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Network connects parties by name. A party that serves calls is the host of their URLs.
// Its methods are safe for concurrent use. A zero Network has no parties and no faults.
type Network struct {
	mu      sync.Mutex // guards the fields below
	hosts   map[string]http.Handler
	fault   func(Call) Fault
	active  map[*answer]Call // calls that are served
	dropped map[*answer]Call
}

// Call is one call: the names of its parties, and its path.
type Call struct{ From, To, Path string }

// Fault is what happens to a call.
type Fault int

// Faults of calls.
const (
	None       Fault = iota
	Refused          // the host is not there: the call fails at once
	Dropped          // neither the call nor an error arrives: it fails when its context ends, or by Reset
	Unanswered       // the call is served, but its caller gets an error instead of the answer
	Late             // the caller gets an error, and the call is served after LateBy
)

// LateBy is how much later a late call is served.
const LateBy = 5 * time.Second

// Errors of calls that fail.
var (
	ErrRefused    = errors.New("memhttp: connection refused")
	ErrUnanswered = errors.New("memhttp: connection reset before the answer")
	ErrCut        = errors.New("memhttp: connection reset")
)

// Serve makes a host answer calls with a handler. A nil handler removes the host, and ends the
// calls that it serves.
func (n *Network) Serve(host string, h http.Handler) {
	n.mu.Lock()
	if n.hosts == nil {
		n.hosts, n.active, n.dropped = map[string]http.Handler{}, map[*answer]Call{}, map[*answer]Call{}
	}
	if h == nil {
		delete(n.hosts, host)
	} else {
		n.hosts[host] = h
	}
	n.mu.Unlock()
	if h == nil {
		n.Cut(func(c Call) bool { return c.To == host })
	}
}

// Fail makes fault decide about each call. It must not block. nil: no call fails.
func (n *Network) Fail(fault func(Call) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
}

// Cut ends the calls that are being served and match, for both parties.
func (n *Network) Cut(match func(Call) bool) { n.end(n.active, match) }

// Reset ends the dropped calls that match, as a network does that works again: the hosts do not
// know these connections.
func (n *Network) Reset(match func(Call) bool) { n.end(n.dropped, match) }

// end ends the calls of a set that match. The set is guarded by mu.
func (n *Network) end(calls map[*answer]Call, match func(Call) bool) {
	n.mu.Lock()
	var ends []*answer
	for a, c := range calls {
		if match(c) {
			ends = append(ends, a)
		}
	}
	n.mu.Unlock()
	for _, a := range ends {
		a.cut(ErrCut)
	}
}

// From returns the transport of a party's calls.
func (n *Network) From(party string) http.RoundTripper { return caller{n, party} }

type caller struct {
	*Network
	party string
}

// RoundTrip implements [http.RoundTripper].
func (c caller) RoundTrip(req *http.Request) (*http.Response, error) {
	body := []byte(nil)
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		if err = errors.Join(err, req.Body.Close()); err != nil {
			return nil, err
		}
	}
	call := Call{c.party, req.URL.Host, req.URL.Path}
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	a := newAnswer(cancel)
	c.mu.Lock()
	fault, handler := None, c.hosts[call.To]
	if c.fault != nil {
		fault = c.fault(call)
	}
	if handler == nil && fault != Dropped {
		fault = Refused
	}
	switch fault {
	case None, Unanswered, Late:
		c.active[a] = call
	case Dropped:
		c.dropped[a] = call
	}
	c.mu.Unlock()
	switch fault {
	case Refused:
		cancel()
		return nil, fmt.Errorf("%s: %w", call.To, ErrRefused)
	case Dropped:
		defer c.forget(a)
		select {
		case <-a.ended:
			return nil, fmt.Errorf("%s: %w", call.To, a.failure())
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	served := req.Clone(ctx)
	served.RequestURI, served.RemoteAddr = req.URL.RequestURI(), call.From
	served.Body, served.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	go func() {
		if fault == Late {
			time.Sleep(LateBy)
		}
		handler.ServeHTTP(a, served)
		a.end(io.EOF)
		c.forget(a)
	}()
	switch fault {
	case Late:
		return nil, fmt.Errorf("%s: %w", call.To, ErrCut)
	case Unanswered:
		select {
		case <-a.ended:
		case <-req.Context().Done():
		}
		return nil, fmt.Errorf("%s: %w", call.To, ErrUnanswered)
	}
	stop := context.AfterFunc(req.Context(), func() { a.cut(context.Cause(req.Context())) })
	select {
	case <-a.begun:
		return a.response(req, stop), nil
	case <-a.ended:
	}
	if err := a.failure(); !errors.Is(err, io.EOF) {
		stop()
		return nil, fmt.Errorf("%s: %w", call.To, err)
	}
	return a.response(req, stop), nil
}

// forget ends a call's context and drops it.
func (n *Network) forget(a *answer) {
	a.cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.active, a)
	delete(n.dropped, a)
}

// answer is the answer to one call, which its handler writes and its caller reads. It has room
// for all that the handler writes, so that no handler waits for its caller.
type answer struct {
	cancel context.CancelFunc // of the handler's context
	header http.Header        // the handler's until begun is closed
	begun  chan struct{}      // closed when the status and the header are known
	ended  chan struct{}      // closed with the last byte
	more   chan struct{}      // holds a token when there are bytes to read

	mu     sync.Mutex // guards the fields below
	status int        // 0: not known yet
	sent   http.Header
	bytes  bytes.Buffer
	err    error // after the last byte; nil: it goes on
}

func newAnswer(cancel context.CancelFunc) *answer {
	return &answer{
		cancel: cancel, header: http.Header{}, begun: make(chan struct{}), ended: make(chan struct{}), more: make(chan struct{}, 1),
	}
}

// Header implements [http.ResponseWriter], as do the following methods.
func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	if a.err != nil {
		return 0, a.err
	}
	a.bytes.Write(p)
	a.offer()
	return len(p), nil
}

// Flush implements [http.Flusher].
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// begin publishes status and header. It is called under mu.
func (a *answer) begin(status int) {
	if a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}

func (a *answer) offer() {
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// end ends the answer; only the first call has an effect.
func (a *answer) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return
	}
	if errors.Is(err, io.EOF) {
		a.begin(http.StatusOK)
	}
	a.err = err
	close(a.ended)
	a.offer()
}

// cut ends the answer and its handler's context.
func (a *answer) cut(err error) {
	a.end(err)
	a.cancel()
}

func (a *answer) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// response returns the caller's view of the answer. stop ends the watch of its context.
func (a *answer) response(req *http.Request, stop func() bool) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body{a, stop}, ContentLength: -1, Request: req,
	}
}

// body reads an answer. What arrived before a failure is read first.
type body struct {
	*answer
	stop func() bool
}

func (b body) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		n, err := b.bytes.Len(), b.err
		if n > 0 {
			n, _ = b.bytes.Read(p) // it has bytes
			b.offer()
			b.mu.Unlock()
			return n, nil
		}
		b.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-b.more
	}
}

func (b body) Close() error {
	b.stop()
	b.cut(ErrCut)
	return nil
}
