package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

func TestMain(m *testing.M) { testrun.Main(m) }

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
		if r.FioIOPS <= 0 || r.FioMeanUs <= 0 || r.FioFastIOPS <= 0 || r.FioFastMeanUs <= 0 || r.OfFio <= 0 || r.IOPS <= 0 {
			t.Errorf("%+v", r)
		}
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "beside it: fio-") ||
		!strings.Contains(table.String(), "have space that was never written") {
		t.Errorf("%v, table:\n%s", err, table.String())
	}
}

// fakeFio makes a program fio the first in PATH. It reports 1000 operations a second, with the
// options of fast 4000 in batches of 8, and 3000 in batches of 2.
func fakeFio(t *testing.T) {
	dir := t.TempDir()
	const script = `#!/bin/sh
case "$*" in
--version) echo fio-0 ; exit ;;
*--iodepth_batch_submit=8*--iodepth_batch_complete_max=8*--registerfiles=1*) iops=4000 ;;
*--iodepth_batch_submit=2*--iodepth_batch_complete_max=2*--registerfiles=1*) iops=3000 ;;
*--iodepth_batch*) echo wrong depth >&2 ; exit 1 ;;
*) iops=1000 ;;
esac
count='"iops":'$iops',"total_ios":10,"runtime":1'
echo '{"jobs":[{"read":{'$count'},"write":{'$count'}}]}'
`
	if err := os.WriteFile(filepath.Join(dir, "fio"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestBetterFio: a row has both figures of fio, and its share is of the better one.
func TestBetterFio(t *testing.T) {
	fakeFio(t)
	spec := testSpec(t, "ssd")
	spec.NoFio, spec.Ops, spec.Blocks, spec.Depths = false, []Op{Read}, []int{4096}, []int{8}
	report, err := Run(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := report.Rows[0]
	if r.FioIOPS != 1000 || r.FioFastIOPS != 4000 || r.FioMeanUs != 8000 || r.FioFastMeanUs != 2000 || r.FioBatch != 8 || r.FioPages == "" || math.Abs(r.OfFio*4000/r.IOPS-1) > 1e-9 {
		t.Errorf("%+v", r)
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "with its defaults, and fast: batches of all in flight or a quarter of them, a registered file") ||
		!strings.Contains(table.String(), "of better fio") || !strings.Contains(table.String(), "the slice with the median throughput") {
		t.Errorf("%v, table:\n%s", err, table.String())
	}
}

// TestBestOfFios: the fast fio is the one with the best batches, and the share is the median of
// the slices' ratios to the best of all, where their medians are of different slices.
func TestBestOfFios(t *testing.T) {
	slices := func(mops ...float64) (all []bench.Sample) {
		for _, m := range mops {
			all = append(all, bench.Sample{Mops: m, InFlight: 8})
		}
		return all
	}
	ours := slices(1, 2, 8)
	whole := &fio{fast: &fast{share: 1, pages: &pages{way: smallPages}}}
	part := &fio{fast: &fast{share: 4, pages: &pages{way: smallPages}}}
	for _, tc := range []struct {
		plain, whole, part []bench.Sample
		iops, mean         float64 // of the fast one
		batch              int
		of                 float64
	}{
		{slices(1, 1, 1), slices(2, 2, 2), slices(8, 4, 2), 4e6, 2, 2, 0.5},        // of 1/8, 1/2, 4; 2 over 4 would be the same
		{slices(1, 1, 1), slices(10, 4, 2), slices(2, 2, 2), 4e6, 2, 8, 0.5},       // the first batches
		{slices(2, 20, 20), slices(1, 1, 1), slices(3, 3, 3), 3e6, 8. / 3, 2, 0.4}, // the defaults: of 1/2, 1/10, 8/20; 2 over 20 would be 0.1
	} {
		r := Row{Depth: 8}
		r.beside(&fio{}, ours, tc.plain)
		r.beside(whole, ours, tc.whole)
		r.beside(part, ours, tc.part)
		if r.FioIOPS != bench.MedianSample(tc.plain).Mops*1e6 || r.FioFastIOPS != tc.iops || r.FioFastMeanUs != tc.mean || r.FioBatch != tc.batch || r.OfFio != tc.of || r.FioPages != smallPages {
			t.Errorf("%+v, want %+v", r, tc)
		}
	}
	if n := whole.fast.batch(1); n != 1 {
		t.Errorf("a batch of one operation has %d", n)
	}
	if n := part.fast.batch(3); n != 1 {
		t.Errorf("a quarter of 3 operations is %d", n)
	}
}

// TestCeiling: the device and all fios read or write in turn.
func TestCeiling(t *testing.T) {
	for _, load := range []ycsb.DiskLoad{
		{Size: 3<<20 + 5, Block: 4096, Depth: 8},
		{Writes: true, Size: 3<<20 + 5, Block: 65536, Depth: 8},
	} {
		t.Run(fmt.Sprintf("writes %v", load.Writes), func(t *testing.T) { testCeiling(t, load) })
	}
	if _, err := OpenCeiling(t.Context(), t.TempDir(), ycsb.DiskLoad{Size: 1, Depth: 8}); err == nil {
		t.Error("a ceiling of blocks of no bytes")
	}
}

func testCeiling(t *testing.T, load ycsb.DiskLoad) {
	fakeFio(t)
	c, err := OpenCeiling(t.Context(), t.TempDir(), load)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	samples, err := c.Measure(t.Context(), 8, 20*time.Millisecond)
	if err != nil || len(samples) != 4 || len(c.Ways(8)) != 4 {
		t.Fatal(samples, c.Ways(8), err)
	}
	for i, want := range []string{"the ssd device", "fio with its defaults", "fast fio in batches of 8 with ", "fast fio in batches of 2 with "} {
		if got := c.Ways(100)[i]; !strings.HasPrefix(got, want) { // a queue has no more than 8
			t.Errorf("way %d is %s", i, got)
		}
	}
	if samples[0].Mops <= 0 || samples[1].Mops != 0.001 || samples[2].Mops != 0.004 || samples[3].Mops != 0.003 || samples[0].InFlight != 8 {
		t.Errorf("%+v", samples)
	}
	if samples, err := c.Measure(t.Context(), 100, time.Millisecond); err != nil || samples[0].InFlight != 8 {
		t.Errorf("beyond the queue: %+v, %v", samples, err)
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
	spec = testSpec(t, "ssd")
	spec.Size = 1 << 60
	if _, err := Run(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "the files need") {
		t.Errorf("a log that is larger than the disk: %v", err)
	}
	for _, tc := range []struct {
		op    Op
		noFio bool
		times int64
	}{{Read, false, 1}, {Store, false, 1}, {Write, true, 2}, {Write, false, 3}, {Grow, false, 6}} {
		if s := (Spec{Ops: []Op{tc.op}, Size: 10, NoFio: tc.noFio}); s.files() != 10*tc.times {
			t.Errorf("files of %s with a log of 10 bytes take %d", tc.op, s.files())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, testSpec(t, "memory"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}
