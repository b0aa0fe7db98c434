package beats

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

// Handler serves streams of beats over HTTP/1.1. Its exported fields do not change once it
// serves.
type Handler struct {
	// Context ends all streams when it ends.
	Context context.Context
	// Admit returns the context of a call of a procedure, by the value of the header
	// Authorization, or the error that refuses it.
	Admit func(ctx context.Context, procedure, authorization string) (context.Context, error)
	// Heartbeat and Renew serve the calls. They do not block: if an answer has to wait, for
	// what it tells to be written, they return wait, which waits. One goroutine calls them for
	// many streams. They do not keep the request, and do not change an answer later: one that is
	// returned again is not encoded again.
	Heartbeat func(context.Context, *managerv1.HeartbeatRequest) (_ *managerv1.HeartbeatResponse, wait func() error, _ error)
	Renew     func(context.Context, *managerv1.RenewRequest) (_ *managerv1.RenewResponse, wait func() error, _ error)

	mu      sync.Mutex // guards the rest
	waited  bool       // no stream begins
	poller  *poller    // of the streams without TLS; nil: none has begun, or there is none
	streams sync.WaitGroup
}

// Wait waits until all streams have ended. Context must have ended. None begins afterwards.
func (h *Handler) Wait() {
	h.mu.Lock()
	h.waited = true
	h.mu.Unlock()
	h.streams.Wait()
}

// begin runs a stream, unless Wait was called.
func (h *Handler) begin(s *served) {
	h.mu.Lock()
	if h.waited {
		h.mu.Unlock()
		_ = s.conn.Close()
		return
	}
	h.streams.Add(1)
	defer h.streams.Done()
	if h.poller == nil {
		h.poller = newPoller(h)
	}
	p := h.poller
	h.mu.Unlock()
	if p == nil || !p.take(s) {
		h.streams.Go(s.run)
	}
}

// ServeHTTP begins a stream. It fails with 401 for a caller that may make neither call, and
// 426 for a request that does not ask for an upgrade, or has lost it in a proxy.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) || r.ProtoMajor != 1 {
		w.Header().Set("Upgrade", Protocol)
		http.Error(w, "want an HTTP/1.1 request that upgrades to "+Protocol, http.StatusUpgradeRequired)
		return
	}
	s := &served{h: h, authorization: r.Header.Get("Authorization"), now: time.Now()}
	heartbeat, renew := s.admit(managerv1connect.ManagerServiceHeartbeatProcedure, &s.server), s.admit(managerv1connect.ManagerServiceRenewProcedure, &s.client)
	if heartbeat != nil && renew != nil {
		http.Error(w, renew.Error(), http.StatusUnauthorized)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusUpgradeRequired)
		return
	}
	// The goroutine of the request, its buffers and its stack end here: there are many
	// streams, which are idle most of the time.
	early, err := rw.Peek(rw.Reader.Buffered())
	if err != nil {
		_ = conn.Close()
		return
	}
	s.conn, s.in = conn, bytes.Clone(early)
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	h.begin(s)
}

// served is the manager's end of a stream. It belongs to the goroutine of run, or to the
// poller, or to the goroutine to which the poller has lent it while an answer waits.
type served struct {
	h              *Handler
	conn           net.Conn // of run
	socket         int      // of the poller
	in             []byte   // received, and not complete
	out            []byte   // answers that are to be sent
	beat           beat
	alive, renewed encoded // the last answers of both calls
	authorization  string
	server, client permit
	now            time.Time // of the last read
	deadline       time.Time // of the next read
}

// permit is the result of the last check of a stream's token for one call.
type permit struct {
	ctx     context.Context // of the calls
	err     error
	checked time.Time
}

// recheck is the interval at which the token of a stream is checked again.
const recheck = time.Second

// admit checks the stream's token for a procedure, if that is due.
func (s *served) admit(procedure string, p *permit) error {
	if s.now.Sub(p.checked) >= recheck {
		p.checked = s.now
		p.ctx, p.err = s.h.Admit(s.h.Context, procedure, s.authorization)
	}
	return p.err
}

