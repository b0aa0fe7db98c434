package beats

import (
	"context"
	"errors"
	"net"
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
	now  func() time.Time

	mu      sync.Mutex    // guards the rest
	stream  *Stream       // nil: none
	opening chan struct{} // closed when the stream that is being opened is open or has failed; nil: none is
	away    error         // the error of connecting to the manager, when a stream was opened last; nil: another or none
	next    time.Time     // no stream is to be opened before
	ask     time.Time     // no unary call is to ask for the leader before, as there was none
}

// NewClient returns a client that makes unary calls by unary, and opens streams by open.
func NewClient(unary managerv1connect.ManagerServiceClient, open func(ctx context.Context) (*Stream, error)) *Client {
	return &Client{ManagerServiceClient: unary, open: open, now: time.Now}
}

// Pauses before a stream is opened again: usually, and where streams are not served.
const (
	pauseOpen        = 200 * time.Millisecond
	pauseUnsupported = 10 * time.Minute
)

// pauseAsk is the pause before the leader is asked for again by a unary call. Meanwhile a
// stream to a manager that stands by remains open, as a refusal there costs the manager a
// tenth of that call, and beats to a manager that refuses connections fail at once. So the
// calls of thousands of clients do not meet a manager that begins to lead.
const pauseAsk = 2 * time.Second

// Stream returns the open stream; nil: there is none.
func (c *Client) Stream() *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live()
}

// live is Stream, called under mu.
func (c *Client) live() *Stream {
	if c.stream != nil && c.stream.Err() != nil {
		c.stream = nil
	}
	return c.stream
}

// Close ends the open stream. Calls open another one.
func (c *Client) Close() error {
	s := c.Stream()
	if s == nil {
		return nil
	}
	return s.Close()
}

// Heartbeat calls over the stream, or makes the unary call.
func (c *Client) Heartbeat(ctx context.Context, req *connect.Request[managerv1.HeartbeatRequest]) (*connect.Response[managerv1.HeartbeatResponse], error) {
	return over(ctx, c, req, (*Stream).Heartbeat, c.ManagerServiceClient.Heartbeat)
}

// Renew calls over the stream, or makes the unary call.
func (c *Client) Renew(ctx context.Context, req *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	return over(ctx, c, req, (*Stream).Renew, c.ManagerServiceClient.Renew)
}

// over makes a call over the client's stream, within half of the time that it has. If there is
// no stream, or the call fails there, it makes the unary call. If the manager refuses
// connections, or stands by, it makes the unary call only now and then: see pauseAsk.
func over[Q, A any](ctx context.Context, c *Client, req *connect.Request[Q],
	beat func(*Stream, context.Context, *Q) (*A, error),
	unary func(context.Context, *connect.Request[Q]) (*connect.Response[A], error),
) (*connect.Response[A], error) {
	half, cancel := clock.HalfOf(ctx)
	defer cancel()
	s, away := c.opened(half)
	if s != nil {
		a, err := beat(s, half, req.Msg)
		if err == nil && a != nil {
			return connect.NewResponse(a), nil
		}
		if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == connect.CodeUnavailable {
			away = err
		}
	}
	if away == nil {
		return unary(ctx, req)
	}
	if !c.asks() {
		return nil, connect.NewError(connect.CodeUnavailable, away)
	}
	r, asked := unary(ctx, req)
	if asked == nil || connect.IsWireError(asked) && connect.CodeOf(asked) != connect.CodeUnavailable {
		c.found(s, away)
	}
	return r, asked
}

// found is called when a manager has answered a unary call. It is another one than that to
// which s goes, if s is not nil, or it has begun to lead.
func (c *Client) found(s *Stream, away error) {
	if s != nil {
		s.end(away)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away, c.ask, c.next = nil, time.Time{}, time.Time{}
}

// asks reports whether a call to a manager that is away, or stands by, asks for the leader.
func (c *Client) asks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Before(c.ask) {
		return false
	}
	c.ask = now.Add(clock.Jitter(pauseAsk))
	return true
}

// opened returns the client's stream, which one of its callers opens if that is due. The
// others wait for it: a manager to which thousands of processes come back has less to do for
// one stream than for a unary call of each caller. If there is no stream, away says why the
// manager cannot be connected to; nil: it serves no stream.
func (c *Client) opened(ctx context.Context) (s *Stream, away error) {
	c.mu.Lock()
	for c.opening != nil {
		opening := c.opening
		c.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, nil
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if s := c.live(); s != nil {
		return s, nil
	}
	if c.now().Before(c.next) {
		return nil, c.away
	}
	opening := make(chan struct{})
	c.opening = opening
	c.mu.Unlock()
	s, err := c.open(ctx)
	c.mu.Lock()
	c.stream, c.opening, c.away = s, nil, nil
	close(opening)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		c.away = err
	}
	pause := pauseOpen
	if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported {
		pause = pauseUnsupported
	}
	c.next = c.now().Add(clock.Jitter(pause))
	return s, c.away
}
