package manager

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
)

// A window is judged by latency, and by throughput if the application kept the queues full; what it
// enqueued beyond that, and what the SLO is not for, is not the cache's.
func TestJudge(t *testing.T) {
	// 16 operations may be in flight.
	config := &managerv1.Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 2, QueueDepth: 4}
	got := func(mops, meanUs float64, size uint32) *managerv1.Measured {
		return &managerv1.Measured{ThroughputMops: mops, MeanLatencyUs: meanUs, P99LatencyUs: 3 * meanUs, InFlight: mops * meanUs, RecordSize: size}
	}
	only := func(ops managerv1.Slo_Operations) *managerv1.Slo {
		s := slo(10, 2, 64)
		s.Operations = ops
		return s
	}
	for _, c := range []struct {
		name          string
		slo           *managerv1.Slo
		reads, writes *managerv1.Measured
		want          verdict
		why           string
	}{
		{"full queues, both bounds kept", slo(10, 2, 64), got(2, 8, 64), nil, verdictKept, ""},
		{"full queues, too slow", slo(10, 2, 64), got(1, 16, 64), nil, verdictMissed, "mean latency 16 us of 10 us (p99 48 us), throughput 1 Mop/s of 2 Mop/s"},
		{"full queues, throughput alone", slo(0, 2, 64), got(1, 16, 64), nil, verdictMissed, "throughput 1 Mop/s of 2 Mop/s"},
		{"little is asked for, fast", slo(10, 2, 64), got(0.1, 8, 64), nil, verdictKept, ""},
		{"little is asked for, slow", slo(10, 2, 64), got(0.1, 12, 64), nil, verdictMissed, "mean latency 12 us of 10 us (p99 36 us)"},
		{"little is asked for, of throughput alone", slo(0, 2, 64), got(0.1, 8, 64), nil, verdictNone, ""},
		{"just below half full", slo(0, 2, 64), got(0.1, 79, 64), nil, verdictNone, ""},
		{"just above half full, slow", slo(0, 2, 64), got(0.1, 81, 64), nil, verdictMissed, "throughput 0.1975 Mop/s of 2 Mop/s"},
		{"three quarters full, and full queues would give enough", slo(10, 2, 64), got(1.6, 7.5, 64), nil, verdictKept, ""},
		{"three quarters full, and full queues would not", slo(10, 2, 64), got(1.4, 12/1.4, 64), nil, verdictMissed, "throughput 1.867 Mop/s of 2 Mop/s"},
		{"four times as much is enqueued", slo(10, 2, 64), got(2, 32, 64), nil, verdictKept, ""},
		{"four times as much is enqueued, too slow", slo(10, 0, 64), got(1, 64, 64), nil, verdictMissed, "mean latency 16 us of 10 us (p99 192 us)"},
		{"nothing is answered", slo(10, 2, 64), &managerv1.Measured{MeanLatencyUs: 6e6, P99LatencyUs: 6e6, InFlight: 16}, nil, verdictMissed, "mean latency 6e+06 us of 10 us (p99 6e+06 us), throughput 0 Mop/s of 2 Mop/s"},
		{"no bounds", slo(0, 0, 64), got(1, 16, 64), nil, verdictNone, ""},
		{"no SLO", nil, got(1, 16, 64), nil, verdictNone, ""},
		{"larger records", slo(10, 2, 64), got(1, 16, 65), nil, verdictNone, ""},
		{"any records", slo(10, 2, 0), got(1, 16, 65), nil, verdictMissed, "mean latency 16 us of 10 us (p99 48 us), throughput 1 Mop/s of 2 Mop/s"},
		{"reads and writes together", slo(10, 2, 64), got(1, 4, 64), got(1, 12, 60), verdictKept, ""},
		{"reads and writes together, too slow", slo(10, 0, 64), got(0.1, 4, 64), got(0.3, 13, 64), verdictMissed, "mean latency 10.75 us of 10 us (p99 39 us)"},
		{"slow writes, where the SLO is for reads", only(managerv1.Slo_OPERATIONS_READS), got(0.1, 9, 64), got(1, 100, 64), verdictKept, ""},
		{"slow reads, where the SLO is for reads", only(managerv1.Slo_OPERATIONS_READS), got(0.1, 19, 64), got(1, 1, 64), verdictMissed, "mean latency 19 us of 10 us (p99 57 us)"},
		{"slow reads, where the SLO is for writes", only(managerv1.Slo_OPERATIONS_WRITES), got(0.1, 19, 64), got(1, 1, 64), verdictKept, ""},
		{"no writes, where the SLO is for writes", only(managerv1.Slo_OPERATIONS_WRITES), got(0.1, 19, 64), nil, verdictNone, ""},
	} {
		w := windowFrom(&managerv1.Window{Number: 1, LastedMs: 5000, Reads: c.reads, Writes: c.writes}, time.Unix(1e9, 0))
		if v, why := judge(c.slo, config, &w); v != c.want || why != c.why {
			t.Errorf("%s: verdict %d, %q, want %d, %q", c.name, v, why, c.want, c.why)
		}
	}
}