// run serves the stream until it is broken or silent, or the handler's context ends.
func (s *served) run() {
	defer func() { _ = s.conn.Close() }()
	stop := context.AfterFunc(s.h.Context, func() { _ = s.conn.Close() })
	defer stop()
	buffer := make([]byte, readBuffer)
	for {
		s.now = time.Now()
		if s.serveAll(s.in) != nil {
			return // the peer sends something else
		}
		if _, err := s.conn.Write(s.out); err != nil {
			return
		}
		s.out = s.out[:0]
		if s.extend() != nil {
			return
		}
		n, err := s.conn.Read(buffer)
		if err != nil {
			return // the peer has gone
		}
		s.in = append(s.in, buffer[:n]...)
	}
}

// extend postpones the deadline of a stream. Setting the deadline costs as much as serving a
// beat, so it is done when half of the time has passed.
func (s *served) extend() error {
	if s.deadline.Sub(s.now) > Silence/2 {
		return nil
	}
	s.deadline = s.now.Add(Silence)
	return s.conn.SetDeadline(s.deadline)
}

// serveAll serves the beats of what was received, and waits for their answers.
func (s *served) serveAll(in []byte) error {
	for {
		rest, wait, err := s.serve(in)
		if err == nil && wait != nil {
			err = wait()
		}
		if err != nil {
			return err
		}
		if wait == nil {
			s.in = append(s.in[:0], rest...)
			return nil
		}
		in = rest
	}
}

// errBeat is the error of a stream that has something else than beats.
var errBeat = errors.New("not a beat")

// serve serves the beats of what was received, up to one whose answer has to wait. It returns
// the bytes that are left. wait is to be called before them: it adds the answer.
func (s *served) serve(in []byte) (rest []byte, wait func() error, err error) {
	for {
		size, n := protowire.ConsumeVarint(in)
		switch {
		case n < 0 && len(in) < maxVarint:
			return in, nil, nil
		case n < 0 || size > MaxMessage:
			return nil, nil, errBeat
		case uint64(len(in)-n) < size:
			return in, nil, nil
		}
		message := in[n : n+int(size)]
		in = in[n+int(size):]
		if err := s.beat.decode(message); err != nil {
			return nil, nil, err
		}
		answer, wait, err := s.answer(&s.beat)
		if err == nil && wait != nil {
			return in, func() error { return s.reply(answer, wait()) }, nil
		}
		if err := s.reply(answer, err); err != nil {
			return nil, nil, err
		}
	}
}

// maxVarint is the size of the longest varint.
const maxVarint = 10

// reply adds an answer to those that are to be sent.
func (s *served) reply(answer []byte, refusal error) (err error) {
	if refusal == nil {
		s.out = append(s.out, answer...)
		return nil
	}
	s.out, err = appendMessage(s.out, &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Refused{Refused: uint32(connect.CodeOf(refusal))}})
	return err
}

// encoded is an answer and its message.
type encoded struct {
	answer  any // pointer to the answer
	message []byte
}

// of returns the message of an answer.
func (e *encoded) of(answer any, wrap func() *managerv1.BeatAnswer) (_ []byte, err error) {
	if e.answer != answer {
		e.answer = answer
		e.message, err = appendMessage(nil, wrap())
	}
	return e.message, err
}

// answer serves one beat, and returns the message of its answer. If wait is not nil, it returns
// why the answer does not hold.
func (s *served) answer(b *beat) (answer []byte, wait func() error, err error) {
	switch {
	case b.heartbeat != nil:
		if err := s.admit(managerv1connect.ManagerServiceHeartbeatProcedure, &s.server); err != nil {
			return nil, nil, err
		}
		r, wait, err := s.h.Heartbeat(s.server.ctx, b.heartbeat)
		if err != nil {
			return nil, nil, err
		}
		answer, err = s.alive.of(r, func() *managerv1.BeatAnswer {
			return &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Heartbeat{Heartbeat: r}}
		})
		return answer, wait, err
	case b.renew != nil:
		if err := s.admit(managerv1connect.ManagerServiceRenewProcedure, &s.client); err != nil {
			return nil, nil, err
		}
		r, wait, err := s.h.Renew(s.client.ctx, b.renew)
		if err != nil {
			return nil, nil, err
		}
		answer, err = s.renewed.of(r, func() *managerv1.BeatAnswer {
			return &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Renew{Renew: r}}
		})
		return answer, wait, err
	}
	return nil, nil, connect.NewError(connect.CodeUnimplemented, nil)
}
