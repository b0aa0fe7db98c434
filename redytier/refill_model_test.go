package redytier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestDeviceAgainstModel plays random logs on a device whose memory is lost and replaced, in
// steps of one goroutine. Writes, reads and refills take effect at any time between their call
// and their completion. Every read returns the log's bytes or ErrNotHeld. At the end all holes
// can be filled.
func TestDeviceAgainstModel(t *testing.T) {
	for seed := range ringSeeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newRingModel(t, uint64(seed), false)
			for range 1500 {
				m.step()
			}
			m.finish()
		})
	}
}

// One goroutine takes the steps.
func ringSeeds() int {
	seeds := testrun.Scale(50, 200, 2000)
	return testrun.Raced(seeds, seeds/5)
}

const (
	ringRegion = 3 << 10
	ringSize   = 16 << 10
	ringLog    = 200 << 10
)

// ringModel is the state of one run.
type ringModel struct {
	t      *testing.T
	r      *rand.Rand
	memory *ringMemory
	d      *Device
	queues []*deviceQueue
	page   int        // bytes of one write of the log
	losses int        // how rare they are
	lives  *ringLives // nil: the device does not outlive its process

	log    []byte // the final contents of every address
	behind []byte // the contents of the next tier: writes that have ended
	// Pages are written once, or twice: first with zeros in their second half, then
	// completely.
	next    int          // page to write next
	half    map[int]bool // pages to be written again
	pending map[uint64]*ringOp
	tag     uint64
	ticket  *device.Hole // a hole, to be refilled with piece
	piece   []byte
}

// ringOp is a pending operation.
type ringOp struct {
	kind       opKind
	buf, want  []byte
	addr       int64
	page       int
	first, all bool // of a page: its first write, and a complete one
}

func newRingModel(t *testing.T, seed uint64, outlives bool) *ringModel {
	m := &ringModel{t: t, r: rand.New(rand.NewPCG(seed, 12)), page: 512, losses: 1}
	m.memory = &ringMemory{r: m.r, bytes: make([]byte, ringSize), cuts: 3 + m.r.IntN(60)}
	m.log = make([]byte, ringLog)
	m.behind = make([]byte, len(m.log))
	if outlives {
		m.lives, m.page, m.losses = new(ringLives), 64<<m.r.IntN(4), 10<<m.r.IntN(10)
		m.memory.cuts *= 10
	}
	m.open(int64(m.r.IntN(50) * m.page))
	return m
}

// open opens a device over the memory, for a log that ends at tail. What follows there is
// another log than before.
func (m *ringModel) open(tail int64) {
	for i := range m.log[tail:] {
		m.log[tail+int64(i)] = byte(1 + m.r.IntN(255))
	}
	copy(m.behind, m.log[:tail])
	m.next, m.ticket, m.half, m.pending, m.queues = int(tail)/m.page, nil, map[int]bool{}, map[uint64]*ringOp{}, nil
	m.d = &Device{cache: &Cache{log: slog.New(slog.DiscardHandler)}, segments: newSegments(ringSize)}
	m.d.unavailable, m.d.arriving = func() spans { return m.memory.gone }, m.memory.arriving
	m.d.holes.ready = make(chan struct{}, 1)
	if m.lives != nil {
		m.lives.attach(m)
	}
	if err := m.d.Start(tail); err != nil {
		m.t.Fatal(err)
	}
	for range 1 + m.r.IntN(3) {
		depth := 1 + m.r.IntN(8)
		m.queues = append(m.queues, newDeviceQueue(m.d, m.session(depth), depth))
	}
}

func (m *ringModel) session(depth int) *ringSession {
	s := &ringSession{memory: m.memory, depth: depth, wrap: m.d.segments.size}
	m.memory.sessions = append(m.memory.sessions, s)
	return s
}

