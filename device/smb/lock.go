package smb

import (
	"fmt"
	"os"
	"strings"
)

// A directory belongs to one Device at a time. Each link has its own lock file in it, and
// keeps the file open in a mode in which it cannot be removed:
//
//	LOCK.OWNER.SESSION.LINK
//
// A Device that opens the directory creates its lock file first, and then tries to remove all
// others. A file that can be removed was left by a Device that has ended; one that cannot
// means that the directory is in use. If two Devices open it at once, one or both fail.
//
// The server may keep a broken link for a while, with pending writes. Its lock file shows
// that: while it cannot be removed, Start fails. If another Device has removed it, the
// directory belonged to that Device meanwhile, and this one must not use it any more.

const lockPrefix = "LOCK."

// staleLock is the lock file of a link that broke.
type staleLock struct {
	name  string
	tried bool // its removal was tried: if it does not exist, this Device removed it
}

// takeLock creates the link's lock file, and returns an error if another Device holds one.
// The caller holds s.mu.
func (s *session) takeLock(l *link) (err error) {
	d := s.d
	if d.opts.Dir != "" && s.made == 0 && s.number == 0 {
		if err := l.makeDir(d.opts.Dir); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%s%s.%d.%d", lockPrefix, d.owner, s.number, s.made)
	s.made++
	defer func() {
		if err != nil {
			// It may exist or not.
			s.stale = append(s.stale, staleLock{name: name, tried: true})
		}
	}()
	if l.lock, err = l.share.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
		return err
	}
	names, err := l.list(d)
	if err != nil {
		return err
	}
	for _, other := range names {
		if !strings.HasPrefix(other, lockPrefix) || strings.HasPrefix(other, lockPrefix+d.owner+".") {
			continue
		}
		err := l.share.Remove(d.path(other))
		if answered(err, statusSharingViolation) {
			return fmt.Errorf("%w: %s: another process holds %s", ErrLocked, d.opts.place(), other)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	if err := s.sweepLocks(l); err != nil && !answered(err, statusSharingViolation) {
		return err
	}
	s.lock = name
	return nil
}

// sweepLocks removes the lock files of the session's links that broke. The caller
// holds s.mu.
func (s *session) sweepLocks(l *link) error {
	for len(s.stale) > 0 {
		lock := &s.stale[0]
		err := l.share.Remove(s.d.path(lock.name))
		if gone(err) && !lock.tried {
			return s.d.fence(fmt.Errorf("%w: %s: another process has removed %s", ErrLocked, s.d.opts.place(), lock.name))
		}
		lock.tried = true
		if err != nil && !gone(err) {
			return err
		}
		s.stale = s.stale[1:]
	}
	return nil
}

// settle returns nil if the server has ended all requests of broken links.
func (s *session) settle() error {
	l, err := s.connect()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.conn.begin()
	defer l.conn.end()
	err = s.sweepLocks(l)
	if answered(err, statusSharingViolation) {
		return fmt.Errorf("smb: %s: the server has not ended a lost connection yet, try again: %w", s.d.opts.place(), err)
	}
	return err
}

// leaveLock removes the link's lock file. The caller holds s.mu.
func (s *session) leaveLock(l *link) error {
	if err := l.lock.Close(); err != nil {
		return err
	}
	if err := s.sweepLocks(l); err != nil && !answered(err, statusSharingViolation) {
		return err // the next Device removes it
	}
	return l.share.Remove(s.d.path(s.lock))
}
