package redytier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// A timed operation counts for those that completed since the one before, and so does its latency;
// timed operations are far apart where operations are fast, and each one is timed where they are
// slow.
func TestTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTiming()
		// run completes operations that take a time each, one after the other, and returns how many
		// of them are timed.
		run := func(n int, write bool, takes time.Duration) (timed int) {
			for range n {
				is := m.armed
				if is {
					timed++
					m.begin(write, 1)
				}
				time.Sleep(takes)
				if is {
					m.end(write, false)
				}
				if m.passed++; m.passed >= m.interval || m.restart.Load() {
					m.due()
				}
			}
			return timed
		}
		if n := run(100_000, false, time.Microsecond); n < 50 || n > 400 {
			t.Errorf("of 100 ms with 100000 operations, %d are timed", n)
		}
		if n := run(500, true, 10*time.Millisecond); n == 0 {
			t.Error("no slow operation is timed")
		}
		m.restart.Store(true)
		if n := run(100, true, 10*time.Millisecond); n < 99 {
			t.Errorf("%d of 100 slow operations of a new window are timed", n)
		}
		for kind, want := range map[int]struct {
			operations, mean float64
			p99              time.Duration
		}{
			0: {100_000, 1e3, time.Microsecond},
			1: {600, 1e7, 10 * time.Millisecond},
		} {
			var f figures
			f.add(&m.kinds[kind], 0, 0)
			if d := float64(f.weight) - want.operations; math.Abs(d) > 2*maxInterval {
				t.Errorf("kind %d: timed ones count for %d operations, want about %v", kind, f.weight, want.operations)
			}
			if mean := float64(f.sum) / float64(f.weight); math.Abs(mean-want.mean) > 0.01*want.mean {
				t.Errorf("kind %d: a mean of %v ns, want %v", kind, mean, want.mean)
			}
			if p99 := f.quantile(0.99); math.Abs(float64(p99-want.p99)) > float64(want.p99)/8 {
				t.Errorf("kind %d: a 99th percentile of %v, want %v", kind, p99, want.p99)
			}
		}
	})
}

// A window has the throughput, latencies and number in flight of its reads and writes; one without
// operations is left out; operations that are stuck for a whole window are told.
func TestWindows(t *testing.T) {
	const us = uint64(time.Microsecond)
	w := windows{began: time.Unix(100, 0)}
	at := func(seconds int64, reads, writes figures) {
		w.end(time.Unix(100+seconds, 0), [2]figures{reads, writes})
	}
	reads := figures{operations: 10_000_000, bytes: 640_000_000, weight: 1000, sum: 1000 * 8 * us}
	at(5, reads, figures{})
	at(10, reads, figures{}) // idle
	writes := figures{operations: 5_000_000, bytes: 5_000_000, weight: 10, sum: 10 * 2 * us}
	at(20, reads, writes)
	stuck := reads
	stuck.stuck, stuck.stuckFor = 16, 7*time.Second
	at(25, stuck, writes)
	got := w.waiting(time.Unix(130, 0))
	want := []*managerv1.Window{
		{Number: 1, EndedAgoMs: 25_000, LastedMs: 5000, Reads: &managerv1.Measured{ThroughputMops: 2, MeanLatencyUs: 8, InFlight: 16, RecordSize: 64}},
		{Number: 2, EndedAgoMs: 10_000, LastedMs: 10_000, Writes: &managerv1.Measured{ThroughputMops: 0.5, MeanLatencyUs: 2, InFlight: 1, RecordSize: 1}},
		{Number: 3, EndedAgoMs: 5000, LastedMs: 5000, Reads: &managerv1.Measured{MeanLatencyUs: 7e6, P99LatencyUs: 7e6, InFlight: 16}},
	}
	if len(got) != len(want) {
		t.Fatalf("%d windows, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("window %d is %v, want %v", i, got[i], want[i])
		}
	}
	w.received(got[:2])
	if left := w.waiting(time.Unix(130, 0)); len(left) != 1 || left[0].Number != 3 {
		t.Errorf("after the first two were received, there are %v", left)
	}
	for i := range int64(2 * maxWindows) {
		reads.operations++
		reads.weight++
		at(30+i, reads, writes)
	}
	if left := w.waiting(time.Unix(900, 0)); len(left) != maxWindows || left[maxWindows-1].Number != 3+2*maxWindows {
		t.Errorf("%d windows wait, the last is %v", len(left), left[len(left)-1])
	}
}