func (m *ringModel) step() {
	if m.lives != nil && m.r.IntN(3) == 0 {
		m.lives.step(m)
		return
	}
	q := m.queues[m.r.IntN(len(m.queues))]
	switch k := m.r.IntN(100); {
	case k < 20:
		m.write(q)
	case k < 50:
		m.read(q)
	case k < 60 && m.ticket == nil:
		m.askForHole()
	case k < 55:
		m.refill(q)
	case k < 72 && m.r.IntN(m.losses) == 0:
		m.lose()
	case k < 75:
		m.restore()
	case k < 80 && len(m.memory.late) > 0:
		m.arrive()
	case k < 81 && m.r.IntN(4) == 0:
		begin := m.d.Begin() + m.r.Int64N(int64(2*m.page))
		if err := m.d.Truncate(min(begin, m.settled())); err != nil {
			m.t.Fatal(err)
		}
	default:
		m.poll(q)
	}
}

// settled is the first address that is being written, or half written.
func (m *ringModel) settled() int64 {
	page := m.next
	for _, op := range m.pending {
		if op.kind == opWrite {
			page = min(page, op.page)
		}
	}
	return int64(page * m.page)
}

func (m *ringModel) write(q *deviceQueue) {
	op := &ringOp{kind: opWrite, page: m.next, first: true, all: m.r.IntN(3) > 0}
	for page := range m.half {
		op.page, op.first, op.all = page, false, true
		break
	}
	if op.page*m.page >= len(m.log) {
		return
	}
	op.addr = int64(op.page * m.page)
	op.buf = slices.Clone(m.log[op.addr:][:m.page])
	if !op.all {
		clear(op.buf[m.page/2:])
	}
	if m.do(op, func() error { return q.Write(op.buf, op.addr, m.tag) }) {
		if op.first {
			m.next++
		}
		delete(m.half, op.page)
	}
}

func (m *ringModel) read(q *deviceQueue) {
	end, begin := m.settled(), max(0, m.d.Begin()-int64(m.page))
	if end <= begin {
		return
	}
	op := &ringOp{addr: begin + m.r.Int64N(end-begin)}
	n := 1 + m.r.Int64N(min(end-op.addr, int64(3*m.page)))
	for page := range m.half { // the second half is not written yet
		if at := int64(page*m.page + m.page/2); at < op.addr+n && op.addr < at+int64(m.page/2) {
			return
		}
	}
	op.want = m.log[op.addr:][:n]
	op.buf = make([]byte, n)
	m.do(op, func() error { return q.Read(op.buf, op.addr, m.tag) })
}

func (m *ringModel) askForHole() {
	hole := m.d.Hole(m.settled(), 1+m.r.IntN(2*m.page))
	m.ticket = nil
	if hole.From < hole.To {
		m.ticket, m.piece = &hole, slices.Clone(m.behind[hole.From:hole.To])
	}
}

func (m *ringModel) refill(q *deviceQueue) {
	if m.ticket == nil {
		return
	}
	op := &ringOp{kind: opRefill, addr: m.ticket.From, buf: m.piece}
	m.do(op, func() error { return q.Refill(m.piece, *m.ticket, m.tag) })
	m.ticket = nil
}

// do starts an operation, and reports whether it was accepted or has ended.
func (m *ringModel) do(op *ringOp, start func() error) bool {
	m.tag++
	switch err := start(); {
	case err == nil:
		m.pending[m.tag] = op
	case errors.Is(err, device.ErrQueueFull):
		return false
	default:
		m.ended(op, err)
	}
	return true
}

func (m *ringModel) poll(q *deviceQueue) {
	var done [3]device.Completion
	for _, c := range done[:q.Poll(done[:])] {
		op := m.pending[c.Tag]
		if op == nil {
			m.t.Fatalf("completion %+v of nothing", c)
		}
		delete(m.pending, c.Tag)
		if c.Err == nil && c.N != len(op.buf) {
			m.t.Fatalf("completion %+v of %d bytes", c, len(op.buf))
		}
		m.ended(op, c.Err)
	}
}

