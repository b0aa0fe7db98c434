package resp

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// CLIENT TRACKING: clients keep keys in caches of their own, and are told when the keys change.
//
// By default the server keeps the keys that a client has read, in a table of a limited number of keys and
// bytes: a key that is dropped from it counts as changed. With BCAST it keeps prefixes instead, and tells all changes
// of keys with them. Databases do not matter: a key stands for those of the same name in all
// databases.
//
// A command enters its keys before it reads them, and a change is told after it was made. So a client
// that reads the value before a change is told that change, after the reply, since nothing is sent
// between a command's entries and its reply.

// tracking has the trackers of a server. The lock order is tracking.mu, then pubsub.mu.
type tracking struct {
	server *Server
	most   atomic.Int64 // keys of the table; 0: no limit

	mu       sync.Mutex // guards the fields below
	trackers map[int64]*tracker
	keys     map[string][]int64 // the clients that have read a key
	prefixes map[string]map[*tracker]struct{}
	bytes    int64 // of keys
	taken    int64 // bytes of the budget for large requests that are taken for keys
}

// Bytes that an entry of the table takes besides the key, and each of its clients.
const (
	trackedCost = 96
	readerCost  = 8
)

func trackedBytes(key string, readers []int64) int64 {
	if len(readers) == 0 {
		return 0
	}
	return int64(len(key)) + trackedCost + readerCost*int64(len(readers))
}

// defaultTracked is Redis's default of tracking-table-max-keys.
const defaultTracked = 1_000_000

// tracker is a client with tracking.
type tracker struct {
	client *client
	to     *client // that is told; nil: the client itself
	trackingOptions
	prefixes []string
	broken   bool // the client that is to be told is gone; guarded by tracking.mu
}

// trackingOptions are the options of CLIENT TRACKING that are switches.
type trackingOptions struct{ bcast, optIn, optOut, noLoop bool }

func (t *tracking) init(s *Server) {
	t.server = s
	t.most.Store(defaultTracked)
	t.trackers = make(map[int64]*tracker)
	t.keys = make(map[string][]int64)
	t.prefixes = make(map[string]map[*tracker]struct{})
}

// begin adds a tracker, or replaces that of its client. It reports false if there is no memory for its
// prefixes.
func (t *tracking) begin(tr *tracker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.trackers[tr.client.id]
	more := tr.bytes()
	if old != nil {
		more -= old.bytes()
	}
	if more > 0 && !t.server.large.take(more) {
		return false
	} else if more < 0 {
		t.server.large.give(-more)
	}
	if t.trackers[tr.client.id] = tr; old != nil {
		t.leavePrefixes(old)
	} else {
		t.server.changes.tracked.Add(1)
		t.server.changes.update()
	}
	for _, p := range tr.prefixes {
		if t.prefixes[p] == nil {
			t.prefixes[p] = make(map[*tracker]struct{})
		}
		t.prefixes[p][tr] = struct{}{}
	}
	return true
}

// bytes returns the memory of a tracker's prefixes.
func (tr *tracker) bytes() (n int64) {
	for _, p := range tr.prefixes {
		n += subscriptionCost + int64(len(p))
	}
	return n
}

// end removes a tracker. Its keys leave the table when they change.
func (t *tracking) end(tr *tracker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.trackers, tr.client.id)
	t.leavePrefixes(tr)
	t.server.large.give(tr.bytes())
	if len(t.trackers) == 0 {
		t.forgetKeys()
	}
	t.server.changes.tracked.Add(-1)
	t.server.changes.update()
}

// leavePrefixes removes a tracker from its prefixes. The caller holds mu.
func (t *tracking) leavePrefixes(tr *tracker) {
	for _, p := range tr.prefixes {
		if delete(t.prefixes[p], tr); len(t.prefixes[p]) == 0 {
			delete(t.prefixes, p)
		}
	}
}

// remember enters the keys of a request that reads them, if the client tracks them.
func (c *client) remember(cmd *command, r request) {
	tr := c.tracker
	if tr.bcast || tr.optIn && !c.asked || tr.optOut && c.asked {
		return
	}
	t := &c.server.tracking
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range cmd.keys.of(r) {
		readers := t.keys[string(key)]
		if slices.Contains(readers, c.id) {
			continue
		}
		name := string(key)
		t.bytes -= trackedBytes(name, readers)
		readers = slices.DeleteFunc(readers, func(id int64) bool { return t.trackers[id] == nil })
		readers = append(readers, c.id)
		t.bytes += trackedBytes(name, readers)
		t.keys[name] = readers
	}
	t.shrink()
}

// shrink drops keys from the table until it has at most the allowed number of keys and bytes. The caller
// holds mu.
func (t *tracking) shrink() {
	if t.fits() {
		return
	}
	for key := range t.keys { // in random order
		if t.invalidateKey([]byte(key), nil); t.fits() {
			break
		}
	}
}

// fits reports whether the table has at most the allowed number of keys and bytes. The caller holds mu.
func (t *tracking) fits() bool {
	most := t.most.Load()
	return (most == 0 || int64(len(t.keys)) <= most) && t.charge()
}

// charge charges the budget for the table, and reports whether that had room. The caller holds mu.
func (t *tracking) charge() bool {
	large, more := &t.server.large, t.bytes-t.taken
	switch {
	case more > 0 && (t.bytes > large.share() || !large.take(more)):
		return false
	case more < 0:
		large.give(-more)
	}
	t.taken = t.bytes
	return true
}