// The figures of a cache are those of its operations, of open and closed sessions.
func TestFigures(t *testing.T) {
	cache := benchCache(t, "mem", 1, 4)
	before := cache.figures(windowLength)
	for range 2 {
		s, err := cache.NewSession(16)
		if err != nil {
			t.Fatal(err)
		}
		readRounds(t, s, 16, 24, 100)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open := newSession(t, cache, 16)
	readRounds(t, open, 16, 24, 100)
	after := cache.figures(windowLength)
	reads, writes := after[0].since(&before[0]), after[1].since(&before[1])
	if reads.operations != 4800 || reads.bytes != 4800*24 || reads.weight == 0 || reads.sum == 0 || writes.operations != 0 || writes.weight != 0 {
		t.Errorf("reads %d of %d bytes, %d timed in %d ns; writes %d, %d timed", reads.operations, reads.bytes, reads.weight, reads.sum, writes.operations, writes.weight)
	}
	if all := cache.figures(0); all[0].stuck != 0 || all[1].stuck != 0 {
		t.Errorf("nothing is pending, and %d and %d are stuck", all[0].stuck, all[1].stuck)
	}
	open.timing.begin(true, 3)
	if all := cache.figures(0); all[0].stuck != 0 || all[1].stuck != 3 || all[1].stuckFor <= 0 {
		t.Errorf("three writes are pending, and %d are stuck for %v", all[1].stuck, all[1].stuckFor)
	}
}

// renewals is a manager that answers renewals only.
type renewals struct {
	Manager
	answer func(*managerv1.RenewRequest) error
}

func (r renewals) Renew(_ context.Context, req *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	if err := r.answer(req.Msg); err != nil {
		return nil, err
	}
	return connect.NewResponse(&managerv1.RenewResponse{LeaseMs: time.Minute.Milliseconds()}), nil
}

// Windows go with the renewals until one of them is answered. A manager that refuses them still
// renews the lease.
func TestWindowsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		answers := []error{errors.New("no network"), nil, nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no")), nil}
		c := &Cache{log: slog.New(slog.DiscardHandler)}
		total := figures{}
		measure := func() {
			total.operations++
			total.weight++
			c.windows.end(time.Now(), [2]figures{total, {}})
		}
		c.windows.began = time.Now()
		time.Sleep(time.Second)
		measure()
		c.mgr = renewals{answer: func(req *managerv1.RenewRequest) error {
			numbers := []uint64{}
			for _, w := range req.GetWindows() {
				numbers = append(numbers, w.GetNumber())
			}
			told = append(told, fmt.Sprint(numbers))
			err := answers[len(told)-1]
			switch len(told) {
			case 1, 3:
				measure()
			case len(answers):
				cancel()
			}
			return err
		}}
		newWatcher(c).renew(ctx, "cache", 0, time.Minute)
		if got, want := fmt.Sprint(told), "[[1] [1 2] [] [3] []]"; got != want {
			t.Errorf("renewals have windows %s, want %s", got, want)
		}
	})
}

// BenchmarkTiming compares a session while it times some operations with the same one while it times
// none, in short turns, so that other load meets both alike. Its last metric is the median of the
// ratios of two turns.
func BenchmarkTiming(b *testing.B) {
	cache := benchCache(b, "mem", 1, 4)
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			s := newSession(b, cache, depth)
			const turn = 1 << 14 // operations
			interval := 1
			took := func(timed bool) float64 {
				if s.timing.interval = math.MaxInt; timed {
					s.timing.interval = interval
				}
				s.timing.armed = timed
				began := time.Now()
				readRounds(b, s, depth, 8, turn/depth)
				d := time.Since(began)
				if timed {
					interval = s.timing.interval
				}
				return float64(d) / turn
			}
			took(true) // warm
			var with, without, ratios []float64
			for i := 0; b.Loop(); i++ {
				first := took(i%2 == 0)
				second := took(i%2 != 0)
				if i%2 != 0 {
					first, second = second, first
				}
				with, without, ratios = append(with, first), append(without, second), append(ratios, first/second)
			}
			middle := func(all []float64) float64 {
				slices.Sort(all)
				return all[len(all)/2]
			}
			b.ReportMetric(middle(with), "timed-ns/op")
			b.ReportMetric(middle(without), "untimed-ns/op")
			b.ReportMetric(middle(ratios), "timed/untimed")
		})
	}
}
