package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ycsb"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// tiny covers all kinds of cells with small sizes and short times.
func tiny() Spec {
	return Spec{
		Records: 3000, ValueSize: 8, Ops: Ops, Distributions: ycsb.Distributions, Modes: Modes,
		Threads: []int{1, 2}, Depth: 32, Duration: 2 * bench.Rounds * time.Millisecond,
	}
}

// Every requested cell is there once, with plausible figures.
func TestRunMeasuresEveryCell(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"8 bytes":               func(*Spec) {},
		"8 bytes, variable":     func(s *Spec) { s.Variable = true },
		"1 KiB, variable":       func(s *Spec) { s.Variable, s.ValueSize = true, 1024 },
		"odd sizes, deep queue": func(s *Spec) { s.ValueSize, s.Records, s.Depth = 101, 777, 1000 },
		"few large values":      func(s *Spec) { s.ValueSize, s.Records, s.Depth, s.Ops = 1<<13, 3, 2, []Op{Read} },
		"one record":            func(s *Spec) { s.Records, s.Depth = 1, 1 },
		"peer":                  func(s *Spec) { s.Peer, s.Ops = PeerPebble, []Op{Mixed, Upsert} },
		"cold":                  func(s *Spec) { s.Cold, s.Ops, s.Records = true, []Op{Read}, 20_000 },
		"cold, with a cache": func(s *Spec) {
			s.Cold, s.Ops, s.Records, s.ReadCache = true, []Op{Read}, 20_000, 0.3
		},
		"cold, variable": func(s *Spec) { s.Cold, s.Ops, s.Variable, s.ValueSize = true, []Op{Read}, true, 100 },
	} {
		t.Run(name, func(t *testing.T) {
			spec := tiny()
			change(&spec)
			report, err := Run(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkRows(t, report)
			var table bytes.Buffer
			if err := report.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(table.String(), "\n"); n < len(report.Rows)+6 {
				t.Errorf("a table of %d lines for %d rows:\n%s", n, len(report.Rows), table.String())
			}
		})
	}
}

func checkRows(t *testing.T, report *Report) {
	t.Helper()
	s := &report.Spec
	type key struct {
		Op
		ycsb.Distribution
		Mode
		threads int
	}
	seen, peers, cached := make(map[key]bool), 0, 0.0
	for _, r := range report.Rows {
		if r.Store != "redykv" {
			peers++
			continue
		}
		seen[key{r.Op, r.Distribution, r.Mode, r.Threads}] = true
		if !(r.Mops > 0 && r.MopsMin <= r.Mops && r.Mops <= r.MopsMax) || r.Operations == 0 || r.Seconds <= 0 {
			t.Errorf("%+v: speed", r)
		}
		if r.Slices < 1 || r.Slices > bench.Rounds || !(r.CPUShare > 0 && r.CPUShare <= 1) {
			t.Errorf("%+v: slices", r)
		}
		if r.LimitMops <= 0 || r.GeneratorNanos <= 0 || (r.CopyMops > 0) != (s.ValueSize >= copyFrom && r.Op != RMW) || r.OfLimit <= 0 || (r.OfCopying > 0) != (r.CopyMops > 0) {
			t.Errorf("%+v: yardsticks", r)
		}
		if r.AllocsPerOp > 0.5 && r.Store == "redykv" && !machine.RaceDetector || r.GCCPUShare < 0 {
			t.Errorf("%+v: allocations", r)
		}
		if (r.Scaling > 0) != (r.Threads > 1) {
			t.Errorf("%+v: scaling", r)
		}
		if compared := s.Peer != "" && r.Op == Mixed && r.Distribution == ycsb.Uniform; (r.RatioToPeer > 0) != compared {
			t.Errorf("%+v: ratio to the peer", r)
		}
		if r.LogBytes < s.logBytes() || r.IndexBytes <= 0 || r.Records != s.Records || r.ValueSize != s.ValueSize {
			t.Errorf("%+v: sizes", r)
		}
		reads, sum := r.Op == Read || r.Op == Mixed, r.HitMemory+r.HitCache+r.HitDevice
		if reads != (sum > 0.999) || reads && s.Cold != (r.HitDevice > 0.2) || !s.Cold && r.HitDevice > 0 || s.ReadCache == 0 && r.HitCache > 0 {
			t.Errorf("%+v: where reads were answered", r)
		}
		cached += r.HitCache
	}
	if want := len(s.Ops) * len(s.Distributions) * len(s.Modes) * len(s.Threads); len(seen) != want || len(report.Rows)-peers != want {
		t.Errorf("%d rows, %d of them different, want %d", len(report.Rows)-peers, len(seen), want)
	}
	if s.ReadCache > 0 && cached == 0 {
		t.Error("the read cache answered nothing")
	}
	if want := len(s.peerOps()) * len(s.Threads); s.Peer != "" && peers != want || s.Peer == "" && peers > 0 {
		t.Errorf("%d rows of a peer, want %d", peers, want)
	}
}