// forgetKeys empties the table. The caller holds mu.
func (t *tracking) forgetKeys() {
	t.keys = make(map[string][]int64) // one that was cleared would keep its memory
	t.bytes = 0
	t.charge()
}

func (t *tracking) setMost(most int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most.Store(most)
	t.shrink()
}

// invalidate tells that keys have changed. by is the client that has changed them, or nil.
func (t *tracking) invalidate(keys [][]byte, by *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.invalidateKey(key, by)
	}
	t.charge()
	for prefix, trackers := range t.prefixes {
		var with [][]byte
		for _, key := range keys {
			if strings.HasPrefix(string(key), prefix) && !slices.ContainsFunc(with, func(k []byte) bool { return string(k) == string(key) }) {
				with = append(with, key)
			}
		}
		if len(with) == 0 {
			continue
		}
		for tr := range trackers {
			t.tell(tr, with, by)
		}
	}
}

// invalidateKey tells those that have read a key that it has changed. The caller holds mu.
func (t *tracking) invalidateKey(key []byte, by *client) {
	readers, ok := t.keys[string(key)]
	if !ok {
		return
	}
	t.bytes -= trackedBytes(string(key), readers)
	delete(t.keys, string(key))
	for _, id := range readers {
		if tr := t.trackers[id]; tr != nil && !tr.bcast {
			t.tell(tr, [][]byte{key}, by)
		}
	}
}

// flushed tells that all keys have been deleted. by is the loop that runs the caller, or nil.
func (t *tracking) flushed(by *loop) {
	if t.server.changes.tracked.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetKeys()
	for _, tr := range t.trackers {
		t.send(tr, nil, by)
	}
}

// tellTorn tells that records' keys may have changed, although the command has failed.
func (s *Server) tellTorn(stored [][]byte) {
	if s.changes.tracked.Load() == 0 {
		return
	}
	keys := make([][]byte, len(stored))
	for i := range stored {
		_, keys[i] = shownKey(stored[i])
	}
	s.tracking.invalidate(keys, nil)
}

// tell sends a tracker the keys that have changed, unless it has changed them and does not want
// those. The caller holds mu.
func (t *tracking) tell(tr *tracker, keys [][]byte, by *client) {
	var l *loop
	if by != nil {
		if tr.noLoop && tr.client == by {
			return
		}
		l = by.loop
	}
	t.send(tr, keys, l)
}

// trackingChannel is where clients of RESP2 subscribe to be told.
const trackingChannel = "__redis__:invalidate"

// send sends a tracker keys, or null. The caller holds mu.
func (t *tracking) send(tr *tracker, keys [][]byte, by *loop) {
	to, redirected := tr.client, tr.to != nil
	if redirected {
		to = tr.to
	}
	ps := &t.server.pubsub
	ps.mu.Lock()
	defer ps.mu.Unlock()
	defer ps.wake(by)
	sub := ps.byID[to.id]
	switch {
	case redirected && !t.server.has(to):
		if tr.broken {
			return
		}
		tr.broken = true
		tr.client.describe(func(i *clientInfo) { i.tracking += "R" })
		if own := ps.byID[tr.client.id]; own != nil && own.resp3 {
			ps.deliver(own, appendInt(appendBulk(appendPush(nil, true, 2), "tracking-redir-broken"), to.id))
		}
	case sub == nil:
	case sub.resp3:
		ps.deliver(sub, appendKeys(appendBulk(appendPush(nil, true, 2), "invalidate"), keys, true))
	case redirected && to.seenSubscribing():
		ps.deliver(sub, appendKeys(appendBulk(appendBulk(appendArray(nil, 3), "message"), trackingChannel), keys, false))
	}
}

func appendKeys(out []byte, keys [][]byte, resp3 bool) []byte {
	if keys == nil {
		return appendNull(out, resp3)
	}
	out = appendArray(out, len(keys))
	for _, key := range keys {
		out = appendBulk(out, key)
	}
	return out
}

// deliver appends data to the messages of a subscriber. The caller must hold ps.mu.
func (ps *pubsub) deliver(sub *subscriber, data []byte) {
	m := &message{data: slices.Clip(data)}
	m.refs.Store(1)
	if !ps.makeRoom(m.cost() + entryCost) {
		sub.disconnect()
		return
	}
	ps.delivered++
	switch l, ok := sub.offer(m); {
	case !ok:
		ps.room.give(entryCost)
	case l != nil && l.enqueue(sub) && !slices.Contains(ps.woken, l):
		ps.woken = append(ps.woken, l)
	}
	ps.release(m)
}

// has reports whether a client is connected.
func (s *Server) has(c *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.clients[c]
	return ok
}

// withID returns the connected client of a number, or nil.
func (s *Server) withID(id int64) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if c.id == id {
			return c
		}
	}
	return nil
}

// untrack ends the client's tracking, if it has any.
func (c *client) untrack() {
	if c.tracker == nil {
		return
	}
	c.server.tracking.end(c.tracker)
	c.tracker, c.asked = nil, false
	c.describe(func(i *clientInfo) { i.tracking, i.redirect = "", -1 })
}

// stats returns the numbers of trackers, of keys and of prefixes, and of entries in the table.
func (t *tracking) stats() (clients, keys, items, prefixes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for readers := range maps.Values(t.keys) {
		items += len(readers)
	}
	return len(t.trackers), len(t.keys), items, len(t.prefixes)
}