func (m *ringModel) ended(op *ringOp, err error) {
	held := err == nil
	expected := errors.Is(err, device.ErrNotHeld) || op.kind == opRefill && errors.Is(err, ErrRegionUnavailable)
	if !held && !expected {
		m.t.Fatalf("operation %d at %d: %v", op.kind, op.addr, err)
	}
	switch op.kind {
	case opWrite:
		x := span{max(op.addr, m.d.Begin()), op.addr + int64(m.page)}
		if _, hole := m.d.holes.look(x); hole && held && x.from < x.to {
			testrun.Wrong(m.t, "write at %d is a hole and is said to be stored", op.addr)
		}
		copy(m.behind[op.addr:], op.buf)
		if !op.all {
			m.half[op.page] = true
		}
	case opRead:
		if held && !bytes.Equal(op.buf, op.want) {
			testrun.Wrong(m.t, "read of %d bytes at %d: wrong bytes", len(op.buf), op.addr)
		}
	}
}

func (m *ringModel) lose() {
	i := m.r.IntN(ringSize/ringRegion + 1)
	at := span{int64(i * ringRegion), min(int64(i+1)*ringRegion, ringSize)}
	if !m.memory.gone.overlap(at) {
		m.memory.lose(at)
		if m.r.IntN(2) == 0 { // otherwise the device finds the hole itself
			m.d.lost(at)
		}
	}
}

func (m *ringModel) restore() {
	if len(m.memory.gone) > 0 {
		at := m.memory.gone[m.r.IntN(len(m.memory.gone))]
		m.d.restored(at)
		m.memory.restore(at)
	}
}

// arrive ends a failed connection: its write arrives or not, and can have no effect afterwards.
func (m *ringModel) arrive() {
	m.memory.arrive(m.r.IntN(len(m.memory.late)))
	m.d.settled()
}

// finish ends pending operations, fills all holes and reads everything.
func (m *ringModel) finish() {
	m.memory.calm = true
	for len(m.memory.gone) > 0 {
		m.restore()
	}
	for len(m.memory.late) > 0 {
		m.arrive()
	}
	drain := func() {
		for len(m.pending) > 0 {
			for _, q := range m.queues {
				m.poll(q)
			}
		}
	}
	whole := func() {
		for drain(); len(m.half) > 0; drain() {
			m.write(m.queues[0])
		}
	}
	whole()
	m.write(m.queues[0]) // a page that a full session may have refused
	whole()
	if m.lives != nil {
		m.lives.checkAll(m)
	}
	for m.askForHole(); m.ticket != nil; m.askForHole() {
		m.refill(m.queues[0])
		drain()
	}
	if n := m.d.Missing(); n != 0 || len(m.d.holes.fills) > 0 {
		m.t.Errorf("%d bytes are missing, fills %v", n, m.d.holes.fills)
	}
	begin, end := m.d.Begin(), m.settled()
	for at := begin; at < end; at += int64(m.page) {
		n := min(int64(m.page), end-at)
		op := &ringOp{addr: at, buf: make([]byte, n), want: m.log[at:][:n]}
		held := true
		m.do(op, func() error {
			err := m.queues[0].Read(op.buf, at, m.tag)
			held = err == nil
			return err
		})
		drain()
		if !held || !bytes.Equal(op.buf, op.want) {
			testrun.Wrong(m.t, "at %d of [%d, %d): held %v", at, begin, end, held)
		}
	}
	for _, q := range m.queues {
		if err := q.Close(); err != nil {
			m.t.Error(err)
		}
	}
}

// ringMemory is a cache's memory. Lost memory drops its contents, and fails accesses until it
// is restored with zeros.
type ringMemory struct {
	r        *rand.Rand
	bytes    []byte
	gone     spans
	late     []*ringAccess // writes of failed connections that have not arrived
	sessions []*ringSession
	calm     bool                         // no errors except for lost memory
	cuts     int                          // one access in cuts fails
	lives    [ringSize/ringRegion + 1]int // how often each region was lost
}

// rarely is true once in n times, unless calm is set.
func (m *ringMemory) rarely(n int) bool { return !m.calm && m.r.IntN(n) == 0 }

// arriving is the regions that late writes may reach.
func (m *ringMemory) arriving() (all spans) {
	for _, a := range m.late {
		for i := range a.buf {
			at := a.place(i) / ringRegion * ringRegion
			all = all.add(span{at, min(at+ringRegion, ringSize)})
		}
	}
	return all
}

