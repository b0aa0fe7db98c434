package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/model"
)

// A cache's client reports what it measures with the renewals of the lease. This file judges each
// window by the cache's SLO, and tells the cache's watchers when the SLO is broken and when it is
// kept again. A leader has the windows in memory; the next one begins without any.
//
// The SLO promises a mean latency and a mean throughput while as many operations are in flight as
// the configuration allows: allowed = c·b·q, client threads times batch size times queue depth. The
// application may ask for less, or enqueue more. By Little's law, in flight = throughput × latency:
//
//   - Fewer are in flight than half of allowed: the application limited the throughput. Only the
//     latency is judged.
//   - At least half of allowed are in flight: the throughput is judged as well. While less than
//     allowed is in flight, the throughput that counts is that of full queues at the measured
//     latency, throughput × allowed / in flight.
//   - More are in flight than allowed: they wait for one another in the application's queues. The
//     latency that counts is that of the allowed ones, latency × allowed / in flight.
//
// A window is not judged if the SLO says nothing about it: the SLO has no bounds, or only one of
// throughput while the queues were not full; the operations were larger than its records, or not
// those that it is for; or the window began before the cache got its SLO or configuration.

const (
	// fullShare is the share of the allowed operations in flight from which on queues are full.
	fullShare = 0.5

	// An SLO is broken when brokenMisses of the last brokenWindows judged windows have missed it,
	// and kept again when keptWindows judged windows in a row have kept it.
	brokenMisses  = 3
	brokenWindows = 4
	keptWindows   = 4

	maxWindows    = 64 // that are kept of a cache, and that a renewal may have
	longestWindow = time.Hour
	largestFigure = 1e12 // of latencies in microseconds, throughputs in Mop/s, and operations in flight
)

// verdict is the result of judging a window.
type verdict uint8

const (
	verdictNone   = verdict(managerv1.Window_VERDICT_UNSPECIFIED)
	verdictKept   = verdict(managerv1.Window_VERDICT_KEPT)
	verdictMissed = verdict(managerv1.Window_VERDICT_MISSED)
)

// figures are what operations got in a window.
type figures struct {
	mops, meanUs, p99Us, inFlight float64
	size                          uint32 // mean bytes of an operation
}

// window is a window of a cache. There are many of them.
type window struct {
	number        uint64
	ended         int64  // Unix time in milliseconds
	lasted        uint32 // milliseconds
	reads, writes figures
	verdict       verdict
}

// measurements are what a cache's client has measured. Guarded by state.mu.
type measurements struct {
	windows []window  // in order, at most maxWindows
	judged  []verdict // of the last judged windows, at most as many as the rules need
	broken  bool
	kept    int       // judged windows in a row that kept the SLO
	since   time.Time // when the cache got its SLO, its configuration and its client
}

// restart begins to judge anew. Called under mu.
func (m *measurements) restart(now time.Time) { *m = measurements{windows: m.windows, since: now} }

// checkWindows checks the windows of a renewal.
func checkWindows(all []*managerv1.Window) error {
	if len(all) > maxWindows {
		return fmt.Errorf("%d windows: want at most %d", len(all), maxWindows)
	}
	last := uint64(0)
	for _, w := range all {
		if w.GetNumber() <= last {
			return fmt.Errorf("window %d after window %d: want rising numbers from 1 on", w.GetNumber(), last)
		}
		last = w.GetNumber()
		if err := checkWindow(w); err != nil {
			return fmt.Errorf("window %d: %w", last, err)
		}
	}
	return nil
}

func checkWindow(w *managerv1.Window) error {
	longest := longestWindow.Milliseconds()
	switch {
	case w.GetLastedMs() < 1 || w.GetLastedMs() > longest:
		return fmt.Errorf("lasted_ms %d: want 1 to %d", w.GetLastedMs(), longest)
	case w.GetEndedAgoMs() < 0:
		return fmt.Errorf("ended_ago_ms %d: want 0 or more", w.GetEndedAgoMs())
	case w.GetReads() == nil && w.GetWrites() == nil:
		return errors.New("neither reads nor writes: want one of them")
	case w.GetVerdict() != managerv1.Window_VERDICT_UNSPECIFIED:
		return fmt.Errorf("verdict %v: want none, as the manager judges", w.GetVerdict())
	}
	for name, m := range map[string]*managerv1.Measured{"reads": w.GetReads(), "writes": w.GetWrites()} {
		for figure, v := range map[string]float64{
			"throughput_mops": m.GetThroughputMops(), "mean_latency_us": m.GetMeanLatencyUs(),
			"p99_latency_us": m.GetP99LatencyUs(), "in_flight": m.GetInFlight(),
		} {
			if !(v >= 0 && v <= largestFigure) { // written so that NaN is refused
				return fmt.Errorf("%s: %s %v: want 0 to %v", name, figure, v, largestFigure)
			}
		}
		if m.GetRecordSize() > maxRecordSize {
			return fmt.Errorf("%s: record_size %d: want at most %d bytes", name, m.GetRecordSize(), maxRecordSize)
		}
	}
	return nil
}

