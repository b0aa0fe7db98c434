package redytier

import (
	"slices"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// lane is how a session reaches one virtual region, and what it holds back of the
// requests to it.
//
// A request waits in held while the region's gate holds its kind, or the region does
// not answer and the session waits for that (Config.WaitForLost), while requests
// issued over an earlier connection are not settled (two connections have no
// order between them), or while one that it overlaps waits: so what overlaps
// executes in program order wherever the region goes (A4, A41). Requests to other
// regions pass.
type lane struct {
	conn   *conn
	remote fabric.Remote
	index  uint32
	strict bool // Config.StrictOrder

	// slowReads and slowWrites say that something below concerns them. Reads of a
	// region that moves are as quick as ever.
	slowReads, slowWrites bool

	gate         gate
	mirror       *conn // gets every write as well
	mirrorRemote fabric.Remote
	mirrorIndex  uint32
	after        *conn  // requests wait until it has settled
	mark         uint64 // what it had issued
	held         []request
	stirred      bool         // what is held may go, for all the lane knows
	number       int          // of the region
	fresh        *atomic.Bool // to be set before the first write: the region is its origin's no more
}

// bind points the lane at region r of the session's table, number i.
func (l *lane) bind(s *Session, i int, r *region) {
	c := s.connOver(r)
	if l.conn != nil && l.conn != c && !l.fenced() && !l.conn.passed(l.conn.issued()) {
		l.after, l.mark = l.conn, l.conn.issued()
	}
	l.conn, l.number, l.index, l.strict = c, i, r.index, s.cache.cfg.StrictOrder
	l.remote = c.remoteOf(r.index)
	l.gate = r.gate
	if c.err != nil && s.waits.Load() {
		l.gate = holdReads | holdWrites
	}
	l.mirror = nil
	if r.mirror != nil {
		l.mirror, l.mirrorIndex = s.connOf(r.mirror), r.mirrorIndex
		l.mirrorRemote = l.mirror.remoteOf(r.mirrorIndex)
	}
	l.fresh = nil
	if r.origin != nil && !r.origin.written.Load() {
		l.fresh = &r.origin.written
	}
	l.stirred = true
	l.judge()
}

// holdAll holds all requests until the session takes notice of another table.
func (l *lane) holdAll() {
	l.gate = holdReads | holdWrites
	l.judge()
}

// judge sets slowReads and slowWrites.
func (l *lane) judge() {
	l.slowReads = l.gate&holdReads != 0 || l.after != nil || len(l.held) > 0 || l.strict
	l.slowWrites = l.slowReads || l.gate != 0 || l.mirror != nil || l.fresh != nil
}

// slow says that requests of a kind have to look further.
func (l *lane) slow(write bool) bool {
	if write {
		return l.slowWrites
	}
	return l.slowReads
}

// issue takes a request of the session's, or returns false where a connection is
// full. What has to wait is taken, and held.
func (l *lane) issue(s *Session, r request) bool {
	r.remote, r.index = l.remote, l.index
	if !l.slow(r.write) {
		return l.conn.issue(r)
	}
	if l.waits(&r) {
		if len(l.held) == 0 {
			s.holding = append(s.holding, l.number)
		}
		l.held = append(l.held, r)
		l.slowReads, l.slowWrites = true, true
		s.held++
		return true
	}
	return l.send(s, r)
}

// waits says whether a request has to be held.
func (l *lane) waits(r *request) bool {
	if l.closed(r.write) {
		return true
	}
	for i := range l.held {
		if h := &l.held[i]; (r.write || h.write) && r.offset < h.offset+int64(len(h.buf)) && h.offset < r.offset+int64(len(r.buf)) {
			return true
		}
	}
	return false
}

// closed says whether requests of a kind are held at the moment.
func (l *lane) closed(write bool) bool {
	if l.fenced() {
		return true
	}
	return write && l.gate&holdWrites != 0 || !write && l.gate&holdReads != 0
}

// fenced says whether an earlier connection is still to be waited for. If it is,
// nothing of this lane has gone over the present one.
func (l *lane) fenced() bool {
	if l.after != nil && l.after.passed(l.mark) {
		l.after = nil
		l.stirred = true
	}
	return l.after != nil
}

// send issues a request that need not wait, a write to the mirror as well.
func (l *lane) send(s *Session, r request) bool {
	if l.fresh != nil && r.write {
		l.fresh.Store(true)
		l.fresh = nil
	}
	if l.mirror == nil || !r.write {
		return l.conn.issue(r)
	}
	if l.conn.full() || l.mirror.full() {
		return false
	}
	m := r
	m.mirror, m.remote, m.index = true, l.mirrorRemote, l.mirrorIndex
	s.ops[r.op].left += len(r.buf) // of both
	if !l.mirror.issue(m) {        // full below its queue
		s.ops[r.op].left -= len(r.buf)
		return false
	}
	return l.conn.issue(r) // if not, the mirror gets the same bytes once more, later
}

// letGo issues what need not wait any longer, in order, and returns how many
// requests that were. It looks at them only if something has changed for them: the
// gate, the connection before, or that the connection was full.
func (l *lane) letGo(s *Session) int {
	if l.fenced() || !l.stirred {
		return 0
	}
	l.stirred = false
	all := l.held
	l.held = all[:0]
	for i, r := range all {
		if l.waits(&r) {
			l.held = append(l.held, r)
			continue
		}
		r.remote, r.index = l.remote, l.index
		if !l.send(s, r) {
			l.held = append(l.held, all[i:]...)
			l.stirred = true
			break
		}
	}
	n := len(all) - len(l.held)
	clear(all[len(l.held):]) // keep nothing of the caller's alive
	l.judge()
	return n
}

// drop fails what is held.
func (l *lane) drop(s *Session, err error) {
	if len(l.held) == 0 {
		return
	}
	s.holding = slices.DeleteFunc(s.holding, func(i int) bool { return i == l.number })
	for _, r := range l.held {
		s.finish(r.op, len(r.buf), err)
	}
	s.held -= len(l.held)
	l.held = nil
	l.judge()
}
