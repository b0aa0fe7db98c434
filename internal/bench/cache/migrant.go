package cache

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/redytier"
)

// tickEvery is the interval at which a migrant records its progress; a value of a row's
// series covers several ticks.
const (
	tickEvery   = time.Millisecond
	seriesTicks = 5
	// SeriesEvery is the approximate time of one value of a row's series.
	SeriesEvery = seriesTicks * tickEvery
)

// migrant is a client thread that keeps requests in flight to each region of a cache, so
// that those to a paused region do not delay others.
type migrant struct {
	spec    *MigrateSpec
	op      Op
	session *redytier.Session
	buffers []byte
	free    []uint64
	due     []time.Time // by tag: when its next request is to begin; nil: at once
	began   []time.Time // by tag: when its request in flight was due; nil as due is
	done    []device.Completion
	rng     *rand.PCG

	ended  atomic.Bool
	result chan error // of the loop
	// Of the loop, until it has ended.
	count     uint64
	ticks     []tick
	latencies [][]latency // of an open loop, in pieces: growing one slice would copy it
}

// latency is that of one request.
type latency struct {
	due  time.Duration // since the first tick
	took time.Duration // since then
}

// latencyPiece is the number of latencies that are allocated at a time.
const latencyPiece = 1 << 12

// tick is the thread's progress at a time.
type tick struct {
	at    time.Time
	count uint64
	cpu   time.Duration
}

// startLoad starts a thread. The caller closes it.
func (s *MigrateSpec) startLoad(c *redytier.Cache, op Op) (*migrant, error) {
	depth := len(c.Regions()) * s.Depth
	session, err := c.NewSession(depth)
	if err != nil {
		return nil, err
	}
	m := &migrant{
		spec: s, op: op, session: session, buffers: make([]byte, depth*s.Size), done: make([]device.Completion, depth),
		rng: rand.NewPCG(1, 2), result: make(chan error, 1),
	}
	m.free = bench.AllTags(nil, depth)
	if s.Rate > 0 {
		now := time.Now()
		m.began = make([]time.Time, depth)
		for tag := range depth { // evenly, one after the other
			m.due = append(m.due, now.Add(time.Duration(tag)*s.period()/time.Duration(depth)))
		}
	}
	go func() { m.result <- m.run() }()
	return m, nil
}

// stop ends the loop; requests in flight are still to be polled.
func (m *migrant) stop() error {
	m.ended.Store(true)
	err := <-m.result
	m.result <- err // kept for the next caller
	return err
}

func (m *migrant) close() error {
	_ = m.stop() // already reported, unless the loop still ran
	return m.session.Close()
}

func (m *migrant) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m.note(time.Now())
	for turn := 1; !m.ended.Load(); turn++ {
		if err := m.start(); err != nil {
			return err
		}
		n := m.session.Poll(m.done)
		for _, c := range m.done[:n] {
			if c.Err != nil {
				return c.Err
			}
			m.free = append(m.free, c.Tag)
		}
		m.count += uint64(n)
		if m.due != nil && n > 0 {
			now := time.Now()
			for _, c := range m.done[:n] {
				m.took(m.began[c.Tag], now)
			}
		}
		if turn%16 == 0 {
			if now := time.Now(); now.Sub(m.ticks[len(m.ticks)-1].at) >= tickEvery {
				m.note(now)
			}
		}
	}
	return m.drain()
}

func (m *migrant) note(now time.Time) {
	m.ticks = append(m.ticks, tick{now, m.count, machine.ThreadCPU()})
}

// took records the latency of a request.
func (m *migrant) took(due, done time.Time) {
	last := len(m.latencies) - 1
	if last < 0 || len(m.latencies[last]) == latencyPiece {
		m.latencies = append(m.latencies, make([]latency, 0, latencyPiece))
		last++
	}
	m.latencies[last] = append(m.latencies[last], latency{due.Sub(m.ticks[0].at), done.Sub(due)})
}

// catchUp is the most lost time that an open loop makes up for: time in which the thread did
// not run, not time in which a request was paused.
const catchUp = 5 * time.Millisecond

// period returns the time between two requests of a tag in an open loop.
func (s *MigrateSpec) period() time.Duration {
	return max(1, time.Duration(float64(s.Depth)/s.Rate*float64(time.Second)))
}