// windowFrom returns a checked window that arrives now.
func windowFrom(w *managerv1.Window, now time.Time) window {
	return window{
		number: w.GetNumber(), ended: now.UnixMilli() - min(w.GetEndedAgoMs(), now.UnixMilli()), lasted: uint32(w.GetLastedMs()),
		reads: figuresFrom(w.GetReads()), writes: figuresFrom(w.GetWrites()),
	}
}

func figuresFrom(m *managerv1.Measured) figures {
	return figures{
		mops: m.GetThroughputMops(), meanUs: m.GetMeanLatencyUs(), p99Us: m.GetP99LatencyUs(), inFlight: m.GetInFlight(), size: m.GetRecordSize(),
	}
}

func (w *window) proto(now time.Time) *managerv1.Window {
	return &managerv1.Window{
		Number: w.number, EndedAgoMs: max(0, now.UnixMilli()-w.ended), LastedMs: int64(w.lasted),
		Reads: w.reads.proto(), Writes: w.writes.proto(), Verdict: managerv1.Window_Verdict(w.verdict),
	}
}

func (f figures) proto() *managerv1.Measured {
	if f == (figures{}) {
		return nil
	}
	return &managerv1.Measured{
		ThroughputMops: f.mops, MeanLatencyUs: f.meanUs, P99LatencyUs: f.p99Us, InFlight: f.inFlight, RecordSize: f.size,
	}
}

// of returns the figures of the operations of an SLO. Of reads and writes together the 99th
// percentile is the longer one.
func (w *window) of(ops managerv1.Slo_Operations) figures {
	r, s := w.reads, w.writes
	switch {
	case ops == managerv1.Slo_OPERATIONS_READS:
		return r
	case ops == managerv1.Slo_OPERATIONS_WRITES:
		return s
	case s == (figures{}):
		return r
	case r == (figures{}):
		return s
	}
	f := figures{mops: r.mops + s.mops, p99Us: max(r.p99Us, s.p99Us), inFlight: r.inFlight + s.inFlight}
	part := 0.5 // of reads
	if f.mops > 0 {
		part = r.mops / f.mops
	}
	f.meanUs = part*r.meanUs + (1-part)*s.meanUs
	f.size = uint32(part*float64(r.size) + (1-part)*float64(s.size))
	return f
}

// judge judges a window by an SLO and a configuration. why says how it was missed.
func judge(slo *managerv1.Slo, config *managerv1.Configuration, w *window) (_ verdict, why string) {
	f := w.of(slo.GetOperations())
	if f == (figures{}) || slo.GetRecordSize() > 0 && f.size > slo.GetRecordSize() {
		return verdictNone, ""
	}
	allowed := allowedBy(config)
	result, misses := verdictNone, []string(nil)
	if bound := slo.GetMaxLatencyUs(); bound > 0 {
		result = verdictKept
		if latency := f.meanUs * min(1, allowed/f.inFlight); latency > bound {
			misses = append(misses, fmt.Sprintf("mean latency %s us of %s us (p99 %s us)", figure(latency), figure(bound), figure(f.p99Us)))
		}
	}
	if bound := slo.GetMinThroughputMops(); bound > 0 && f.inFlight >= fullShare*allowed {
		result = verdictKept
		if throughput := f.mops * max(1, allowed/f.inFlight); throughput < bound {
			misses = append(misses, fmt.Sprintf("throughput %s Mop/s of %s Mop/s", figure(throughput), figure(bound)))
		}
	}
	if len(misses) > 0 {
		return verdictMissed, strings.Join(misses, ", ")
	}
	return result, ""
}

