package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longest is the greatest latency that is recorded, in nanoseconds.
	longest = int64(time.Minute)
	// clockShare is the part of an operation's time that reading the clock may take.
	clockShare = 0.02
	// passesBetween is the number of passes of the loop after which the time is read if no
	// operation was timed.
	passesBetween = 64
)

// Meter measures one closed loop. It belongs to the goroutine that calls Run.
type Meter struct {
	inFlight int
	issued   []int64 // by tag: the time of issue, or 0 if the operation is not timed
	clock    int64   // cost of reading the time, in nanoseconds
	gap      int     // operations between two that are timed; set by the previous slice

	// State of the slice.
	epoch     time.Time
	lasts     int64
	latencies *hdrhistogram.Histogram
	first     bool // no pass has begun
	completed uint64
	untimed   int   // operations completed since one was timed
	passes    int   // since the time was read
	stamp     int64 // time of issue of this pass's operations; 0: they are not timed
	now       int64 // time of this pass's completions; 0: not read yet
}

// Run measures a closed loop of inFlight operations for that long, and then waits until
// none is in flight. Tags are below inFlight. start issues an operation for each free tag
// and calls Issued for it; finish waits until an operation has completed and calls
// Completed; free returns the number of free tags.
func (m *Meter) Run(ctx context.Context, inFlight int, lasts time.Duration, start func() error, finish func(context.Context) error, free func() int) (Sample, error) {
	for m.begin(inFlight, lasts); m.next(ctx); {
		if err := start(); err != nil {
			return Sample{}, err
		}
		if err := finish(ctx); err != nil {
			return Sample{}, err
		}
	}
	sample := m.end()
	for free() < inFlight {
		if err := finish(ctx); err != nil {
			return Sample{}, err
		}
	}
	return sample, nil
}

// AllTags returns the tags below n, in the memory of free.
func AllTags(free []uint64, n int) []uint64 {
	free = free[:0]
	for tag := range uint64(n) {
		free = append(free, tag)
	}
	return free
}

// Draw returns a random number below n, which is less than 2^32.
func Draw(rng *rand.PCG, n uint64) uint64 { return rng.Uint64() >> 32 * n >> 32 }

// NewMeter returns a meter for at most that many operations in flight.
func NewMeter(most int) *Meter {
	m := &Meter{issued: make([]int64, most), gap: passesBetween}
	m.epoch = time.Now()
	m.clock = longest
	const looks = 100
	for range 10 { // the thread may be preempted in some of them
		began, ended := m.time(), int64(0)
		for range looks {
			ended = m.time()
		}
		m.clock = min(m.clock, (ended-began)/looks)
	}
	return m
}

// time returns the nanoseconds since the slice began, never 0.
func (m *Meter) time() int64 { return int64(time.Since(m.epoch)) | 1 }

func (m *Meter) begin(inFlight int, lasts time.Duration) {
	m.inFlight, m.lasts = inFlight, int64(lasts)
	m.latencies = hdrhistogram.New(1, longest, 3)
	m.completed, m.passes = 0, 0
	m.first, m.untimed = true, m.gap // the first pass is timed, so each slice has a timed one
	clear(m.issued)                  // operations that the previous slice left pending are not timed
	m.epoch = time.Now()
}

// next says whether the slice has another pass: until its time is over or ctx has ended,
// which is noticed when the time is read. The first pass always runs.
func (m *Meter) next(ctx context.Context) bool {
	m.stamp, m.now = 0, 0
	m.passes++
	if m.untimed < m.gap && m.passes < passesBetween {
		return true
	}
	now := m.time()
	m.passes = 0
	if m.untimed >= m.gap {
		m.untimed, m.stamp = 0, now
	}
	first := m.first
	m.first = false
	return first || now < m.lasts && ctx.Err() == nil
}

// Issued records that the operation of a tag was issued in this pass.
func (m *Meter) Issued(tag uint64) { m.issued[tag] = m.stamp }

// Completed records that the operation of a tag has completed.
func (m *Meter) Completed(tag uint64) {
	m.completed++
	m.untimed++
	began := m.issued[tag]
	if began == 0 {
		return
	}
	if m.now == 0 {
		m.now = m.time()
	}
	_ = m.latencies.RecordValue(min(max(m.now-began-m.clock, 1), longest)) // within its range
}

func (m *Meter) end() Sample {
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

// Sample is the result of one slice.
type Sample struct {
	Operations uint64
	Seconds    float64
	Mops       float64 // 10^6 operations a second
	InFlight   int
	CPUShare   float64 // share of the time for which the threads had a processor; 0: not known

	// Of this process, set by Plan.Run.
	Allocs    uint64
	GCSeconds float64

	latencies *hdrhistogram.Histogram // in nanoseconds, of the operations that were timed
}

// Pool returns the sample of several slices together: all operations in all the time. No slice
// is left out, however slow. There is at least one.
func Pool(slices []Sample) Sample {
	all := Sample{InFlight: slices[0].InFlight, latencies: hdrhistogram.New(1, longest, 3)}
	for _, s := range slices {
		all.Operations += s.Operations
		all.Seconds += s.Seconds
		all.Mops += s.Mops * s.Seconds
		all.Allocs += s.Allocs
		all.GCSeconds += s.GCSeconds
		if s.latencies != nil {
			all.latencies.Merge(s.latencies)
		}
	}
	all.Mops /= all.Seconds
	return all
}

// Join adds the sample of another thread in the same slice.
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