// arrive ends the wait for a late write. What it finds of its region's memory gets its bytes.
func (m *ringMemory) arrive(i int) {
	a := m.late[i]
	m.late = slices.Delete(m.late, i, i+1)
	lost := m.r.IntN(2) == 0
	for i := range a.buf {
		if at := a.place(i); !lost && a.lives[at/ringRegion] == m.lives[at/ringRegion] && !m.gone.overlap(span{at, at + 1}) {
			m.bytes[at] = a.buf[i]
		}
	}
}

func (m *ringMemory) lose(at span) {
	m.gone = m.gone.add(at)
	m.lives[at.from/ringRegion]++
}

func (m *ringMemory) restore(at span) {
	clear(m.bytes[at.from:at.to])
	m.gone = m.gone.cut(at)
}

// ringSession accesses a ringMemory some time after the call.
type ringSession struct {
	memory  *ringMemory
	depth   int
	wrap    int64 // accesses that reach it continue at 0
	ops     []*ringAccess
	pending int
	done    []device.Completion
}

// ringAccess is one operation. Its region's memory may be replaced between the call and the
// access: then it fails, or accesses the new memory.
type ringAccess struct {
	tag   uint64
	buf   []byte
	addr  int64
	wrap  int64
	write bool
	lives [ringSize/ringRegion + 1]int
}

// place is where byte i is in the memory.
func (a *ringAccess) place(i int) int64 {
	at := a.addr + int64(i)
	if a.addr < a.wrap {
		at %= a.wrap
	}
	return at
}

func (s *ringSession) Read(dst []byte, addr int64, tag uint64) error {
	return s.start(&ringAccess{tag: tag, buf: dst, addr: addr})
}

func (s *ringSession) Write(src []byte, addr int64, tag uint64) error {
	return s.start(&ringAccess{tag: tag, buf: src, addr: addr, write: true})
}

func (s *ringSession) start(a *ringAccess) error {
	if s.pending == s.depth || s.memory.rarely(50) {
		return device.ErrQueueFull
	}
	a.wrap, a.lives = s.wrap, s.memory.lives
	s.pending++
	s.ops = append(s.ops, a)
	return nil
}

// run executes one access.
func (s *ringSession) run(a *ringAccess) device.Completion {
	m := s.memory
	c := device.Completion{Tag: a.tag, N: len(a.buf)}
	old := m.r.IntN(3) // selects the outcome of accesses to regions that were lost since the call
	if a.write && m.rarely(m.cuts) {
		m.late = append(m.late, a)
		return device.Completion{Tag: a.tag, Err: fmt.Errorf("%w: connection cut", ErrRegionUnavailable)}
	}
	for i := range a.buf {
		at := a.place(i)
		stale := a.lives[at/ringRegion] != m.lives[at/ringRegion]
		switch gone := m.gone.overlap(span{at, at + 1}); {
		case stale && old == 0 && a.write: // it reaches the old memory, and is lost with it
		case stale && old == 1, gone:
			c.N, c.Err = 0, fmt.Errorf("%w: lost", ErrRegionUnavailable)
		case a.write:
			m.bytes[at] = a.buf[i]
		default:
			a.buf[i] = m.bytes[at]
		}
	}
	if m.rarely(m.cuts) {
		c.N, c.Err = 0, fmt.Errorf("%w: connection cut", ErrRegionUnavailable)
	}
	return c
}

func (s *ringSession) Submit() error { return nil }

func (s *ringSession) Poll(done []device.Completion) int {
	for k := s.memory.r.IntN(4); k > 0 && len(s.ops) > 0; k-- {
		i := s.memory.r.IntN(len(s.ops))
		s.done = append(s.done, s.run(s.ops[i]))
		s.ops = slices.Delete(s.ops, i, i+1)
	}
	n := 0
	for n < len(done) && len(s.done) > 0 && s.memory.r.IntN(3) > 0 {
		done[n] = s.done[0]
		s.done = s.done[1:]
		n++
	}
	s.pending -= n
	return n
}

func (s *ringSession) Wait(context.Context) error { return nil }

func (s *ringSession) Close() error { return nil }

func (s *ringSession) close(poll func()) error {
	for s.pending > 0 {
		poll()
	}
	return nil
}
