package redytier

import (
	"slices"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// regionQueue is how a session reaches one virtual region, and what it holds back of the
// requests to it.
//
// A request waits in held while the region's gate holds its kind, or the region does
// not answer and the session waits for that (Config.WaitForLost), while requests
// issued over an earlier connection are not settled (two connections have no
// order between them), or while one that it overlaps waits: so what overlaps
// executes in program order wherever the region goes (A4, A41). Requests to other
// regions pass.
type regionQueue struct {
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
	changed      bool         // what is held may go, for all the regionQueue knows
	number       int          // of the region
	fresh        *atomic.Bool // to be set before the first write: the region is its origin's no more
}

// bind points the regionQueue at region r of the session's table, number i.
func (q *regionQueue) bind(s *Session, i int, r *region) {
	c := s.connOver(r)
	if q.conn != nil && q.conn != c && !q.fenced() && !q.conn.passed(q.conn.issued()) {
		q.after, q.mark = q.conn, q.conn.issued()
	}
	q.conn, q.number, q.index, q.strict = c, i, r.index, s.cache.cfg.StrictOrder
	q.remote = c.remoteOf(r.index)
	q.gate = r.gate
	if c.err != nil && s.waits.Load() {
		q.gate = holdReads | holdWrites
	}
	q.mirror = nil
	if r.mirror != nil {
		q.mirror, q.mirrorIndex = s.connOf(r.mirror), r.mirrorIndex
		q.mirrorRemote = q.mirror.remoteOf(r.mirrorIndex)
	}
	q.fresh = nil
	if r.origin != nil && !r.origin.written.Load() {
		q.fresh = &r.origin.written
	}
	q.changed = true
	q.setSlow()
}

// holdAll holds all requests until the session takes notice of another table.
func (q *regionQueue) holdAll() {
	q.gate = holdReads | holdWrites
	q.setSlow()
}

// setSlow sets slowReads and slowWrites.
func (q *regionQueue) setSlow() {
	q.slowReads = q.gate&holdReads != 0 || q.after != nil || len(q.held) > 0 || q.strict
	q.slowWrites = q.slowReads || q.gate != 0 || q.mirror != nil || q.fresh != nil
}

// slow says that requests of a kind have to look further.
func (q *regionQueue) slow(write bool) bool {
	if write {
		return q.slowWrites
	}
	return q.slowReads
}

// issue takes a request of the session's, or returns false where a connection is
// full. What has to wait is taken, and held.
func (q *regionQueue) issue(s *Session, r request) bool {
	r.remote, r.index = q.remote, q.index
	if !q.slow(r.write) {
		return q.conn.issue(r)
	}
	if q.waits(&r) {
		if len(q.held) == 0 {
			s.holding = append(s.holding, q.number)
		}
		q.held = append(q.held, r)
		q.slowReads, q.slowWrites = true, true
		s.held++
		return true
	}
	return q.send(s, r)
}

// waits says whether a request has to be held.
func (q *regionQueue) waits(r *request) bool {
	if q.closed(r.write) {
		return true
	}
	for i := range q.held {
		if h := &q.held[i]; (r.write || h.write) && r.offset < h.offset+int64(len(h.buf)) && h.offset < r.offset+int64(len(r.buf)) {
			return true
		}
	}
	return false
}

// closed says whether requests of a kind are held at the moment.
func (q *regionQueue) closed(write bool) bool {
	if q.fenced() {
		return true
	}
	return write && q.gate&holdWrites != 0 || !write && q.gate&holdReads != 0
}

// fenced says whether an earlier connection is still to be waited for. If it is,
// nothing of this regionQueue has gone over the present one.
func (q *regionQueue) fenced() bool {
	if q.after != nil && q.after.passed(q.mark) {
		q.after = nil
		q.changed = true
	}
	return q.after != nil
}

// send issues a request that need not wait, a write to the mirror as well.
func (q *regionQueue) send(s *Session, r request) bool {
	if q.fresh != nil && r.write {
		q.fresh.Store(true)
		q.fresh = nil
	}
	if q.mirror == nil || !r.write {
		return q.conn.issue(r)
	}
	if q.conn.full() || q.mirror.full() {
		return false
	}
	m := r
	m.mirror, m.remote, m.index = true, q.mirrorRemote, q.mirrorIndex
	s.ops[r.op].left += len(r.buf) // of both
	if !q.mirror.issue(m) {        // full below its queue
		s.ops[r.op].left -= len(r.buf)
		return false
	}
	return q.conn.issue(r) // if not, the mirror gets the same bytes once more, later
}

// release issues what need not wait any longer, in order, and returns how many
// requests that were. It looks at them only if something has changed for them: the
// gate, the connection before, or that the connection was full.
func (q *regionQueue) release(s *Session) int {
	if q.fenced() || !q.changed {
		return 0
	}
	q.changed = false
	all := q.held
	q.held = all[:0]
	for i, r := range all {
		if q.waits(&r) {
			q.held = append(q.held, r)
			continue
		}
		r.remote, r.index = q.remote, q.index
		if !q.send(s, r) {
			q.held = append(q.held, all[i:]...)
			q.changed = true
			break
		}
	}
	n := len(all) - len(q.held)
	clear(all[len(q.held):]) // keep nothing of the caller's alive
	q.setSlow()
	return n
}

// drop fails what is held.
func (q *regionQueue) drop(s *Session, err error) {
	if len(q.held) == 0 {
		return
	}
	s.holding = slices.DeleteFunc(s.holding, func(i int) bool { return i == q.number })
	for _, r := range q.held {
		s.finish(r.op, len(r.buf), err)
	}
	s.held -= len(q.held)
	q.held = nil
	q.setSlow()
}
