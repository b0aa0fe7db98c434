package redytier

import (
	"slices"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// regionQueue is a session's queue to one virtual region: the connection to it, and the
// requests that are held back.
//
// A request is held while the connection is not open yet or the region not imported over it,
// while the region's gate holds its kind, while the region is lost and the session waits for that
// (Config.WaitForLost), while requests on an earlier connection are not settled (connections have
// no order between them), or while a request that it overlaps is held. So overlapping requests
// execute in program order also when the region moves (A4, A41). Requests to other regions are not
// delayed.
type regionQueue struct {
	conn   *conn
	remote fabric.Remote
	index  uint32
	strict bool // Config.StrictOrder

	// slowReads and slowWrites say that reads or writes have to check the fields below.
	slowReads, slowWrites bool

	gate         gate
	place        *endpoint // of conn; nil: the region is lost
	mirrorPlace  *endpoint
	mirror       *conn // gets every write as well
	mirrorRemote fabric.Remote
	mirrorIndex  uint32
	twins        *twins // of the writes to both
	after        *conn  // earlier connection: requests wait until it has settled those up to mark
	mark         uint64
	held         []request
	changed      bool         // held requests may be releasable
	number       int          // the region's number
	written      *atomic.Bool // set before the first write; nil if it is set already, or there is no origin
}

// bind connects the queue to region r of the session's table, number i.
func (q *regionQueue) bind(s *Session, i int, r *region) {
	c := s.connOver(r)
	if q.conn != nil && q.conn != c && !q.fenced() && !q.conn.passed(q.conn.issued()) {
		q.after, q.mark = q.conn, q.conn.issued()
	}
	q.conn, q.place, q.number, q.index, q.strict = c, r.endpoint, i, r.index, s.cache.cfg.StrictOrder
	q.remote = c.remoteOf(r.index)
	q.gate = r.gate
	if c.err != nil && s.waits.Load() {
		q.gate = holdReads | holdWrites
	}
	q.mirror, q.mirrorPlace, q.twins = nil, r.mirror, r.twins
	if r.mirror != nil {
		q.mirror, q.mirrorIndex = s.connOf(r.mirror), r.mirrorIndex
		q.mirrorRemote = q.mirror.remoteOf(r.mirrorIndex)
	}
	q.written = nil
	if r.origin != nil && !r.origin.written.Load() {
		q.written = &r.origin.written
	}
	q.changed = true
	q.setSlow()
	if len(q.held) > 0 {
		q.open(s)
	}
}

// open opens the connections, and imports the region, that held requests need.
func (q *regionQueue) open(s *Session) {
	if !q.conn.reaches(q.remote) {
		s.open(place{q.number, q.place, q.index})
	}
	if q.mirror != nil && !q.mirror.reaches(q.mirrorRemote) {
		s.open(place{q.number, q.mirrorPlace, q.mirrorIndex})
	}
}

// outdated reports whether a region was imported since the queue was bound.
func (q *regionQueue) outdated() bool {
	return q.remote != q.conn.remoteOf(q.index) || q.mirror != nil && q.mirrorRemote != q.mirror.remoteOf(q.mirrorIndex)
}

// holdAll holds all requests until the session uses another table.
func (q *regionQueue) holdAll() {
	q.gate = holdReads | holdWrites
	q.setSlow()
}

// setSlow sets slowReads and slowWrites.
func (q *regionQueue) setSlow() {
	q.slowReads = !q.conn.reaches(q.remote) || q.gate&holdReads != 0 || q.after != nil || len(q.held) > 0 || q.strict
	q.slowWrites = q.slowReads || q.gate != 0 || q.mirror != nil || q.written != nil
}

// slow reports whether requests of a kind take the slow path.
func (q *regionQueue) slow(write bool) bool {
	if write {
		return q.slowWrites
	}
	return q.slowReads
}

// issue issues or holds a request, or returns false if a connection is full.
func (q *regionQueue) issue(s *Session, r request) bool {
	slow := q.slow(r.write)
	if slow && q.outdated() {
		q.bind(s, q.number, s.table.regions.at(q.number))
	}
	r.remote, r.index = q.remote, q.index
	if !slow {
		return q.conn.issue(r)
	}
	if q.waits(&r) || !q.inTurn(s, &r) {
		if len(q.held) == 0 {
			s.holding = append(s.holding, q.number)
		}
		q.held = append(q.held, r)
		q.slowReads, q.slowWrites = true, true
		s.held++
		q.open(s)
		return true
	}
	if !q.send(s, r) {
		r.forget()
		return false
	}
	return true
}

// waits reports whether a request has to be held.
func (q *regionQueue) waits(r *request) bool {
	if q.closed(r.write) {
		return true
	}
	for i := range q.held {
		// Reads wait for reads, too: the region may be lost, or another session may write to it, before
		// the held one executes.
		if h := &q.held[i]; r.offset < h.offset+int64(len(h.buf)) && h.offset < r.offset+int64(len(r.buf)) {
			return true
		}
	}
	return false
}

// inTurn reports whether no earlier write to both places, of any session, has to end before a request,
// which waits for nothing else.
func (q *regionQueue) inTurn(s *Session, r *request) bool {
	if !r.write {
		return true
	}
	if r.twin != nil && r.twin.of != q.twins { // of a mirror that is gone
		r.forget()
	}
	if q.twins == nil {
		return true
	}
	if r.twin == nil {
		r.twin = q.twins.add(s, r.offset, r.offset+int64(len(r.buf)))
	}
	if r.twin.first() {
		return true
	}
	q.changed = true // its turn comes without a change of the queue
	return false
}

// forget ends the request's wait for its turn.
func (r *request) forget() {
	if r.twin != nil {
		r.twin.settle(1)
		r.twin = nil
	}
}

// closed reports whether all requests of a kind are held.
func (q *regionQueue) closed(write bool) bool {
	if q.fenced() || !q.conn.reaches(q.remote) || write && q.mirror != nil && !q.mirror.reaches(q.mirrorRemote) {
		return true
	}
	return write && q.gate&holdWrites != 0 || !write && q.gate&holdReads != 0
}

// fenced reports whether requests wait for an earlier connection. If so, the queue has issued
// nothing on the current one.
func (q *regionQueue) fenced() bool {
	if q.after != nil && q.after.passed(q.mark) {
		q.after = nil
		q.changed = true
	}
	return q.after != nil
}

// send issues a request. A write to a mirrored region also goes to the mirror.
func (q *regionQueue) send(s *Session, r request) bool {
	if q.written != nil && r.write {
		q.written.Store(true)
		q.written = nil
	}
	if q.mirror == nil || !r.write {
		return q.conn.issue(r)
	}
	if q.conn.full() || q.mirror.full() {
		return false
	}
	m := r
	m.mirror, m.remote, m.index = true, q.mirrorRemote, q.mirrorIndex
	s.ops[r.op].left += len(r.buf) // of both writes
	r.twin.left += len(r.buf)
	if !q.mirror.issue(m) { // the queue pair is full
		s.ops[r.op].left -= len(r.buf)
		r.twin.left -= len(r.buf)
		return false
	}
	r.twin.left += len(r.buf)
	if !q.conn.issue(r) { // the mirror gets the same bytes again later
		r.twin.left -= len(r.buf)
		return false
	}
	r.twin.settle(1)
	return true
}

// release issues held requests that need not wait any longer, in order, and returns their
// number. It checks them only after a change: of the gate, of the connection before, or of
// a full connection.
func (q *regionQueue) release(s *Session) int {
	if q.fenced() || !q.changed {
		return 0
	}
	q.changed = false
	all := q.held
	q.held = all[:0]
	for i, r := range all {
		if q.waits(&r) || !q.inTurn(s, &r) {
			q.held = append(q.held, r)
			continue
		}
		r.remote, r.index = q.remote, q.index
		if !q.send(s, r) {
			all[i] = r // which keeps its turn
			q.held = append(q.held, all[i:]...)
			q.changed = true
			break
		}
	}
	n := len(all) - len(q.held)
	clear(all[len(q.held):]) // drop references to buffers
	q.setSlow()
	return n
}

// drop fails all held requests.
func (q *regionQueue) drop(s *Session, err error) {
	if len(q.held) == 0 {
		return
	}
	s.holding = slices.DeleteFunc(s.holding, func(i int) bool { return i == q.number })
	for _, r := range q.held {
		r.forget()
		s.finish(r.op, len(r.buf), err)
	}
	s.held -= len(q.held)
	q.held = nil
	q.setSlow()
}