// An SLO is broken and kept again after several windows.
func TestSLOTurns(t *testing.T) {
	for windows, want := range map[string]string{
		"kkkkkkk":         "",
		"mm":              "",
		"mmm":             "broken 3",
		"mkmm":            "broken 4",
		"mkmkmkmk":        "",
		"mkkmmk":          "",
		"mmmm":            "broken 3",
		"mmmkkk":          "broken 3",
		"mmmkkkk":         "broken 3, kept 7",
		"mmmkkkmkkkk":     "broken 3, kept 11",
		"mmmkkkkmmm":      "broken 3, kept 7, broken 10",
		"kkkkkkkkkkkkmmm": "broken 15",
	} {
		var m measurements
		var turns []string
		for i, of := range windows {
			v := verdictKept
			if of == 'm' {
				v = verdictMissed
			}
			if e := m.turn("c", v, "why"); e != nil {
				what := "kept"
				if e.GetKind() == managerv1.WatchResponse_KIND_SLO_BROKEN {
					what = "broken"
				}
				turns = append(turns, fmt.Sprint(what, " ", i+1))
			}
		}
		if got := strings.Join(turns, ", "); got != want {
			t.Errorf("%s: %q, want %q", windows, got, want)
		}
	}
}

// measuring is a cache whose client reports windows.
type measuring struct {
	t      *testing.T
	m      *Manager
	client access.Client
	clock  *handClock
	cache  string
	holder uint64
	number uint64
}

// newMeasuring allocates a cache of which 16 operations may be in flight. Its SLO is 25 us and 0.7
// Mop/s, and the model predicts 20 us and 0.8 Mop/s.
func newMeasuring(t *testing.T) *measuring {
	t.Helper()
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	r := &measuring{t: t, clock: &handClock{now: time.Unix(1e9, 0)}}
	r.m, r.client = serve(t, Options{Allocator: a, Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1, SLOWatch: Observe, now: r.clock.read})
	answer, err := r.client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{
		RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(25, 0.7, 64), Configuration: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 16},
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.cache = answer.Msg.GetCacheId()
	return r
}

// window returns the next window, of reads with full queues.
func (r *measuring) window(meanUs float64) *managerv1.Window {
	r.number++
	return &managerv1.Window{Number: r.number, LastedMs: 5000, Reads: &managerv1.Measured{
		ThroughputMops: 16 / meanUs, MeanLatencyUs: meanUs, P99LatencyUs: 2 * meanUs, InFlight: 16, RecordSize: 64,
	}}
}

func (r *measuring) renew(windows ...*managerv1.Window) error {
	_, err := r.client.Renew(testContext(r.t), connect.NewRequest(&managerv1.RenewRequest{CacheId: r.cache, Holder: r.holder, Windows: windows}))
	return err
}

// gives reports a window.
func (r *measuring) gives(meanUs float64) {
	r.t.Helper()
	r.clock.advance(5 * time.Second)
	if err := r.renew(r.window(meanUs)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *measuring) describe() *managerv1.DescribeCacheResponse {
	r.t.Helper()
	d, err := r.client.DescribeCache(testContext(r.t), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: r.cache}))
	if err != nil {
		r.t.Fatal(err)
	}
	return d.Msg
}