// In the steady state no operation allocates, in any mode, and neither does the measuring
// loop.
func TestNothingIsAllocated(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	for name, change := range map[string]func(*Spec){
		"8 bytes":         func(*Spec) {},
		"100 bytes":       func(s *Spec) { s.Variable, s.ValueSize = true, 100 },
		"cold, 8 bytes":   func(s *Spec) { s.Cold, s.Ops, s.Records = true, []Op{Read}, 20_000 },
		"cold, 100 bytes": func(s *Spec) { s.Cold, s.Ops, s.Variable, s.ValueSize = true, []Op{Read}, true, 100 },
	} {
		spec := tiny()
		change(&spec)
		store, err := openStore(t.Context(), &spec, bench.OrQuiet(nil))
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorker(&spec, 0, store, make([]uint64, 1<<10))
		if err != nil {
			t.Fatal(err)
		}
		cells, _ := plan(&spec, nil)
		for _, c := range cells {
			k, numbers := c.op.kinds(), w.numbers[c.distribution]
			if n := testrun.AllocsPerRun(100, func() {
				if err := c.run(w, k, numbers.take(spec.Depth)); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s: %v: %g allocations for %d operations", name, c, n, spec.Depth)
			}
			for len(w.free) < len(w.ops) {
				if err := w.poll(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(w.session.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

// The JSON lines equal the rows.
func TestJSONLines(t *testing.T) {
	spec := tiny()
	spec.Ops, spec.Threads = []Op{RMW}, []int{1}
	report, err := Run(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(report.Rows) {
		t.Fatalf("%d lines for %d rows", len(lines), len(report.Rows))
	}
	for i, line := range lines {
		var got Row
		if err := json.Unmarshal([]byte(line), &got); err != nil || got != report.Rows[i] {
			t.Errorf("line %s\nis %+v,\nwant %+v: %v", line, got, report.Rows[i], err)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"op", "distribution", "mode", "threads", "records", "value_size",
			"mops", "limit_mops", "allocs_per_op", "gc_cpu_share", "rss_bytes"} {
			if fields[name] == nil {
				t.Errorf("line %s\nhas no %s", line, name)
			}
		}
	}
}

// stages records the stages, and cancels when measuring begins.
type stages struct {
	names  []string
	cancel func()
}

func (p *stages) Begin(stage string, _ int64) {
	p.names = append(p.names, stage)
	if stage == "measure" && p.cancel != nil {
		p.cancel()
	}
}
func (p *stages) Add(int64) {}
func (p *stages) End()      {}

func TestRunIsCut(t *testing.T) {
	spec := tiny()
	spec.Duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &stages{cancel: cancel}
	if _, err := Run(ctx, spec, p); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was cut ended with %v", err)
	}
	if got := strings.Join(p.names, ", "); got != "load, yardstick, draw numbers, measure" {
		t.Errorf("the stages were %s", got)
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		"0 records":                   func(s *Spec) { s.Records = 0 },
		"value size of 7":             func(s *Spec) { s.ValueSize = 7 },
		"value size of 1048577":       func(s *Spec) { s.ValueSize = 1<<20 + 1 },
		"this machine has":            func(s *Spec) { s.Records, s.ValueSize = 1<<32, 1<<20 },
		"depth 0":                     func(s *Spec) { s.Depth = 0 },
		"depth 16385":                 func(s *Spec) { s.Depth = 1<<14 + 1 },
		"duration of 1ms":             func(s *Spec) { s.Duration = time.Millisecond },
		"under reads alone":           func(s *Spec) { s.Cold = true },
		"0 threads":                   func(s *Spec) { s.Threads = []int{0} },
		"no operations to measure":    func(s *Spec) { s.Ops = nil },
		"no modes to measure":         func(s *Spec) { s.Modes = nil },
		"no threads to measure":       func(s *Spec) { s.Threads = nil },
		"threads: the same is given":  func(s *Spec) { s.Threads = []int{2, 2} },
		"unknown peer":                func(s *Spec) { s.Peer = "bbolt" },
		"peer pebble needs":           func(s *Spec) { s.Peer, s.Ops = PeerPebble, []Op{RMW} },
		"no distributions to measure": func(s *Spec) { s.Distributions = nil },
	} {
		spec := tiny()
		change(&spec)
		if err := spec.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %q", err, want)
		}
	}
	spec := tiny()
	if err := spec.Check(); err != nil {
		t.Error(err)
	}
}
