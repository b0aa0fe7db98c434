package progress

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// units is the size of the log of the model.
const units = 12

// model knows of each unit of a log what has happened to it.
type model struct {
	written, failed [units]bool
	pending         []Span
}

func (m *model) end(s Span, succeeded bool) {
	for i := s.From; i < s.To; i++ {
		m.written[i] = m.written[i] || succeeded
		m.failed[i] = !succeeded
	}
}

func (m *model) lows() (written, settled int64) {
	for written < units && m.written[written] {
		written++
	}
	for settled < written && !m.failed[settled] {
		settled++
	}
	for _, s := range m.pending {
		settled = min(settled, s.From)
	}
	return written, settled
}

// TestModel compares Writes with a model that has each unit of the log: writes overlap, end in
// any order, fail, and are repeated in other pieces.
func TestModel(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		var w Writes
		var m model
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0:
				tail := rapid.Int64Range(0, units-1).Draw(t, "tail")
				w.Reset(tail)
				m = model{}
				for i := range tail {
					m.written[i] = true
				}
			case what == 1: // no write below is pending
				begin := rapid.Int64Range(0, units).Draw(t, "begin")
				for _, s := range m.pending {
					begin = min(begin, s.From)
				}
				w.Truncate(begin)
				for i := range begin {
					m.written[i], m.failed[i] = true, false
				}
			case what < 6 || len(m.pending) == 0:
				from := rapid.Int64Range(0, units-1).Draw(t, "from")
				s := Span{from, rapid.Int64Range(from+1, units).Draw(t, "to")}
				w.Begin(s)
				m.pending = append(m.pending, s)
			default:
				i := rapid.IntRange(0, len(m.pending)-1).Draw(t, "which")
				s := m.pending[i]
				m.pending = append(m.pending[:i:i], m.pending[i+1:]...)
				m.end(s, what < 8)
				if !w.End(s, what < 8) {
					t.Fatalf("%v is not pending", s)
				}
			}
			written, settled := m.lows()
			if w.Written() != written || w.Settled() != settled || w.Pending() != (len(m.pending) > 0) || w.Failed() != slices.Contains(m.failed[:], true) {
				t.Fatalf("written %d, settled %d, pending %v, want %d, %d, %v", w.Written(), w.Settled(), w.Pending(), written, settled, m.pending)
			}
			if len(w.failed)+len(w.above) > 2*units {
				t.Fatalf("%d and %d spans", len(w.failed), len(w.above))
			}
		}
	})
}

// TestNotOfLog: writes outside of a log, and those of which Begin knows nothing, change nothing.
func TestNotOfLog(t *testing.T) {
	var w Writes
	w.Reset(5)
	for _, s := range []Span{{-1, 7}, {5, 5}, {7, 6}} {
		w.Begin(s)
		if w.Pending() || w.End(s, true) || w.Written() != 5 || w.Settled() != 5 {
			t.Errorf("%+v: %+v", s, w)
		}
	}
	w.Begin(Span{5, 8})
	w.Reset(3)
	if w.End(Span{5, 8}, true) || w.Written() != 3 {
		t.Errorf("a write of before Reset: %+v", w)
	}
}
