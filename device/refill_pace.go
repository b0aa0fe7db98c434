package device

import (
	"math"
	"time"
)

const (
	// refillBudget is the share of the reads' throughput that a refill may cost.
	refillBudget = 0.03
	// While reads are answered, a refill works for a share of the time between these. At
	// the least one it stays within its budget even if no read ends while it works. At the
	// largest one it still rests often enough to measure the reads without it.
	leastRefillShare = refillBudget
	mostRefillShare  = 0.9
	// besideWrites is the share while writes are pending or goroutines wait for a processor.
	besideWrites = 0.1
	// refillSlice is the least time of work between two rests, and of a rest.
	refillSlice = 2 * time.Millisecond
	// quietTime is the time without a read after which reads are taken to have ended. A shorter
	// one may be a reader that waits for a processor.
	quietTime = 200 * time.Millisecond
	// refillDepth is the largest number of pieces that are copied at a time.
	refillDepth = 16

	// On idle tiers a refill rests after so many turns.
	idleTurns = 32

	// Tiers are idle while they answer fewer reads than fewReads in the time that a
	// refillPace remembers, or less than surelyReads while it rests. It remembers about rememberReads reads, but no less than
	// leastMemory and no more than mostMemory.
	fewReads      = 32
	surelyReads   = 4
	rememberReads = 2000
	leastMemory   = 200 * time.Millisecond
	mostMemory    = 2 * time.Second
)

// refillPace is the law by which a refill yields to the reads of the log. It sees only the time
// and the number of reads that the tiers answered, so it costs a read nothing.
//
// A refill works and rests in turns, and so measures the throughput of reads with it and without
// it. If reads are slower by a fraction s while it works, and it works for a share x of the time,
// then reads lose x·s of their throughput. The share is set so that this is refillBudget. Each
// turn at most doubles it, and s is increased by the error of counting: a few reads do not show
// that a refill is harmless.
//
// On idle tiers a refill rests only to see whether it keeps reads from being answered at all. The
// first reads there, which are not compared with anything yet, reduce its share to the least.
//
// The number of pieces in flight follows the share, so a refill that disturbs reads also has
// fewer operations queued before theirs.
type refillPace struct {
	share         float64    // of the time; 1: the tiers are idle
	depth         int        // pieces in flight
	with, without readSample // while it worked, and while it rested
	turns         int
	quiet         time.Duration // since the last read
}

// readSample is a number of reads, and the time in which they ended. Both decay.
type readSample struct{ reads, seconds float64 }

func (s *readSample) add(took time.Duration, reads uint64) {
	s.reads += float64(reads)
	s.seconds += took.Seconds()
}

func (s *readSample) join(o *readSample) {
	s.reads += o.reads
	s.seconds += o.seconds
}

func (s *readSample) decay(by float64) {
	s.reads *= by
	s.seconds *= by
}

// rate returns the reads a second; 0 if there was no time.
func (s *readSample) rate() float64 {
	if s.seconds == 0 {
		return 0
	}
	return s.reads / s.seconds
}

func newRefillPace() refillPace { return refillPace{share: 1, depth: 1} }

// busy reports whether the tiers answer reads, or would without the refill.
func (p *refillPace) busy() bool {
	return p.with.reads+p.without.reads >= fewReads ||
		p.without.reads >= surelyReads && p.without.rate()*mostMemory.Seconds() >= fewReads
}

// work returns how long the next turn of work lasts.
func (p *refillPace) work() time.Duration {
	if p.share <= 0.5 || p.share == 1 {
		return refillSlice
	}
	return time.Duration(float64(refillSlice) * p.share / (1 - p.share))
}

// rest returns how long to rest after a turn of work.
func (p *refillPace) rest(worked time.Duration) time.Duration {
	if p.share == 1 && p.turns%idleTurns == 0 {
		return refillSlice
	}
	return time.Duration(float64(worked) * (1 - p.share) / p.share)
}

// rested accounts for a rest in which reads were answered.
func (p *refillPace) rested(took time.Duration, reads uint64) {
	p.listen(took, reads)
	if p.quiet >= quietTime && p.without.rate()*p.quiet.Seconds() >= fewReads {
		p.with, p.without = readSample{}, readSample{} // they have ended
	}
	p.age(took)
	p.without.add(took, reads)
}

// listen accounts for the time without reads.
func (p *refillPace) listen(took time.Duration, reads uint64) {
	if p.quiet += took; reads > 0 {
		p.quiet = 0
	}
}

// worked accounts for a turn of work in which reads were answered, and determines the next.
// others says that writes are pending or that goroutines wait for a processor.
func (p *refillPace) worked(took time.Duration, reads uint64, others bool) {
	p.listen(took, reads)
	p.age(took)
	p.with.add(took, reads)
	p.turns++
	switch busy := p.busy(); {
	case !busy && others:
		p.share = besideWrites
	case !busy:
		p.share = 1
	case p.share == 1:
		// The rest measures their rate without it. A few are kept, so that the tiers stay busy.
		p.without.join(&p.with)
		p.without.decay(min(1, fewReads/p.without.reads))
		p.share, p.with = leastRefillShare, readSample{}
	default:
		p.share = min(max(refillBudget/p.slowdown(), leastRefillShare), 2*p.share, mostRefillShare)
		if others {
			p.share = min(p.share, besideWrites)
		}
	}
	p.depth = min(2*p.depth, max(1, int(p.share*refillDepth)))
}

// slowdown returns the fraction by which reads are slower while the refill works, with the error
// of counting, at most 1.
func (p *refillPace) slowdown() float64 {
	if p.with.reads < 1 || p.without.reads < 1 {
		return 1
	}
	s := max(0, 1-p.with.rate()/p.without.rate())
	return min(1, s+math.Sqrt(1/p.with.reads+1/p.without.reads))
}

// age forgets earlier reads.
func (p *refillPace) age(took time.Duration) {
	memory := mostMemory.Seconds()
	all := p.with
	all.join(&p.without)
	if rate := all.rate(); rate > 0 {
		memory = min(max(rememberReads/rate, leastMemory.Seconds()), memory)
	}
	by := math.Exp(-took.Seconds() / memory)
	p.with.decay(by)
	p.without.decay(by)
}