// figure formats a figure for people.
func figure(v float64) string { return fmt.Sprintf("%.4g", v) }

// judgement is what the windows of a renewal have led to.
type judgement struct {
	judged, missed uint64
	turns          []*managerv1.WatchResponse // the SLO is broken, or kept again
	due            bool                       // the keeper has to consider the cache
	doubts         *model.Place               // where the models are in doubt
}

// measured notes and judges new windows of a cache. Called under mu.
func (c *state) measured(ca *cache, windows []*managerv1.Window, now time.Time) (j judgement) {
	m := &ca.measurements
	for _, p := range windows {
		if n := len(m.windows); n > 0 && p.GetNumber() <= m.windows[n-1].number {
			continue // a repetition
		}
		w := windowFrom(p, now)
		why := ""
		if c.watch != Ignore && w.ended-int64(w.lasted) >= m.since.UnixMilli() {
			w.verdict, why = judge(ca.demand.slo, ca.demand.config, &w)
		}
		m.windows = append(m.windows, w)
		if len(m.windows) > maxWindows {
			m.windows = slices.Delete(m.windows, 0, 1)
		}
		if w.verdict == verdictNone {
			continue
		}
		j.judged++
		if w.verdict == verdictMissed {
			j.missed++
		}
		if e := m.turn(ca.id, w.verdict, why); e != nil {
			c.tell(ca, nil, e)
			j.turns = append(j.turns, e)
		}
		if m.kept == keptWindows {
			ca.keeping.tries, ca.keeping.left, ca.keeping.told = 0, false, ""
		}
		if c.watch == Correct && (m.broken || m.kept > 0 && m.kept%spareWindows == 0) {
			c.due[ca] = struct{}{}
			j.due = true
		}
	}
	if j.missed > 0 && c.watch == Correct {
		if judged, missed := m.share(); judged >= enoughJudged && float64(missed) > (1-leastKept)*float64(judged) {
			at := placeOf(ca.demand)
			j.doubts = &at
		}
	}
	return j
}

// turn adds a verdict, and returns the event if the SLO is broken by it, or kept again.
func (m *measurements) turn(id string, v verdict, why string) *managerv1.WatchResponse {
	m.judged = append(m.judged, v)
	if m.kept++; v == verdictMissed {
		m.kept = 0
	}
	if len(m.judged) > max(brokenWindows, keptWindows) {
		m.judged = slices.Delete(m.judged, 0, 1)
	}
	misses := 0
	for _, v := range m.judged[max(0, len(m.judged)-brokenWindows):] {
		if v == verdictMissed {
			misses++
		}
	}
	last := m.judged[max(0, len(m.judged)-keptWindows):]
	switch {
	case !m.broken && misses >= brokenMisses:
		m.broken = true
		return &managerv1.WatchResponse{
			Kind:   managerv1.WatchResponse_KIND_SLO_BROKEN,
			Reason: fmt.Sprintf("SLO of cache %s is broken: %s; %d of the last %d judged windows missed it", id, why, misses, len(m.judged)),
		}
	case m.broken && len(last) == keptWindows && !slices.Contains(last, verdictMissed):
		m.broken = false
		return &managerv1.WatchResponse{
			Kind:   managerv1.WatchResponse_KIND_SLO_KEPT,
			Reason: fmt.Sprintf("SLO of cache %s is kept again: by %d judged windows in a row", id, keptWindows),
		}
	}
	return nil
}

// share returns how many of the windows that are kept were judged, and how many of these missed the SLO.
// Called under mu.
func (m *measurements) share() (judged, missed int) {
	for i := range m.windows {
		w := &m.windows[i]
		if w.verdict == verdictNone || w.ended-int64(w.lasted) < m.since.UnixMilli() {
			continue
		}
		if judged++; w.verdict == verdictMissed {
			missed++
		}
	}
	return judged, missed
}

// latest returns the last window; nil: there is none. Called under mu.
func (m *measurements) latest(now time.Time) *managerv1.Window {
	if len(m.windows) == 0 {
		return nil
	}
	return m.windows[len(m.windows)-1].proto(now)
}

// all returns the windows that are kept. Called under mu.
func (m *measurements) all(now time.Time) (all []*managerv1.Window) {
	for i := range m.windows {
		all = append(all, m.windows[i].proto(now))
	}
	return all
}
