package bench

import (
	"context"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longest is the latency in nanoseconds beyond which all are one.
	longest = int64(time.Minute)
	// clockShare is the part of an operation's time that reading the clock for it
	// may take.
	clockShare = 0.02
	// turnsBetween is how many turns without a sample pass before a look at the
	// time.
	turnsBetween = 64
)

// Meter measures one closed loop, owned by the goroutine that runs it. A slice of
// it goes
//
//	for m.Begin(inFlight, lasts); m.Turn(ctx); {
//		enqueue operations, m.Issued(tag) for each
//		ring the doorbell, poll until something is there, m.Completed(tag) for each
//	}
//	sample := m.End()
//
// with tags below the number in flight. Operations under way at the end of a slice
// may complete in the next one: they count where they complete.
type Meter struct {
	inFlight int
	issued   []int64 // by tag: when, or 0 if it is not of the sample
	clock    int64   // what a look at the time costs, in nanoseconds
	gap      int     // operations between two of the sample; from the slice before

	// Of the slice.
	epoch     time.Time
	lasts     int64
	latencies *hdrhistogram.Histogram
	first     bool // nothing was turned yet
	completed uint64
	unsampled int
	turns     int
	stamp     int64 // of this turn's operations; 0: they are not sampled
	now       int64 // when this turn's completions came; 0: nobody has looked
}

// NewMeter returns a meter of up to most operations in flight.
func NewMeter(most int) *Meter {
	m := &Meter{issued: make([]int64, most), gap: turnsBetween}
	m.epoch = time.Now()
	m.clock = longest
	const looks = 100
	for range 10 { // the thread may not run for a while in some of them
		began, ended := m.time(), int64(0)
		for range looks {
			ended = m.time()
		}
		m.clock = min(m.clock, (ended-began)/looks)
	}
	return m
}

// time is nanoseconds since the slice began, never 0.
func (m *Meter) time() int64 { return int64(time.Since(m.epoch)) | 1 }

// Begin starts a slice of so long, with so many operations in flight.
func (m *Meter) Begin(inFlight int, lasts time.Duration) {
	m.inFlight, m.lasts = inFlight, int64(lasts)
	m.latencies = hdrhistogram.New(1, longest, 3)
	m.completed, m.turns = 0, 0
	m.first, m.unsampled = true, m.gap // the first turn is of the sample: each slice has one
	clear(m.issued)                    // what is under way from before is not of the sample
	m.epoch = time.Now()
}

// Turn says whether the slice goes on: until its time is over or ctx ended, which
// it finds out when it looks at the clock. It has one turn at least.
func (m *Meter) Turn(ctx context.Context) bool {
	m.stamp, m.now = 0, 0
	m.turns++
	if m.unsampled < m.gap && m.turns < turnsBetween {
		return true
	}
	now := m.time()
	m.turns = 0
	if m.unsampled >= m.gap {
		m.unsampled, m.stamp = 0, now
	}
	first := m.first
	m.first = false
	return first || now < m.lasts && ctx.Err() == nil
}

// Issued says that the operation tag is enqueued in this turn.
func (m *Meter) Issued(tag uint64) { m.issued[tag] = m.stamp }

// Completed says that the operation tag is complete.
func (m *Meter) Completed(tag uint64) {
	m.completed++
	m.unsampled++
	began := m.issued[tag]
	if began == 0 {
		return
	}
	if m.now == 0 {
		m.now = m.time()
	}
	_ = m.latencies.RecordValue(min(max(m.now-began-m.clock, 1), longest)) // within its range
}

// End ends the slice.
func (m *Meter) End() Sample {
	took := m.time()
	if m.completed > 0 {
		each := float64(took) / float64(m.completed)
		m.gap = int(math.Ceil(2 * float64(m.clock) / (clockShare * each)))
	}
	return Sample{
		Operations: m.completed, Seconds: float64(took) / 1e9, Mops: float64(m.completed) * 1e3 / float64(took),
		InFlight: m.inFlight, latencies: m.latencies,
	}
}

// Sample is what one slice has shown.
type Sample struct {
	Operations uint64
	Seconds    float64
	Mops       float64 // 10^6 operations a second
	InFlight   int
	Allocs     uint64 // objects that this process allocated meanwhile

	latencies *hdrhistogram.Histogram // in nanoseconds, of some operations
}

// Join adds what another thread has shown in the same slice.
func (s *Sample) Join(other Sample) {
	s.Operations += other.Operations
	s.Mops += other.Mops
	s.InFlight += other.InFlight
	s.Seconds = max(s.Seconds, other.Seconds)
	if s.latencies == nil {
		s.latencies = hdrhistogram.New(1, longest, 3)
	}
	s.latencies.Merge(other.latencies)
}
