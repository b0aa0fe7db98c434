//go:build verbs && linux && cgo

package verbs

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// Allocated pieces never overlap. When all are freed, the next one begins at the start of the
// ring and may be as large as allowed. Operations without a piece are freed in the same order.
func TestStaging(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		const size = 1 << 12
		s := staging{memory: make([]byte, size)}
		type out struct {
			piece []byte
			mark  uint64
			id    byte
		}
		var outs []out
		for i := range 200 {
			if len(outs) > 0 && rapid.Bool().Draw(t, "give") {
				for _, b := range outs[0].piece {
					if b != outs[0].id {
						t.Fatal("somebody else wrote into a piece that is out")
					}
				}
				s.give(outs[0].mark)
				outs = outs[1:]
				continue
			}
			n := rapid.IntRange(0, size/2).Draw(t, "n")
			if n == 0 {
				outs = append(outs, out{mark: s.head})
				continue
			}
			piece, mark, ok := s.take(n)
			if !ok {
				if len(outs) == 0 {
					t.Fatalf("no room for %d bytes in an empty ring", n)
				}
				continue
			}
			if len(piece) != n {
				t.Fatalf("%d bytes, want %d", len(piece), n)
			}
			if len(outs) == 0 && &piece[0] != &s.memory[0] {
				t.Fatal("an empty ring did not restart")
			}
			for j := range piece {
				piece[j] = byte(i)
			}
			outs = append(outs, out{piece, mark, byte(i)})
		}
	})
}

// A write conflicts with each pending read that shares a byte with it, and with none if
// nothing is pending.
func TestHazards(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		type access struct {
			at uint64
			n  int
		}
		draw := func() access {
			return access{rapid.Uint64Range(0, 1<<18).Draw(t, "at"), rapid.IntRange(1, 1<<17).Draw(t, "n")}
		}
		var h hazards
		var reads []access
		for range 50 {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				r := draw()
				h.begin(r.at, r.n)
				reads = append(reads, r)
			case 1:
				if len(reads) > 0 {
					h.end(reads[0].at, reads[0].n)
					reads = reads[1:]
				}
			case 2:
				w := draw()
				for _, r := range reads {
					if w.at < r.at+uint64(r.n) && r.at < w.at+uint64(w.n) && !h.conflicts(w.at, w.n) {
						t.Fatalf("write %+v misses read %+v", w, r)
					}
				}
			}
		}
		for _, r := range reads {
			h.end(r.at, r.n)
		}
		if h != (hazards{}) {
			t.Fatal("counts remain")
		}
	})
}
