package beats

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// A Stream is the client's end of a stream of beats. It is safe for concurrent use, and may
// carry the beats of several servers and caches.
type Stream struct {
	conn   io.ReadWriteCloser
	served sync.WaitGroup // the goroutine of receive

	mu      sync.Mutex // guards the rest, and writes to conn
	out     []byte
	waiting []func(*managerv1.BeatAnswer, error) // for the answers to come, in order
	err     error                                // why the stream has ended
}

// UnsupportedError is the error of Dial where the manager, or a proxy before it, does not
// serve streams of beats to this caller.
type UnsupportedError struct{ Status string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("stream of beats: %s: want 101 Switching Protocols", e.Status)
}

// RefusedError is the error of a beat that the manager has refused. The unary call returns
// the whole error.
type RefusedError struct{ Code connect.Code }

func (e *RefusedError) Error() string { return "beat refused: " + e.Code.String() }

// Dial opens a stream to the manager whose control API is at url. A token, if not empty, is
// sent. ctx bounds only Dial. The caller closes the stream.
func Dial(ctx context.Context, client *http.Client, url, token string) (*Stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+Path, nil)
	if err != nil {
		return nil, fmt.Errorf("stream of beats: %w", err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", Protocol)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	r, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("stream of beats: %w", err)
	}
	conn, ok := r.Body.(io.ReadWriteCloser)
	if r.StatusCode != http.StatusSwitchingProtocols || !ok {
		return nil, errors.Join(&UnsupportedError{r.Status}, r.Body.Close())
	}
	s := &Stream{conn: conn}
	s.served.Go(s.receive)
	return s, nil
}

// Close ends the stream. Its waiting calls fail.
func (s *Stream) Close() error {
	s.end(errors.New("closed"))
	s.served.Wait()
	return nil
}

// Err returns why the stream has ended; nil: it has not.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Heartbeat is the call Heartbeat. It fails with a [*RefusedError], or with another error if
// the stream has ended. A call whose ctx ends also ends the stream: it is not known whether
// the manager is there.
func (s *Stream) Heartbeat(ctx context.Context, req *managerv1.HeartbeatRequest) (*managerv1.HeartbeatResponse, error) {
	a, err := s.call(ctx, &managerv1.Beat{Call: &managerv1.Beat_Heartbeat{Heartbeat: req}})
	return a.GetHeartbeat(), err
}

// Renew is the call Renew. It fails as Heartbeat does.
func (s *Stream) Renew(ctx context.Context, req *managerv1.RenewRequest) (*managerv1.RenewResponse, error) {
	a, err := s.call(ctx, &managerv1.Beat{Call: &managerv1.Beat_Renew{Renew: req}})
	return a.GetRenew(), err
}

func (s *Stream) call(ctx context.Context, b *managerv1.Beat) (*managerv1.BeatAnswer, error) {
	type result struct {
		answer *managerv1.BeatAnswer
		err    error
	}
	answered := make(chan result, 1)
	s.Send(b, func(a *managerv1.BeatAnswer, err error) { answered <- result{a, err} })
	select {
	case r := <-answered:
		if code, ok := r.answer.GetAnswer().(*managerv1.BeatAnswer_Refused); ok {
			return nil, &RefusedError{connect.Code(code.Refused)}
		}
		return r.answer, r.err
	case <-ctx.Done():
		s.end(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// Send sends a beat. It calls answered once, maybe before it returns: with the answer, which may
// be a refusal, or with an error if the beat could not be sent or the stream has ended. answered
// must not block, nor close the stream. Send waits while the system takes no more data.
func (s *Stream) Send(b *managerv1.Beat, answered func(*managerv1.BeatAnswer, error)) {
	s.mu.Lock()
	err := s.err
	if err == nil {
		s.out, err = appendMessage(s.out[:0], b)
	}
	if err != nil {
		s.mu.Unlock()
		answered(nil, err)
		return
	}
	s.waiting = append(s.waiting, answered)
	_, err = s.conn.Write(s.out)
	s.mu.Unlock()
	if err != nil {
		s.end(err)
	}
}

// receive passes the answers to the waiting calls until the stream ends.
func (s *Stream) receive() {
	in := bufio.NewReaderSize(s.conn, readBuffer)
	options := protodelim.UnmarshalOptions{MaxSize: MaxMessage}
	for {
		a := &managerv1.BeatAnswer{}
		if err := options.UnmarshalFrom(in, a); err != nil {
			s.end(err)
			return
		}
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.mu.Unlock()
			s.end(errors.New("an answer that no beat waits for"))
			return
		}
		answered := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		answered(a, nil)
	}
}

// end ends the stream once. It does not wait for receive, nor for a write that blocks.
func (s *Stream) end(cause error) {
	_ = s.conn.Close() // lets a write that blocks, and holds mu, return
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = fmt.Errorf("stream of beats has ended: %w", cause)
	err, waiting := s.err, s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, answered := range waiting {
		answered(nil, err)
	}
}
