package beats

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protodelim"

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
	// Heartbeat and Renew serve the calls. Several streams call them at once.
	Heartbeat func(context.Context, *managerv1.HeartbeatRequest) (*managerv1.HeartbeatResponse, error)
	Renew     func(context.Context, *managerv1.RenewRequest) (*managerv1.RenewResponse, error)

	mu      sync.Mutex // guards waited
	waited  bool       // no stream begins
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
	defer h.mu.Unlock()
	if h.waited {
		_ = s.conn.Close()
		return
	}
	h.streams.Go(s.run)
}

// ServeHTTP begins a stream. It fails with 401 for a caller that may make neither call, and
// 426 for a request that does not ask for an upgrade, or has lost it in a proxy.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) || r.ProtoMajor != 1 {
		w.Header().Set("Upgrade", Protocol)
		http.Error(w, "want an HTTP/1.1 request that upgrades to "+Protocol, http.StatusUpgradeRequired)
		return
	}
	s := &served{h: h, authorization: r.Header.Get("Authorization")}
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
	s.conn = conn
	s.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn), readBuffer)
	if len(early) == 0 {
		s.in.Reset(conn)
	}
	h.begin(s)
}

// served is the manager's end of a stream. It belongs to the goroutine of run.
type served struct {
	h              *Handler
	conn           net.Conn
	in             *bufio.Reader
	out            []byte
	authorization  string
	server, client permit
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
	if now := time.Now(); now.Sub(p.checked) >= recheck {
		p.checked = now
		p.ctx, p.err = s.h.Admit(s.h.Context, procedure, s.authorization)
	}
	return p.err
}

// run serves the stream until it is broken or silent, or the handler's context ends.
func (s *served) run() {
	defer func() { _ = s.conn.Close() }()
	stop := context.AfterFunc(s.h.Context, func() { _ = s.conn.Close() })
	defer stop()
	if _, err := io.WriteString(s.conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n"); err != nil {
		return
	}
	options := protodelim.UnmarshalOptions{MaxSize: MaxMessage}
	var beat managerv1.Beat
	for s.extend() == nil {
		if err := options.UnmarshalFrom(s.in, &beat); err != nil {
			return // the peer has gone, or sends something else
		}
		answer, err := s.answer(&beat)
		if err != nil {
			answer = &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Refused{Refused: uint32(connect.CodeOf(err))}}
		}
		if s.out, err = appendMessage(s.out, answer); err != nil {
			return
		}
		if s.in.Buffered() > 0 && len(s.out) < maxHeld {
			continue // there are more beats of this process: one write answers all
		}
		if _, err := s.conn.Write(s.out); err != nil {
			return
		}
		s.out = s.out[:0]
	}
}

// maxHeld is the number of bytes of answers from which they are sent at the latest.
const maxHeld = 4 << 10

// extend postpones the deadline of a stream. Setting the deadline costs as much as serving a
// beat, so it is done when half of the time has passed.
func (s *served) extend() error {
	now := time.Now()
	if s.deadline.Sub(now) > Silence/2 {
		return nil
	}
	s.deadline = now.Add(Silence)
	return s.conn.SetDeadline(s.deadline)
}

func (s *served) answer(b *managerv1.Beat) (*managerv1.BeatAnswer, error) {
	switch call := b.GetCall().(type) {
	case *managerv1.Beat_Heartbeat:
		if err := s.admit(managerv1connect.ManagerServiceHeartbeatProcedure, &s.server); err != nil {
			return nil, err
		}
		r, err := s.h.Heartbeat(s.server.ctx, call.Heartbeat)
		if err != nil {
			return nil, err
		}
		return &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Heartbeat{Heartbeat: r}}, nil
	case *managerv1.Beat_Renew:
		if err := s.admit(managerv1connect.ManagerServiceRenewProcedure, &s.client); err != nil {
			return nil, err
		}
		r, err := s.h.Renew(s.client.ctx, call.Renew)
		if err != nil {
			return nil, err
		}
		return &managerv1.BeatAnswer{Answer: &managerv1.BeatAnswer_Renew{Renew: r}}, nil
	}
	return nil, connect.NewError(connect.CodeUnimplemented, nil)
}
