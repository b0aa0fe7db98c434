package redytier

import (
	"fmt"
	"slices"
	"testing"
)

// TestLivesAgainstModel is TestDeviceAgainstModel for a device whose process crashes again and
// again, and takes the memory up. Of what was being written at the crash, any part has reached
// the memory. The log continues at a tail below what was written, with other bytes. Every read
// returns the present log's bytes or ErrNotHeld, and pieces of earlier lives do answer.
func TestLivesAgainstModel(t *testing.T) {
	var kept int64
	for seed := range ringSeeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newRingModel(t, uint64(seed), true)
			for range 2500 {
				m.step()
			}
			m.finish()
			kept += m.lives.kept
		})
	}
	if kept == 0 {
		t.Error("no piece was right")
	}
	t.Logf("%d bytes were right", kept)
}

// ringLives are the lives of a ringModel's device.
type ringLives struct {
	companion ringCompanion
	lived     bool
	kept      int64
}

// ringCompanion is a Companion in memory. It fails when the model says so.
type ringCompanion struct{ data []byte }

func (c *ringCompanion) ReadCompanion() ([]byte, error) { return c.data, nil }

func (c *ringCompanion) WriteCompanion(data []byte) error {
	c.data = slices.Clone(data)
	return nil
}

// attach gives the model's device, which was not started, the pieces of its memory.
func (l *ringLives) attach(m *ringModel) {
	ring, shift, table := layout(ringSize)
	m.d.segments = ring
	p := newPieces(m.d, shift, table, &l.companion)
	p.cache = func() Identity { return Identity{Cache: "model"} }
	p.checks.session = m.session(checkDepth)
	if l.lived {
		state, err := parseCompanion(l.companion.data)
		if err != nil || !state.fits(p) {
			m.t.Fatalf("companion %s: %v", l.companion.data, err)
		}
		p.adopt(state.Lives)
	}
	l.lived = true
	m.d.pieces = p
}

func (l *ringLives) step(m *ringModel) {
	if m.r.IntN(150) == 0 {
		l.crash(m)
		return
	}
	before := m.d.pieces.checks.kept
	m.d.pieces.step()
	if now := m.d.pieces.checks.kept; now > before {
		l.kept += now - before
	}
}

// crash ends the device and opens the next one.
func (l *ringLives) crash(m *ringModel) {
	if m.r.IntN(3) == 0 { // it ends in order
		m.memory.calm = true
		for _, q := range m.queues {
			if err := q.s.close(func() { m.poll(q) }); err != nil {
				m.t.Fatal(err)
			}
		}
		m.d.pieces.closing.Store(true)
		for !m.d.pieces.finished() || m.d.pieces.checks.pending > 0 {
			m.d.pieces.step()
		}
		m.memory.calm = false
	}
	for _, s := range m.memory.sessions {
		for _, a := range s.ops {
			if a.write {
				a.buf = a.buf[:m.r.IntN(len(a.buf)+1)]
				s.run(a)
			}
		}
	}
	m.memory.sessions = nil
	for len(m.memory.late) > 0 { // the former client's connections end before the next one reads
		m.memory.arrive(0)
	}
	end := m.settled()
	for page := range m.half {
		end = min(end, int64(page*m.page+m.page/2))
	}
	tail := end - m.r.Int64N(min(end, ringSize/4)+1)
	if m.r.IntN(4) == 0 {
		tail = end
	}
	m.open(tail)
}

// checkAll waits until no piece is unchecked.
func (l *ringLives) checkAll(m *ringModel) {
	for m.d.holes.current().unchecked.missing(m.d.Begin()) > 0 || m.d.pieces.checks.pending > 0 {
		m.d.pieces.step()
	}
}

var _ Companion = (*ringCompanion)(nil)
