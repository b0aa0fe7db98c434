package kv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// CommitPoint says which operations of a named session are in a commit or a
// checkpoint: those with numbers up to Until, but for the ones in Excluding, which
// were read-modify-writes or inserts under way to a record on the device.
// Operations are numbered from 1 in the order in which the session was given them,
// see [Session.Serial].
type CommitPoint = manifest.CommitPoint

// maxName is the most bytes that the name of a session or a checkpoint has.
const maxName = 128

// NewNamedSession is [Store.NewSession] for a session whose commit point the
// store keeps under a name, from one process to the next. Numbers go on where the
// last session of that name ended, or where it was recovered to. A name has 1 to
// 128 bytes of UTF-8, or it is ErrBadName, and one open session at a time: ErrNameInUse.
// Names are kept for good,
// in everything that a commit writes: use few, again and again.
func (st *Store) NewNamedSession(name string) (*Session, error) {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) { // the manifest is JSON
		return nil, fmt.Errorf("%w: session %q: want 1 to %d bytes of UTF-8", ErrBadName, name, maxName)
	}
	s := st.makeSession()
	s.name = name
	if err := st.openSession(s); err != nil {
		return nil, err
	}
	return s, nil
}

// CommitPoint says what of the session of that name survives a crash from here
// on: as of the last commit or checkpoint, or as it was recovered. It is false for
// a name that none of these knows.
func (st *Store) CommitPoint(name string) (CommitPoint, bool) {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.durable[name]
	p.Excluding = slices.Clone(p.Excluding)
	return p, ok
}

// Serial is the number of the last operation that the session was given, in a
// call, a batch or a stream. A batch that a panic of a Modifier ended counts as
// far as it was begun.
func (s *Session) Serial() uint64 {
	staged := 0
	for i := range s.lanes {
		staged += s.lanes[i].n - s.lanes[i].next
	}
	return s.begun() + uint64(staged)
}

// begun is the number of the last operation that has its effect already, or a
// pending entry. Operations begin in the order of their numbers. What it is made of
// changes only inside an epoch, together with what it counts: so a barrier may
// ask for any session's, and finds what the log holds.
func (s *Session) begun() uint64 {
	n := s.before.Until + s.counts.refused
	for i := range s.counts.ops {
		n += uint64(s.counts.ops[i])
	}
	return n
}

// refuse gives an operation a number that has no effect.
func (s *Session) refuse() {
	s.enter()
	s.counts.refused++
	s.leave()
}

// commitPoint is the session's, in a barrier.
func (s *Session) commitPoint() CommitPoint {
	p := CommitPoint{Until: s.begun(), Excluding: slices.Clone(s.before.Excluding)}
	for i := range s.pending {
		if serial := s.pending[i].serial.Load(); serial != 0 {
			p.Excluding = append(p.Excluding, serial)
		}
	}
	slices.Sort(p.Excluding)
	return p
}

// exclusive runs f between the operations of all sessions: what was begun before
// has its effect, a pending operation, or is begun anew afterwards. f takes microseconds. It
// waits for the ends of those who hold locks and of whole batches, so that what they
// change is on one side of the barrier. After an error, which only the end of ctx
// makes, f was not run.
func (st *Store) exclusive(ctx context.Context, f func()) error {
	if err := lock(ctx, &st.wholes); err != nil {
		return fmt.Errorf("waiting for the ends of batches: %w", err)
	}
	defer st.wholes.Unlock()
	if err := lock(ctx, &st.transactions); err != nil {
		return fmt.Errorf("waiting for whoever holds locks: %w", err)
	}
	defer st.transactions.Unlock()
	st.epoch.Exclusive(f)
	return nil
}

// lock locks l unless it has to wait and ctx ends before.
func lock(ctx context.Context, l interface {
	sync.Locker
	TryLock() bool
}) error {
	if l.TryLock() {
		return nil
	}
	if ctx.Done() == nil {
		l.Lock()
		return nil
	}
	locked := make(chan struct{})
	go func() { // stays until l is free
		l.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			l.Unlock()
		}
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitPoints are those of all named sessions, in a barrier.
func (st *Store) commitPoints() map[string]CommitPoint {
	st.mu.Lock()
	defer st.mu.Unlock()
	points := maps.Clone(st.ended)
	for name, s := range st.named {
		points[name] = s.commitPoint()
	}
	return points
}