// next returns when the next request of a tag is due. Requests that are late by more than
// catchUp are dropped. To the latencies they count as completed now: without them a pause would
// have a single slow request for each tag.
func (m *migrant) next(due, now time.Time) time.Time {
	period, latest := m.spec.period(), now.Add(-catchUp)
	next := due.Add(period)
	for next.Before(latest) {
		m.took(next, now)
		next = next.Add(period)
	}
	return next
}

// start issues requests for free tags that are due.
func (m *migrant) start() error {
	now := time.Time{}
	if m.due != nil {
		now = time.Now()
	}
	left := m.free[:0]
	for _, tag := range m.free {
		if m.due != nil {
			if now.Before(m.due[tag]) {
				left = append(left, tag)
				continue
			}
			m.began[tag] = m.due[tag]
			m.due[tag] = m.next(m.due[tag], now)
		}
		buf, addr := m.buffers[int(tag)*m.spec.Size:][:m.spec.Size], m.spec.draw(m.rng, tag)
		var err error
		if m.op == Write {
			err = m.session.Write(buf, addr, tag)
		} else {
			err = m.session.Read(buf, addr, tag)
		}
		if err != nil {
			return err
		}
	}
	m.free = left
	return m.session.Submit()
}

// drain waits for the requests in flight.
func (m *migrant) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for len(m.free) < len(m.done) {
		if err := m.session.Wait(ctx); err != nil {
			return err
		}
		for _, c := range m.done[:m.session.Poll(m.done)] {
			m.free = append(m.free, c.Tag)
		}
	}
	return nil
}

// setLoads sets the row's loads in the parts of the round.
func (m *migrant) setLoads(row *MigrateRow, at *course) {
	began, ended := m.ticks[0].at, m.ticks[len(m.ticks)-1].at
	row.Before = m.over(span{began.Add(at.called.Sub(began) / 2), at.called}) // the first half warms it up
	row.Around = m.over(span{at.called, at.from}, span{at.to, at.returned})
	row.During = m.over(span{at.from, at.to})
	row.After = m.over(span{at.returned, at.copies}, span{at.copied, ended})
	row.Beside = m.over(span{at.copies, at.copied})
	row.DuringOverBefore = row.During.over(row.Before)
	row.AroundOverBefore = row.Around.over(row.Before)
	row.BesideOverBefore = row.Beside.over(row.Before)
	row.DuringOverBeside = row.During.over(row.Beside)
	if row.During.CPU > 0 { // else it had no time for a tick
		row.PerCPU = row.DuringOverBefore * row.Before.CPU / row.During.CPU
	}
	for i := seriesTicks; i < len(m.ticks); i += seriesTicks {
		a, b := &m.ticks[i-seriesTicks], &m.ticks[i]
		if !b.at.After(at.from) {
			row.MovesAt++
		}
		row.Series = append(row.Series, float64(b.count-a.count)/b.at.Sub(a.at).Seconds()/1e6)
	}
}

// span is a part of a run.
type span struct{ from, to time.Time }

// over returns the load in some spans, from tick to tick.
func (m *migrant) over(spans ...span) (l Load) {
	took, cpu, count := time.Duration(0), time.Duration(0), uint64(0)
	for _, s := range spans {
		a, b := m.first(s.from), m.first(s.to)
		took += b.at.Sub(a.at)
		cpu += b.cpu - a.cpu
		count += b.count - a.count
	}
	if took > 0 {
		l = Load{Mops: float64(count) / took.Seconds() / 1e6, CPU: cpu.Seconds() / took.Seconds()}
	}
	l.P99Us = m.p99(spans)
	return l
}

// p99 returns the 99th percentile of the latencies, in microseconds, of requests that were due
// in some spans; 0 if there are none.
func (m *migrant) p99(spans []span) float64 {
	var us []float64
	for _, piece := range m.latencies {
		for _, l := range piece {
			due := m.ticks[0].at.Add(l.due)
			if slices.ContainsFunc(spans, func(s span) bool { return !due.Before(s.from) && due.Before(s.to) }) {
				us = append(us, float64(l.took)/1e3)
			}
		}
	}
	if len(us) == 0 {
		return 0
	}
	return bench.Quantile(us, 0.99)
}

// first returns the index of the first tick not before t, or of the last one.
func (m *migrant) first(t time.Time) *tick {
	i, _ := slices.BinarySearchFunc(m.ticks[:len(m.ticks)-1], t, func(k tick, t time.Time) int { return k.at.Compare(t) })
	return &m.ticks[i]
}
