package access

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
)

// several sends calls to the leader among several managers. It is the interceptor that
// repeats calls, and the transport that addresses requests. A manager that stands by names
// the leader; a leader that was not given to DialWith is never called, so that no other host
// gets the token.
type several struct {
	urls []*url.URL
	next http.RoundTripper

	mu      sync.Mutex
	present int64                            // index of the manager that is called; guarded by mu, as is the following
	streams map[*streamOf]context.CancelFunc // of open streams
}

var _ connect.Interceptor = (*several)(nil)

// patience bounds how long a call is repeated while no manager leads. It exceeds the time
// of a takeover.
const patience = 30 * time.Second

// Pauses before a call is repeated, after each manager was called once.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// suspicion is the time after which a manager that has not answered a call is asked whether
// it runs, and the time that it has to answer that.
const suspicion = 2 * time.Second

// calledKey is the context key of the index of the manager that a call is for.
type calledKey struct{}

// RoundTrip implements [http.RoundTripper]. Requests are made for the first manager.
func (s *several) RoundTrip(req *http.Request) (*http.Response, error) {
	i, ok := req.Context().Value(calledKey{}).(int64)
	if !ok {
		i = s.called()
	}
	to := s.urls[i]
	req = req.Clone(req.Context())
	path := strings.TrimPrefix(req.URL.Path, strings.TrimSuffix(s.urls[0].Path, "/"))
	req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, to.Host
	req.URL.Path, req.URL.RawPath = strings.TrimSuffix(to.Path, "/")+path, ""
	return s.next.RoundTrip(req)
}

// WrapUnary implements [connect.Interceptor]. A call is repeated if no manager has answered
// it, or one that stands by: calls of the API may be repeated.
func (s *several) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		start, pause := time.Now(), firstPause
		for try := 1; ; try++ {
			i := s.called()
			one, cancel := s.attended(ctx, i)
			r, err := next(one, req)
			cancel()
			if !s.failed(ctx, i, err) || ctx.Err() != nil || time.Since(start) > patience {
				return r, err
			}
			if try%len(s.urls) == 0 {
				if comesAgain(req.Spec().Procedure) || !clock.Sleep(ctx, clock.Jitter(pause)) {
					return r, err
				}
				pause = min(2*pause, longPause)
			}
		}
	}
}

// comesAgain reports whether a call is made every few seconds anyway. Then each manager is called once, as
// thousands of callers that repeat it would take the time of a manager that begins to lead.
func comesAgain(procedure string) bool {
	return procedure == managerv1connect.ManagerServiceHeartbeatProcedure || procedure == managerv1connect.ManagerServiceRenewProcedure
}

// called returns the index of the manager that is called.
func (s *several) called() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present
}

// attended returns the context of a call to a manager. It ends when the manager hangs, which
// takes up to half of the time that the call has.
func (s *several) attended(ctx context.Context, i int64) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, calledKey{}, i)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 4*suspicion {
		return clock.HalfOf(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	s.attend(ctx, cancel)
	return ctx, cancel
}

// attend ends a call whose manager hangs.
func (s *several) attend(ctx context.Context, end context.CancelFunc) {
	time.AfterFunc(suspicion, func() {
		if ctx.Err() == nil && s.runs(ctx) {
			s.attend(ctx, end)
		} else {
			end()
		}
	})
}

// runs reports whether the manager of a call answers at all.
func (s *several) runs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, suspicion)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.urls[0].JoinPath("healthz").String(), nil)
	if err != nil {
		return false
	}
	r, err := s.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return true
}

// WrapStreamingClient implements [connect.Interceptor]. A stream that fails is not repeated:
// its reader opens another, which goes to the next manager. A stream ends when calls go to
// another manager, as the present one may hang and leave it open.
func (s *several) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := &streamOf{ctx: ctx, of: s}
		one, end := context.WithCancel(ctx)
		s.mu.Lock()
		c.i = s.present
		s.streams[c] = end
		s.mu.Unlock()
		c.StreamingClientConn = next(context.WithValue(one, calledKey{}, c.i), spec)
		return c
	}
}

// streamOf is a stream to one of several managers.
type streamOf struct {
	connect.StreamingClientConn
	ctx context.Context
	of  *several
	i   int64
}

func (c *streamOf) Receive(m any) error {
	err := c.StreamingClientConn.Receive(m)
	c.of.failed(c.ctx, c.i, err)
	return err
}

func (c *streamOf) CloseResponse() error {
	defer c.of.forget(c)
	return c.StreamingClientConn.CloseResponse()
}

// forget ends a stream.
func (s *several) forget(c *streamOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.streams[c]; end != nil {
		end()
		delete(s.streams, c)
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (s *several) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// failed reports whether a call to a manager may succeed at another, which is called from
// then on: the leader that the error names, or the next one. A manager that lets a deadline
// pass may hang.
func (s *several) failed(ctx context.Context, i int64, err error) bool {
	refused, ok := errors.AsType[*connect.Error](err)
	if !ok || errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	to := (i + 1) % int64(len(s.urls))
	switch code := refused.Code(); {
	case connect.IsWireError(err):
		leader, standby := leaderOf(refused)
		if !standby {
			return false
		}
		same := func(u *url.URL) bool { return strings.TrimSuffix(u.String(), "/") == strings.TrimSuffix(leader, "/") }
		if named := slices.IndexFunc(s.urls, same); named >= 0 {
			to = int64(named)
		}
	// A connection that breaks while the call is written has the code Canceled.
	case code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded && code != connect.CodeCanceled:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == i {
		s.present = to
		for _, end := range s.streams {
			end()
		}
	}
	return true
}

// leaderOf returns the URL of the leader, and whether the error is of a manager that stands by.
func leaderOf(refused *connect.Error) (leader string, standby bool) {
	for _, d := range refused.Details() {
		if m, err := d.Value(); err == nil {
			if d, ok := m.(*managerv1.NotLeaderDetail); ok {
				return d.GetLeaderUrl(), true
			}
		}
	}
	return "", false
}
