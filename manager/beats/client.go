package beats

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
)

// Client is a client of the control API whose Heartbeat and Renew go over a stream, opened
// by the first of them, where that is possible. It is safe for concurrent use.
type Client struct {
	managerv1connect.ManagerServiceClient
	open func(ctx context.Context) (*Stream, error)

	mu     sync.Mutex // guards the rest
	stream *Stream    // nil: none, or it is being opened
	next   time.Time  // not to be opened before
}

// NewClient returns a client that makes unary calls by unary, and opens streams by open.
func NewClient(unary managerv1connect.ManagerServiceClient, open func(ctx context.Context) (*Stream, error)) *Client {
	return &Client{ManagerServiceClient: unary, open: open}
}

// Pauses before a stream is opened again: after a failure, and where it is not served.
const (
	pauseFailed      = time.Second
	pauseUnsupported = 10 * time.Minute
)

// Heartbeat calls over the stream, or makes the unary call.
func (c *Client) Heartbeat(ctx context.Context, req *connect.Request[managerv1.HeartbeatRequest]) (*connect.Response[managerv1.HeartbeatResponse], error) {
	return over(ctx, c, req, (*Stream).Heartbeat, c.ManagerServiceClient.Heartbeat)
}

// Renew calls over the stream, or makes the unary call.
func (c *Client) Renew(ctx context.Context, req *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	return over(ctx, c, req, (*Stream).Renew, c.ManagerServiceClient.Renew)
}

// over makes a call over the client's stream, within half of the time that it has. If there is
// no stream, or the call fails there, it makes the unary call, unless ctx has ended.
func over[Q, A any](ctx context.Context, c *Client, req *connect.Request[Q],
	beat func(*Stream, context.Context, *Q) (*A, error),
	unary func(context.Context, *connect.Request[Q]) (*connect.Response[A], error),
) (*connect.Response[A], error) {
	half, cancel := clock.HalfOf(ctx)
	defer cancel()
	if s := c.opened(half); s != nil {
		a, err := beat(s, half, req.Msg)
		if err == nil && a != nil {
			return connect.NewResponse(a), nil
		}
		var refused *RefusedError
		if errors.As(err, &refused) && refused.Code == connect.CodeUnavailable {
			s.end(err) // another manager may lead
		}
	}
	return unary(ctx, req)
}

// opened returns the client's stream, which it opens if that is due; nil: there is none. Only
// one of several callers waits for a stream to open.
func (c *Client) opened(ctx context.Context) *Stream {
	c.mu.Lock()
	if c.stream != nil && c.stream.Err() == nil {
		defer c.mu.Unlock()
		return c.stream
	}
	c.stream = nil
	now := time.Now()
	if now.Before(c.next) {
		c.mu.Unlock()
		return nil
	}
	c.next = now.Add(pauseFailed)
	c.mu.Unlock()
	s, err := c.open(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	var unsupported *UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		c.next = now.Add(pauseUnsupported)
	case err == nil && c.stream == nil:
		c.stream = s
	case err == nil: // it took so long that another caller has opened one
		s.end(errors.New("not needed"))
		s = c.stream
	}
	return s
}
