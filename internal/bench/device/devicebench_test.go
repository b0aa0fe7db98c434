package device

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/ssdtier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testSpec(t *testing.T, device string) Spec {
	return Spec{
		Device: device, Ops: []Op{Read, Write}, Blocks: []int{4096, 64 << 10}, Depths: []int{1, 9}, Batch: 2,
		Duration: bench.MinDuration, Size: 4 << 20, Dir: t.TempDir(), Engine: ssdtier.EngineAuto, Verify: ssdtier.VerifyAll, Net: "none", NoFio: true,
	}
}

// TestRun measures every operation on the devices that need no other process.
func TestRun(t *testing.T) {
	for _, device := range []string{"memory", "ssd", "smb"} {
		t.Run(device, func(t *testing.T) {
			if err := smbd.Available(); device == "smb" && err != nil {
				t.Skip(err)
			}
			spec := testSpec(t, device)
			report, err := Run(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Rows) != 8 {
				t.Fatalf("%d rows", len(report.Rows))
			}
			seen := make(map[cell]bool)
			for _, r := range report.Rows {
				if r.Device != device || r.IOPS <= 0 || r.MeanUs <= 0 || r.P99Us < r.P50Us || r.Operations == 0 || r.FioIOPS != 0 {
					t.Errorf("%+v", r)
				}
				if little := r.MeanUs * r.IOPS / 1e6 / float64(r.Depth); little < 0.999 || little > 1.001 {
					t.Errorf("mean and IOPS of %+v disagree", r)
				}
				seen[cell{Op: r.Op, Size: r.Block, Depth: r.Depth}] = true
			}
			if len(seen) != 8 {
				t.Errorf("cells %v", seen)
			}
			var table, lines strings.Builder
			if err := errors.Join(report.WriteTable(&table), report.WriteJSON(&lines)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(table.String(), "fio") || strings.Count(table.String(), "64KiB") != 4 {
				t.Errorf("table:\n%s", table.String())
			}
			for line := range strings.Lines(lines.String()) {
				var r Row
				if err := json.Unmarshal([]byte(line), &r); err != nil || r.Device != device {
					t.Errorf("%s: %v", line, err)
				}
			}
		})
	}
}

// TestStore: only reads that were not in memory count.
func TestStore(t *testing.T) {
	for _, device := range []string{"memory", "ssd"} {
		spec := testSpec(t, device)
		spec.Ops, spec.Blocks, spec.Size = []Op{Read, Store}, []int{512}, 32<<20
		report, err := Run(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Rows) != 4 {
			t.Fatalf("%d rows", len(report.Rows))
		}
		for _, r := range report.Rows[2:] {
			if r.Op != Store || r.IOPS <= 0 || r.Operations == 0 || r.P99Us < r.P50Us {
				t.Errorf("%+v", r)
			}
		}
	}
	for _, blocks := range [][]int{{8}, {100}, {1 << 20}, {512, 1024}} {
		spec := testSpec(t, "memory")
		spec.Ops, spec.Blocks, spec.Size = []Op{Store}, blocks, 1<<30
		if _, err := Run(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "records of") {
			t.Errorf("records of %v bytes: %v", blocks, err)
		}
	}
}

// TestBesideFio: fio takes part if it is installed.
func TestBesideFio(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip(err)
	}
	spec := testSpec(t, "ssd")
	// Few cells, because fio takes long to start. Reads are tested by a script of the command.
	spec.NoFio, spec.Ops, spec.Blocks, spec.Depths = false, []Op{Write, Grow}, []int{4096}, []int{4}
	report, err := Run(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Rows {
		if r.FioIOPS <= 0 || r.FioMeanUs <= 0 || r.IOPS <= 0 {
			t.Errorf("%+v", r)
		}
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "beside it: fio-") ||
		!strings.Contains(table.String(), "have space that was never written") {
		t.Errorf("%v, table:\n%s", err, table.String())
	}
}

func TestMedian(t *testing.T) {
	samples := func(mops ...float64) (all []bench.Sample) {
		for _, m := range mops {
			all = append(all, bench.Sample{Mops: m})
		}
		return all
	}
	ours := samples(5, 1, 4, 2, 3)
	if our, their := median(ours, nil); our.Mops != 3 || their != nil {
		t.Errorf("alone: %v and %v", our.Mops, their)
	}
	// The ratios are 5, 1/9, 1/2, 1 and 1.5.
	if our, their := median(ours, samples(1, 9, 8, 2, 2)); our.Mops != 2 || their.Mops != 2 {
		t.Errorf("beside others: %v and %v", our.Mops, their.Mops)
	}
}

func TestFioFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fio")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho no such disk >&2\nexit 3\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	f := &fio{path: path, sector: 4096}
	if _, err := f.slice(t.Context(), cell{Op: Read, Size: 512, Depth: 1}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("%v, want what fio said", err)
	}
	if n := f.block(cell{Op: Store, Size: 4104, Depth: 1}); n != 8192 {
		t.Errorf("of a record of 4104 bytes fio reads %d", n)
	}
	if n := f.block(cell{Op: Read, Size: 512, Depth: 1}); n != 4096 {
		t.Errorf("of a disk whose sectors have 4096 bytes fio reads %d", n)
	}
	x := cell{Op: Write, Size: 4096, Depth: 3}
	for _, out := range []string{"", "{}", `{"jobs":[]}`, `{"jobs":[{"write":{"iops":0,"total_ios":0}}]}`, `{"jobs":[{"read":{"iops":5,"total_ios":5}}]}`} {
		if s, err := parseFio([]byte(out), x); err == nil {
			t.Errorf("%q is %+v", out, s)
		}
	}
	s, err := parseFio([]byte(`{"fio version":"x","jobs":[{"read":{"iops":0},"write":{"iops":2e6,"total_ios":100,"runtime":50}}]}`), x)
	if err != nil || s.Mops != 2 || s.Operations != 100 || s.Seconds != 0.05 || s.InFlight != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSpecs(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		`unknown device "tape"`:       func(s *Spec) { s.Device = "tape" },
		`unknown operation "rewind"`:  func(s *Spec) { s.Ops = []Op{"rewind"} },
		"nothing to measure":          func(s *Spec) { s.Depths = nil },
		"block of 0 bytes":            func(s *Spec) { s.Blocks = []int{0} },
		"depth 5000":                  func(s *Spec) { s.Depths = []int{5000} },
		"batch of -1":                 func(s *Spec) { s.Batch = -1 },
		`unknown engine "steam"`:      func(s *Spec) { s.Engine = "steam" },
		`unknown verification "hope"`: func(s *Spec) { s.Verify = "hope" },
		"size of 1KiB":                func(s *Spec) { s.Size = 1024 },
		"size of 1MiB":                func(s *Spec) { s.Size = 1 << 20 },
		"duration of 1":               func(s *Spec) { s.Duration = time.Microsecond },
		"network":                     func(s *Spec) { s.Net = "slow" },
	} {
		spec := testSpec(t, "memory")
		change(&spec)
		if _, err := Run(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	spec := testSpec(t, "ssd")
	spec.Blocks = []int{512}
	if _, err := Run(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "multiples of 4096") {
		t.Errorf("writes of 512 bytes: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, testSpec(t, "memory"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}
