package redytier

import "testing"

// A piece at whose end the log ends is not final: its last block may be written again. So what was
// copied of it from another tier gets no record.
func TestPieceAtTheTail(t *testing.T) {
	const shift, size = 4, 16
	for _, c := range []struct {
		tail int64
		due  int
	}{{size, 0}, {size + 1, 1}, {2 * size, 1}, {2*size + 1, 2}, {0, 0}} {
		var r recorder
		r.startAt(c.tail, shift)
		r.refilled(make([]byte, 2*size), 0, shift, 1)
		if len(r.due) != c.due {
			t.Errorf("the log ends at %d: %d records, want %d", c.tail, len(r.due), c.due)
		}
	}
}
