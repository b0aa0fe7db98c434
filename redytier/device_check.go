package redytier

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/clock"
)

const (
	// checkDepth is the number of pieces that are checked at a time.
	checkDepth = 8
	// demandDepth bounds the pieces that are checked before others because reads ask for them.
	demandDepth = 64
	// reportEvery is the time between two reports of the progress.
	reportEvery = 5 * time.Second
)

// checker compares pieces with their records, those first that reads ask for, then the newest,
// and writes due records. It is a loop over pieces.step on one goroutine, which owns it and its
// session.
type checker struct {
	session session
	slots   []checkSlot
	pending int   // slots that are not idle
	below   int64 // the next piece is the newest one below this number

	set        *unchecked // to which below and the following fields belong
	began      time.Time
	reported   time.Time
	kept, lost int64 // bytes of pieces that were right, and that were not
}

// checkSlot is a place for one operation: a piece's record is read and then its bytes, or
// records are written.
type checkSlot struct {
	task  checkTask
	piece int64
	added uint64 // holes.added when the check began
	want  pieceRecord
	buf   []byte
}

type checkTask uint8

const (
	idle checkTask = iota
	readRecord
	readPiece
	writeRecords
)

func newChecker(size int64) checker {
	c := checker{slots: make([]checkSlot, checkDepth)}
	for i := range c.slots {
		c.slots[i].buf = make([]byte, max(size, writtenAtOnce*recordSize))
	}
	return c
}

// loop steps until ctx ends, or until the device is closed and all records are written.
func (p *pieces) loop(ctx context.Context) {
	defer close(p.ended)
	c := &p.checks
	for {
		s, err := p.d.cache.newSession(checkDepth, 0)
		if err == nil {
			s.waits.Store(false)
			c.session = s
			break
		}
		if !errors.Is(err, ErrDeleted) {
			p.d.cache.log.Warn("no session to check the cache's contents with", "err", err)
		}
		if !clock.Sleep(ctx, longPause) {
			return
		}
	}
	defer func() {
		if err := c.session.close(p.drop); err != nil {
			p.d.cache.log.Warn("closing the session that checks the cache's contents", "err", err)
		}
	}()
	for ctx.Err() == nil {
		switch {
		case p.step():
		case c.pending > 0:
			if err := c.session.Wait(ctx); err != nil {
				return // ctx, or the session is closed
			}
		case p.finished():
			return
		default:
			select {
			case <-p.wake:
				p.restore()
			case <-ctx.Done():
			}
		}
	}
}

// drop takes completions that nobody needs any more.
func (p *pieces) drop() {
	var done [checkDepth]device.Completion
	p.checks.session.Poll(done[:])
}

// step does what can be done without waiting and reports whether it did anything.
func (p *pieces) step() bool {
	c := &p.checks
	var done [checkDepth]device.Completion
	n := c.session.Poll(done[:])
	for _, d := range done[:n] {
		if d.Tag < uint64(len(c.slots)) {
			p.proceed(&c.slots[d.Tag], d.Tag, d.Err)
		}
	}
	worked := n > 0
	for i := range c.slots {
		s := &c.slots[i]
		if s.task != idle {
			continue
		}
		if !p.writeDue(s, uint64(i)) && !p.check(s, uint64(i)) {
			break
		}
		worked = true
	}
	if worked {
		// A session that is closed completes nothing, and Wait says so.
		_ = c.session.Submit()
	}
	return worked
}

// proceed continues after an operation of a slot has ended.
func (p *pieces) proceed(s *checkSlot, tag uint64, err error) {
	c, task := &p.checks, s.task
	s.task = idle
	c.pending--
	switch {
	case task == writeRecords: // a record that is not written is a piece to refill
	case err != nil:
		p.settle(s, false)
	case task == readPiece:
		p.settle(s, xxhash.Sum64(s.buf[:p.size()]) == s.want.sum)
	case !p.plausible(s):
		p.settle(s, false)
	default:
		p.start(s, tag, readPiece)
	}
}