// metrics checks the metrics of windows and broken SLOs.
func (r *measuring) metrics(judged, missed uint64, broken ...string) {
	r.t.Helper()
	m := r.m.Metrics()
	if m.WindowsJudged != judged || m.WindowsMissed != missed || m.Broken != len(broken) || !slices.Equal(m.BrokenCaches, broken) {
		r.t.Errorf("%d windows judged, %d missed, %d broken %q; want %d, %d, %q", m.WindowsJudged, m.WindowsMissed, m.Broken, m.BrokenCaches, judged, missed, broken)
	}
}

// What a client measures is shown beside what was asked and predicted; a broken SLO is an event, as
// is one that is kept again.
func TestSLOIsWatched(t *testing.T) {
	r := newMeasuring(t)
	stream, err := r.client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: r.cache}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	event := func(kind managerv1.WatchResponse_Kind, reason string) {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if e := stream.Msg(); e.GetKind() != kind || e.GetReason() != reason {
			t.Errorf("event %v, want %v: %s", e, kind, reason)
		}
	}
	if err := r.renew(); err != nil {
		t.Fatal(err)
	}
	if d := r.describe(); d.GetCache().GetMeasured() != nil || len(d.GetWindows()) > 0 {
		t.Errorf("without windows: %v, %v", d.GetCache().GetMeasured(), d.GetWindows())
	}
	r.gives(20)
	for range 3 {
		r.gives(32)
	}
	r.metrics(4, 3, r.cache)
	event(managerv1.WatchResponse_KIND_SLO_BROKEN, "SLO of cache "+r.cache+" is broken: mean latency 32 us of 25 us (p99 64 us), throughput 0.5 Mop/s of 0.7 Mop/s; 3 of the last 4 judged windows missed it")
	all, err := r.client.Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range []*managerv1.Cache{r.describe().GetCache(), all.Msg.GetCaches()[0]} {
		p, w := ca.GetPredicted(), ca.GetMeasured()
		if !ca.GetSloBroken() || p.GetLatencyUs() != 20 || p.GetThroughputMops() != 0.8 || w.GetReads().GetMeanLatencyUs() != 32 || w.GetNumber() != 4 {
			t.Errorf("broken %t, predicted %v, measured %v", ca.GetSloBroken(), p, w)
		}
	}
	for range 4 {
		r.gives(20)
	}
	r.metrics(8, 3)
	event(managerv1.WatchResponse_KIND_SLO_KEPT, "SLO of cache "+r.cache+" is kept again: by 4 judged windows in a row")
	d := r.describe()
	var verdicts []managerv1.Window_Verdict
	for i, w := range d.GetWindows() {
		verdicts = append(verdicts, w.GetVerdict())
		if ago := int64(5000 * (7 - i)); w.GetEndedAgoMs() != ago {
			t.Errorf("window %d ended %d ms ago, want %d", w.GetNumber(), w.GetEndedAgoMs(), ago)
		}
	}
	if want := "[VERDICT_KEPT VERDICT_MISSED VERDICT_MISSED VERDICT_MISSED VERDICT_KEPT VERDICT_KEPT VERDICT_KEPT VERDICT_KEPT]"; fmt.Sprint(verdicts) != want || d.GetCache().GetSloBroken() {
		t.Errorf("verdicts %v, broken %t", verdicts, d.GetCache().GetSloBroken())
	}
}

