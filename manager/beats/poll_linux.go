package beats

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/clock"
)

// A poller serves many streams from one goroutine. If each had its own, half of what a beat
// costs would be the thread and the goroutine that wake for it. The poller wakes once for all
// beats of a few milliseconds, and an idle stream needs neither a stack nor a buffer. Streams with
// TLS are served by run.
//
// A stream that has an answer to wait for is lent to a goroutine: its socket is disarmed until
// that has sent the answer.
type poller struct {
	h     *Handler
	epoll int // file of the sockets' events
	ended int // eventfd that is readable when the handler's context has ended

	mu      sync.Mutex      // guards the rest
	streams map[int]*served // by socket, but for the lent ones
	closed  bool
}

const (
	// gather is the pause after some beats were served, in which the next ones arrive. A beat
	// that comes alone is served at once.
	gather = 8 * time.Millisecond
	// pollBatch bounds the streams that are served at a time.
	pollBatch = 256
	// pollBuffer is the size of the buffer into which a stream's beats are read.
	pollBuffer = 8 << 10
)

// newPoller starts the poller of a handler; nil: the system has no more files.
func newPoller(h *Handler) *poller {
	p := &poller{h: h, streams: make(map[int]*served)}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil
	}
	if p.ended, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(p.epoll)
		return nil
	}
	if p.watch(unix.EPOLL_CTL_ADD, p.ended, unix.EPOLLIN) != nil {
		p.closeFiles()
		return nil
	}
	h.streams.Go(p.run)
	return p
}

func (p *poller) closeFiles() {
	_ = unix.Close(p.epoll)
	_ = unix.Close(p.ended)
}

// watch sets the events of a file for which the poller wakes.
func (p *poller) watch(operation, file int, events uint32) error {
	return unix.EpollCtl(p.epoll, operation, file, &unix.EpollEvent{Events: events, Fd: int32(file)})
}

// take makes a stream the poller's. It returns false if the stream has to be served by run.
func (p *poller) take(s *served) bool {
	conn, ok := s.conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	// Go's runtime would wake a thread for each beat of a socket that it knows. It does not
	// know the socket's second descriptor, and forgets the first one.
	if e := raw.Control(func(fd uintptr) { s.socket, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		return false
	}
	s.conn = nil
	_ = conn.Close()
	p.finish(s, unix.EPOLL_CTL_ADD, nil, s.in)
	return true
}

// finish serves what a stream has sent, after an answer that may have to wait, and gives the
// stream back to the poller.
func (p *poller) finish(s *served, operation int, wait func() error, in []byte) {
	var err error
	if wait != nil {
		err = wait()
	}
	if err == nil {
		err = s.serveAll(in)
	}
	if err == nil {
		err = s.send()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.closed || p.watch(operation, s.socket, unix.EPOLLIN) != nil {
		_ = unix.Close(s.socket)
		return
	}
	p.streams[s.socket] = s
}

// run serves streams until the handler's context ends.
func (p *poller) run() {
	// The eventfd is not closed before the function is stopped, or has returned.
	told := make(chan struct{})
	stop := context.AfterFunc(p.h.Context, func() {
		defer close(told)
		_, _ = unix.Write(p.ended, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer p.closeFiles()
	defer func() {
		if !stop() {
			<-told
		}
	}()
	defer p.end()
	events, buffer := make([]unix.EpollEvent, pollBatch), make([]byte, pollBuffer)
	for swept := time.Now(); p.h.Context.Err() == nil; {
		n, err := unix.EpollWait(p.epoll, events, int((Silence / 4).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		now := time.Now()
		for _, e := range events[:max(0, n)] {
			p.mu.Lock()
			s := p.streams[int(e.Fd)]
			p.mu.Unlock()
			if s != nil {
				s.now = now
				p.serve(s, buffer)
			}
		}
		if now.Sub(swept) > Silence/4 {
			swept = now
			p.sweep(now)
		}
		if 0 < n && n < len(events) {
			clock.Sleep(p.h.Context, gather)
		}
	}
}

// serve serves what a stream has sent.
func (p *poller) serve(s *served, buffer []byte) {
	n, err := unix.Read(s.socket, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil || n == 0:
		p.close(s) // the peer has gone
		return
	}
	in := buffer[:n]
	if len(s.in) > 0 {
		s.in = append(s.in, in...)
		in = s.in
	}
	rest, wait, err := s.serve(in)
	if err == nil && wait != nil {
		p.lend(s, wait, bytes.Clone(rest))
		return
	}
	s.in = append(s.in[:0], rest...)
	if err != nil || s.send() != nil {
		p.close(s)
	}
}

// lend lets a goroutine wait for an answer of a stream.
func (p *poller) lend(s *served, wait func() error, in []byte) {
	p.mu.Lock()
	delete(p.streams, s.socket)
	p.mu.Unlock()
	if p.watch(unix.EPOLL_CTL_MOD, s.socket, 0) != nil {
		_ = unix.Close(s.socket)
		return
	}
	p.h.streams.Go(func() { p.finish(s, unix.EPOLL_CTL_MOD, wait, in) })
}

// send sends the answers of a stream. It does not wait for a peer that does not read them, and
// returns an error.
func (s *served) send() error {
	for len(s.out) > 0 {
		n, err := unix.Write(s.socket, s.out)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		s.out = append(s.out[:0], s.out[max(0, n):]...)
	}
	return nil
}

// close ends a stream.
func (p *poller) close(s *served) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, s.socket)
	_ = unix.Close(s.socket)
}

// sweep ends the streams that were silent for too long.
func (p *poller) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for socket, s := range p.streams {
		if now.Sub(s.now) > Silence {
			delete(p.streams, socket)
			_ = unix.Close(socket)
		}
	}
}

// end ends all streams but the lent ones, which end when they are given back.
func (p *poller) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.streams {
		_ = unix.Close(s.socket)
	}
	p.streams = nil
}