// plausible reports whether the record that was read may be that of the slot's piece.
func (p *pieces) plausible(s *checkSlot) (ok bool) {
	if s.want, ok = parseRecord(s.buf[:recordSize]); !ok || s.want.piece != s.piece {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lives.wrote(s.want.life, p.span(s.piece).to)
}

// start begins the slot's next read.
func (p *pieces) start(s *checkSlot, tag uint64, task checkTask) {
	c := &p.checks
	dst, at := s.buf[:recordSize], p.recordAt(s.piece)
	if task == readPiece {
		dst, at = s.buf[:p.size()], p.span(s.piece).from%p.d.segments.size
	}
	switch err := c.session.Read(dst, at, tag); {
	case err == nil:
		s.task = task
		c.pending++
	case errors.Is(err, device.ErrQueueFull):
		c.below = max(c.below, s.piece+1) // again later
	default:
		p.settle(s, false)
	}
}

// check begins to check the next piece.
func (p *pieces) check(s *checkSlot, tag uint64) bool {
	c, h := &p.checks, &p.d.holes
	h.mu.Lock()
	set := h.current()
	u := set.unchecked
	ok := false
	if u != nil {
		u.drop(p.d.begin.Load())
		if c.set != u {
			c.set, c.below, c.began, c.reported, c.kept, c.lost = u, math.MaxInt64, time.Now(), time.Now(), 0, 0
		}
		s.piece, ok = p.next(u)
		s.added = set.added
		h.forgetChecked()
	}
	h.mu.Unlock()
	if !ok {
		p.report()
		return false
	}
	p.start(s, tag, readRecord)
	return s.task != idle
}

// next chooses an unchecked piece that no slot checks. The caller holds holes.mu.
func (p *pieces) next(u *unchecked) (int64, bool) {
	c := &p.checks
	for !p.closing.Load() {
		select {
		case piece := <-p.demand:
			if u.has(piece) && !c.checks(piece) {
				return piece, true
			}
			continue
		default:
		}
		piece, ok := u.newest(c.below - 1)
		if !ok {
			return 0, false
		}
		c.below = piece
		if !c.checks(piece) {
			return piece, true
		}
	}
	return 0, false
}

// checks reports whether a slot checks a piece.
func (c *checker) checks(piece int64) bool {
	for i := range c.slots {
		if s := &c.slots[i]; s.piece == piece && (s.task == readRecord || s.task == readPiece) {
			return true
		}
	}
	return false
}

// settle ends the check of a slot's piece. Like a read, a check may race with a writer that
// reuses the place: begin has passed the piece then. A piece that was written or lost meanwhile
// is a hole already.
func (p *pieces) settle(s *checkSlot, right bool) {
	c, h, x := &p.checks, &p.d.holes, p.span(s.piece)
	h.mu.Lock()
	u, begin := h.current().unchecked, p.d.begin.Load()
	switch {
	case u == nil || !u.has(s.piece):
	case x.to <= begin:
		u.drop(begin)
	case right && !h.since(s.added, x):
		u.remove(s.piece)
		c.kept += p.size()
	default:
		h.add(x, begin)
		c.lost += p.size()
		offer(h.ready)
	}
	h.forgetChecked()
	h.mu.Unlock()
	p.report()
}

// report logs how far the checks are, from time to time, and their end.
func (p *pieces) report() {
	c, now := &p.checks, time.Now()
	if c.set == nil {
		return
	}
	p.d.holes.mu.Lock()
	left := int64(0)
	if p.d.holes.current().unchecked == c.set {
		left = c.set.left << p.shift
	}
	p.d.holes.mu.Unlock()
	log := p.d.cache.log
	switch {
	case left == 0:
		log.Info("the contents of the cache were checked", "kept", c.kept, "dropped", c.lost, "took", now.Sub(c.began))
		c.set = nil
	case now.Sub(c.reported) >= reportEvery:
		log.Info("the contents of the cache are being checked", "left", left, "kept", c.kept, "dropped", c.lost)
		c.reported = now
	}
}

// writeDue begins to write the next records that are due. Those of contiguous pieces are
// written together.
func (p *pieces) writeDue(s *checkSlot, tag uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.current.due
	if len(due) == 0 {
		return false
	}
	records, at := s.buf[:0], p.recordAt(due[0].piece)
	n := 0
	for n < min(len(due), writtenAtOnce) && p.recordAt(due[n].piece) == at+int64(len(records)) {
		records = due[n].append(records)
		n++
	}
	err := p.checks.session.Write(records, at, tag)
	if errors.Is(err, device.ErrQueueFull) {
		return false
	}
	if p.current.due = due[n:]; len(due) == n {
		p.current.due = nil
	}
	if err != nil {
		return false
	}
	s.task = writeRecords
	p.checks.pending++
	return true
}

// ask moves the pieces of x that are unchecked to the front.
func (p *pieces) ask(x span) {
	for piece := x.from >> p.shift; piece<<p.shift < x.to; piece++ {
		select {
		case p.demand <- piece:
		default: // enough are waiting
			return
		}
	}
	offer(p.wake)
}