// Windows that make no sense are refused, and change nothing.
func TestWindowsAreChecked(t *testing.T) {
	r := newMeasuring(t)
	r.gives(32)
	before := fmt.Sprint(r.describe())
	spoiled := func(spoil func(w *managerv1.Window)) []*managerv1.Window {
		good, bad := r.window(32), r.window(32)
		spoil(bad)
		r.number -= 2
		return []*managerv1.Window{good, bad}
	}
	many := make([]*managerv1.Window, maxWindows+1)
	for i := range many {
		many[i] = &managerv1.Window{Number: uint64(i) + 100, LastedMs: 1, Reads: &managerv1.Measured{}}
	}
	for want, windows := range map[string][]*managerv1.Window{
		"65 windows: want at most 64":                                            many,
		"window 2 after window 2: want rising numbers from 1 on":                 spoiled(func(w *managerv1.Window) { w.Number = 2 }),
		"window 3: lasted_ms 0: want 1 to 3600000":                               spoiled(func(w *managerv1.Window) { w.LastedMs = 0 }),
		"window 3: lasted_ms 3600001: want 1 to 3600000":                         spoiled(func(w *managerv1.Window) { w.LastedMs = 3_600_001 }),
		"window 3: ended_ago_ms -1: want 0 or more":                              spoiled(func(w *managerv1.Window) { w.EndedAgoMs = -1 }),
		"window 3: neither reads nor writes":                                     spoiled(func(w *managerv1.Window) { w.Reads = nil }),
		"window 3: verdict VERDICT_KEPT: want none":                              spoiled(func(w *managerv1.Window) { w.Verdict = managerv1.Window_VERDICT_KEPT }),
		"window 3: reads: throughput_mops NaN: want 0 to 1e+12":                  spoiled(func(w *managerv1.Window) { w.Reads.ThroughputMops = math.NaN() }),
		"window 3: reads: mean_latency_us -1: want 0 to 1e+12":                   spoiled(func(w *managerv1.Window) { w.Reads.MeanLatencyUs = -1 }),
		"window 3: reads: p99_latency_us +Inf: want 0 to 1e+12":                  spoiled(func(w *managerv1.Window) { w.Reads.P99LatencyUs = math.Inf(1) }),
		"window 3: reads: record_size 4294967295: want at most 1073741824 bytes": spoiled(func(w *managerv1.Window) { w.Reads.RecordSize = math.MaxUint32 }),
		"window 3: writes: in_flight -Inf: want 0 to 1e+12":                      spoiled(func(w *managerv1.Window) { w.Writes = &managerv1.Measured{InFlight: math.Inf(-1)} }),
	} {
		if err := r.renew(windows...); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "cache "+fmt.Sprintf("%q: ", r.cache)+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r.metrics(1, 1)
	if after := fmt.Sprint(r.describe()); after != before {
		t.Errorf("refused windows have changed\n%s\nto\n%s", before, after)
	}
	if err := r.renew(many[:maxWindows]...); err != nil { // and none of many has operations
		t.Error(err)
	}
}

// The windows of a cache are bounded. A repeated window does not count; another client, SLO or
// configuration begins anew, and the windows that began before are not judged.
func TestWindowsBeginAnew(t *testing.T) {
	r := newMeasuring(t)
	r.gives(32)
	r.gives(32)
	r.number--
	r.gives(32) // a repetition
	r.metrics(2, 2)
	if _, err := r.client.Attach(testContext(t), connect.NewRequest(&managerv1.AttachRequest{CacheId: r.cache, RequestId: newRequestID()})); err != nil {
		t.Fatal(err)
	}
	r.number, r.holder = 0, 1
	if err := r.renew(r.window(32)); err != nil { // it began before the Attach
		t.Fatal(err)
	}
	r.metrics(2, 2)
	for range 3 {
		r.gives(32)
	}
	r.metrics(5, 5, r.cache)
	d := r.describe()
	settle := &managerv1.SettleRequest{CacheId: r.cache, Holder: 1, Change: nextChange(), Capacity: 1 << 20, Slo: slo(50, 0.1, 64)}
	for _, g := range d.GetCache().GetGrants() {
		settle.Grants = append(settle.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
	}
	if _, err := r.client.Settle(testContext(t), connect.NewRequest(settle)); err != nil {
		t.Fatal(err)
	}
	r.metrics(5, 5)
	r.gives(32) // by the new SLO
	r.metrics(6, 5)
	for range maxWindows {
		r.gives(32)
	}
	if n := len(r.describe().GetWindows()); n != maxWindows {
		t.Errorf("%d windows are kept, want %d", n, maxWindows)
	}
}
