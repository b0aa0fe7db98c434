package smb

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
)

// session holds one link at a time. When it breaks, the next request makes another.
type session struct {
	d      *Device
	number int

	mu      sync.Mutex // guards the fields below; held while a link is made
	link    *link      // nil: none
	lock    string     // the lock file of link
	made    int        // links tried so far
	stale   []staleLock
	why     error     // of the last link that could not be made
	retryAt time.Time // earliest time of the next attempt
	pause   time.Duration
}

// Pauses between attempts to connect, and to carry a request out.
const (
	firstPause = time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// do calls what with a link. With ErrDisconnected, no request was sent to the server, or only
// one that changes nothing.
func (s *session) do(changes bool, what func(*link) error) error {
	l, err := s.connect()
	if err != nil {
		return err
	}
	l.conn.begin()
	err = what(l)
	l.conn.end()
	if err == nil || !connectionLost(err) {
		return err
	}
	err = s.d.lost(err, changes) // before another link answers reads
	s.drop(l)
	return err
}

// connect returns the link, and makes one if there is none or it is broken.
func (s *session) connect() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		if !s.link.conn.broken.Load() {
			return s.link, nil
		}
		s.dropLink()
	}
	switch {
	case s.d.closed.Load():
		return nil, device.ErrClosed
	case time.Now().Before(s.retryAt):
		return nil, s.why
	}
	if err := s.d.fence(nil); err != nil {
		return nil, err
	}
	l, err := s.establish()
	if err != nil {
		s.pause = min(max(2*s.pause, firstPause), lastPause)
		s.retryAt = time.Now().Add(s.pause)
		if !errors.Is(err, ErrLocked) {
			err = fmt.Errorf("%w: %w", ErrDisconnected, err)
		}
		s.why = err
		return nil, err
	}
	s.link, s.pause = l, 0
	return l, nil
}

// establish makes a link that holds a lock file. The caller holds mu.
func (s *session) establish() (*link, error) {
	l, err := dial(&s.d.opts)
	if err != nil {
		return nil, err
	}
	l.conn.begin()
	defer l.conn.end()
	if err := s.takeLock(l); err != nil {
		l.abandon()
		return nil, err
	}
	l.conn.notifyBreak(func(err error) {
		s.d.opts.Logger.Warn("connection to the file server lost", "place", s.d.opts.place(), "session", s.number, "err", err)
		_ = s.d.lost(err, false) // its pending requests return the error
	})
	return l, nil
}

// drop abandons a link that failed a request.
func (s *session) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.dropLink()
	}
}

// dropLink abandons the link. The caller holds mu.
func (s *session) dropLink() {
	s.link.abandon()
	s.stale = append(s.stale, staleLock{name: s.lock})
	s.link = nil
}

// shut closes the session's handle of a file that is gone.
func (s *session) shut(f *file) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return
	}
	l.conn.begin()
	err := l.shut(f)
	l.conn.end()
	if err != nil && connectionLost(err) {
		_ = s.d.lost(err, false)
		s.drop(l)
	}
}

// close ends the session, which is not used any more.
func (s *session) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.link
	if l == nil {
		return nil
	}
	s.link = nil
	l.conn.notifyBreak(nil)
	l.conn.begin()
	defer l.conn.end()
	err := s.leaveLock(l)
	if err = errors.Join(err, l.close()); err != nil && !connectionLost(err) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("smb: %s: log off: %w", s.d.opts.place(), err)
	}
	return nil
}
