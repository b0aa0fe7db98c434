package device

import (
	"testing"
	"time"
)

// world is what a refill meets, in virtual time.
type world struct {
	reads  float64                            // a second without the refill
	slower func(share, depth float64) float64 // fraction by which they are slower while it works
	others bool
}

// play lets a refill work and rest in a world. It returns the share of the time in which it
// worked, and the share of the reads that are lost.
func (p *refillPace) play(w world, lasts time.Duration) (worked, lost float64) {
	answered, owed := 0.0, 0.0
	count := func(took time.Duration, slower float64) uint64 {
		n := took.Seconds() * w.reads * (1 - slower)
		owed += n
		whole := uint64(owed)
		owed -= float64(whole)
		answered += n
		return whole
	}
	var at, busy time.Duration
	for at < lasts {
		took, slower := p.work(), 0.0
		if w.slower != nil {
			slower = w.slower(p.share, float64(p.depth))
		}
		p.worked(took, count(took, slower), w.others)
		busy += took
		at += took
		if rest := p.rest(took); rest > 0 {
			p.rested(rest, count(rest, 0))
			at += rest
		}
	}
	if w.reads > 0 {
		lost = 1 - answered/(at.Seconds()*w.reads)
	}
	return busy.Seconds() / at.Seconds(), lost
}

// always returns a constant slowdown.
func always(s float64) func(float64, float64) float64 {
	return func(float64, float64) float64 { return s }
}

// Reads keep 0.95 of their throughput, and a refill gets what they leave.
func TestRefillPace(t *testing.T) {
	deep := func(_, depth float64) float64 { return min(1, depth/16) }
	for _, test := range []struct {
		name        string
		world       world
		least, most float64 // of the share of the time
		depth       int     // the least one at the end
	}{
		{"idle", world{}, 0.95, 1, refillDepth},
		{"few reads", world{reads: 5, slower: always(0.5)}, 0.95, 1, refillDepth},
		{"harmless", world{reads: 1e6, slower: always(0)}, 0.8, mostRefillShare + 0.01, refillDepth - 2},
		{"harmless to slow reads", world{reads: 2000, slower: always(0)}, 0.5, mostRefillShare + 0.01, 8},
		{"one of two processors", world{reads: 1e6, slower: always(0.5)}, 0.05, 0.07, 1},
		{"stops the reads", world{reads: 1e6, slower: always(1)}, 0.025, 0.04, 1},
		{"stops slow reads", world{reads: 200, slower: always(1)}, 0.02, 0.05, 1},
		{"the deeper the slower", world{reads: 1e5, slower: deep}, 0.1, 0.5, 1},
		{"writes", world{others: true}, 0.09, 0.11, 1},
		{"reads and writes", world{reads: 1e6, slower: always(0), others: true}, 0.09, 0.11, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newRefillPace()
			p.play(test.world, 10*time.Second) // it learns
			worked, lost := p.play(test.world, 20*time.Second)
			if worked < test.least || worked > test.most {
				t.Errorf("works for %.3f of the time, want %.3f to %.3f", worked, test.least, test.most)
			}
			if lost > 0.05 && test.world.reads >= fewReads {
				t.Errorf("%.3f of the reads are lost", lost)
			}
			if p.depth < test.depth {
				t.Errorf("%d pieces in flight, want at least %d", p.depth, test.depth)
			}
		})
	}
}

// A refill yields as soon as reads begin or become slower, and goes on once they have ended.
func TestRefillPaceChanges(t *testing.T) {
	p := newRefillPace()
	if p.play(world{}, time.Second); p.share != 1 || p.depth != refillDepth {
		t.Fatalf("on idle tiers: %+v", p)
	}
	p.worked(p.work(), 2000, false) // 1e6 a second
	if p.share != leastRefillShare || p.depth != 1 {
		t.Errorf("after the first turn beside reads: %+v", p)
	}
	if worked, _ := p.play(world{reads: 1e6, slower: always(0)}, 2*time.Second); worked < 0.5 {
		t.Errorf("beside reads that it does not disturb it works for %.3f of the time", worked)
	}
	if _, lost := p.play(world{reads: 1e6, slower: always(0.7)}, time.Second); lost > 0.15 {
		t.Errorf("%.3f of the reads are lost in the second in which they become slower", lost)
	}
	if _, lost := p.play(world{reads: 1e6, slower: always(0.7)}, time.Second); lost > 0.05 {
		t.Errorf("%.3f of the reads are lost in the next second", lost)
	}
	if p.play(world{}, 2*quietTime); p.share != 1 {
		t.Errorf("after the reads have ended: %+v", p)
	}
}
