package access

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// several sends calls to the leader among several managers. It is the interceptor that
// repeats calls, and the transport that addresses requests. A manager that stands by names
// the leader; a leader that was not given to DialWith is never called, so that no other host
// gets the token.
type several struct {
	urls    []*url.URL
	next    http.RoundTripper
	present atomic.Int64 // index of the manager that is called
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

// calledKey is the context key of the index of the manager that a call is for.
type calledKey struct{}

// RoundTrip implements [http.RoundTripper]. Requests are made for the first manager.
func (s *several) RoundTrip(req *http.Request) (*http.Response, error) {
	i, ok := req.Context().Value(calledKey{}).(int64)
	if !ok {
		i = s.present.Load()
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
			i := s.present.Load()
			// A manager that hangs gets half of the time that is left.
			one, cancel := clock.HalfOf(context.WithValue(ctx, calledKey{}, i))
			r, err := next(one, req)
			cancel()
			if !s.failed(ctx, i, err) || ctx.Err() != nil || time.Since(start) > patience {
				return r, err
			}
			if try%len(s.urls) == 0 {
				if !clock.Sleep(ctx, clock.Jitter(pause)) {
					return r, err
				}
				pause = min(2*pause, longPause)
			}
		}
	}
}

// WrapStreamingClient implements [connect.Interceptor]. A stream that fails is not repeated:
// its reader opens another, which goes to the next manager.
func (s *several) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		i := s.present.Load()
		return streamOf{next(context.WithValue(ctx, calledKey{}, i), spec), ctx, s, i}
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (s *several) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// streamOf is a stream to one of several managers.
type streamOf struct {
	connect.StreamingClientConn
	ctx context.Context
	of  *several
	i   int64
}

func (c streamOf) Receive(m any) error {
	err := c.StreamingClientConn.Receive(m)
	c.of.failed(c.ctx, c.i, err)
	return err
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
	s.present.CompareAndSwap(i, to)
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
