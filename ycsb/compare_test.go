package ycsb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/testrun"
)

// storeProcess is the argument with which the test binary is a store's process, and its first
// line.
const storeProcess = "compare-store"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == storeProcess {
		fmt.Println(storeProcess)
		if err := Serve(context.Background(), orders(), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testrun.Main(m)
}

// inChildren is the Child of comparisons in tests.
func inChildren(ctx context.Context, env []string, lines chan<- string) (*bench.Child, error) {
	return bench.StartTalking(ctx, os.Stderr, storeProcess, env, lines, storeProcess)
}

// small returns a comparison that takes a moment.
func small(dir string, devices ...Device) Comparison {
	const records = 20_000
	return Comparison{
		Shape: Shape{
			Records: records, ValueSize: 8, Depth: 32, Net: "none",
			Memory: DefaultMemory(LogBytes(records, 8)), Cache: DefaultCache(LogBytes(records, 8)),
		},
		Devices:       devices,
		Distributions: []Distribution{Uniform, Zipfian},
		Threads:       []int{1, 2},
		Duration:      50 * time.Millisecond,
		Warmup:        10 * time.Millisecond,
		Dir:           dir,
	}
}

// stages is a Progress that counts its calls.
type stages struct {
	names []string
	added atomic.Int64
	open  bool
}

func (s *stages) Begin(stage string, _ int64) { s.names, s.open = append(s.names, stage), true }
func (s *stages) Add(n int64)                 { s.added.Add(n) }
func (s *stages) End()                        { s.open = false }

func TestCompare(t *testing.T) {
	c := small(t.TempDir(), Memory, SSD)
	var told int
	c.OnResult = func(Result) { told++ }
	var progress stages
	results, err := Compare(context.Background(), c, &progress)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Experiment)
	}
	if want := []string{
		"memory/uniform/1", "memory/uniform/2", "memory/zipfian/1", "memory/zipfian/2",
		"ssd/uniform/1", "ssd/uniform/2", "ssd/zipfian/1", "ssd/zipfian/2",
	}; !slices.Equal(names, want) {
		t.Fatalf("experiments %v, want %v", names, want)
	}
	if told != len(results) || progress.open || len(progress.names) != 2+len(results) {
		t.Errorf("told of %d results and of stages %v, left open: %v", told, progress.names, progress.open)
	}
	for _, r := range results {
		t.Run(r.Experiment, func(t *testing.T) { checkResult(t, c, r) })
	}
}

// TestCompareRounds checks that rounds alternate, and that the median run of each experiment
// counts.
func TestCompareRounds(t *testing.T) {
	c := small(t.TempDir(), Memory, SSD)
	c.Distributions, c.Threads, c.Rounds = []Distribution{Uniform}, []int{1}, 3
	runs := map[Device][]float64{}
	var order []Device
	c.OnResult = func(r Result) {
		runs[r.Device] = append(runs[r.Device], r.Mops)
		order = append(order, r.Device)
	}
	results, err := Compare(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Device{Memory, SSD, Memory, SSD, Memory, SSD}; !slices.Equal(order, want) {
		t.Errorf("runs on %v, want %v", order, want)
	}
	for _, r := range results {
		mops := slices.Sorted(slices.Values(runs[r.Device]))
		if r.Rounds != 3 || r.MopsMin != mops[0] || r.Mops != mops[1] || r.MopsMax != mops[2] {
			t.Errorf("%s: %v from %v to %v of %d rounds, want the median of %v", r.Experiment, r.Mops, r.MopsMin, r.MopsMax, r.Rounds, mops)
		}
		checkResult(t, c, r)
	}
	if len(results) != 2 {
		t.Errorf("%d results, want 2", len(results))
	}
}

// TestSeeds checks that every experiment of every round draws a sequence of its own.
func TestSeeds(t *testing.T) {
	c := small("", Redy, SSD, "pebble")
	c.ReadCaches = []float64{0, 0.5}
	specs := c.specs()
	if len(specs) != (2*2+2)*len(c.Distributions)*len(c.Threads) {
		t.Fatalf("%d experiments", len(specs))
	}
	seen := make(map[int64]string)
	names := make(map[string]bool)
	for round := range 3 {
		for i, spec := range specs {
			n := seed(round, len(specs), i)
			if other := seen[n]; other != "" || n == 0 {
				t.Errorf("%s in round %d has the seed %d of %s", spec.name(), round, n, other)
			}
			seen[n], names[spec.name()] = spec.name(), true
		}
	}
	if len(names) != len(specs) || !names["redy+0.5/zipfian/2"] || !names["pebble/uniform/1x32"] || !names["pebble/uniform/1x1"] {
		t.Errorf("names %v", names)
	}
}

// TestReadCaches checks that a store with a read cache stands beside one without, and that
// each is compared with the SSD that has as much.
func TestReadCaches(t *testing.T) {
	c := small(t.TempDir(), Memory, SSD)
	c.ReadCaches, c.Distributions, c.Threads = []float64{0.5, 0}, []Distribution{Zipfian}, []int{1}
	c.Warmup = 50 * time.Millisecond
	results, err := Compare(t.Context(), c, nil)
	if err != nil || len(results) != 4 {
		t.Fatal(results, err)
	}
	for i, r := range results {
		if want := []float64{0, 0.5}[i%2]; r.ReadCache != want || (r.HitCache > 0) != (want > 0) || r.Errors > 0 {
			t.Errorf("%+v", r)
		}
		if base := results[2+i%2]; math.Abs(r.RatioToSSD*base.Mops-r.Mops) > 1e-9 {
			t.Errorf("%s is compared with another SSD: %v of %v", r.Experiment, r.RatioToSSD, r.Mops/base.Mops)
		}
	}
}

// TestSummaryKeepsErrors checks that errors of any round are kept.
func TestSummaryKeepsErrors(t *testing.T) {
	got := summarize([]Result{{Mops: 3, Errors: 2, FirstError: "a"}, {Mops: 1, Note: "n"}, {Mops: 2}})
	if want := (Result{Mops: 2, Rounds: 3, MopsMin: 1, MopsMax: 3, Errors: 2, FirstError: "a", Note: "n"}); got.Result != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRatiosAreOfRounds checks that a ratio is the median of the rounds' ratios where the stores'
// median throughputs are of different rounds, and that the rounds which both have are paired.
func TestRatiosAreOfRounds(t *testing.T) {
	rounds := func(device Device, cache, hit float64, mops ...float64) (all []Result) {
		for _, m := range mops {
			all = append(all, Result{Device: device, Mix: MixC, Distribution: Uniform, Threads: 1, ReadCache: cache, HitSSD: hit, Mops: m})
		}
		return all
	}
	disks := ceilings{{runs: map[int][][]Result{1: {
		rounds(DiskAlone, 0, 1, 1, 1, 1), // the better way by its maximum, not by its median
		rounds(DiskAlone, 0, 1, 2, 4, 1),
	}}}}
	c := &comparing{Comparison: Comparison{Devices: []Device{Redy, SMB, SSD, "pebble"}}, specs: make([]Spec, 6), disks: disks}
	c.runs = [][]Result{
		rounds("pebble", 0, 0, 8, 1), // two rounds
		rounds(SSD, 0, 0.5, 1, 2, 4), // the median is the second round's
		rounds(SSD, 0.5, 0.25, 1, 1, 1),
		rounds(Redy, 0, 0, 10, 80, 20), // the median is the third's: 20 over 2 would be 10
		rounds(Redy, 0.5, 0, 5, 6, 7),
		rounds(SMB, 0, 0, 0, 0.5, 0.5), // it did nothing in the first round
	}
	results := c.results()
	for i, want := range []Result{
		{Device: Redy, Mops: 20, RatioToSSD: 10, RatioToSMB: 100},          // of 10, 40, 5; of 160, 40
		{Device: Redy, ReadCache: 0.5, Mops: 6, RatioToSSD: 6},             // of 5, 6, 7
		{Device: SMB, Mops: 0.5, RatioToSSD: 0.125, RatioToSMB: 1},         // of 0, 0.25, 0.125
		{Device: SSD, Mops: 2, RatioToSSD: 1, RatioToSMB: 6, OfDisk: 0.25}, // of 4, 8; of 0.25, 0.25, 2
		{Device: SSD, ReadCache: 0.5, Mops: 1, RatioToSSD: 1, OfDisk: 0.125},
		{Device: "pebble", Mops: 1, RatioToSSD: 4.25, RatioToSMB: 2}, // of 8, 0.5; of 2
		{Device: DiskAlone, Mops: 2},
	} {
		r := results[i]
		got := Result{Device: r.Device, ReadCache: r.ReadCache, Mops: r.Mops, RatioToSSD: r.RatioToSSD, RatioToSMB: r.RatioToSMB, OfDisk: r.OfDisk}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if len(results) != 7 {
		t.Errorf("%d results", len(results))
	}
}

// TestCompareRedy uses a cache server in this process, so that only this binary is needed.
func TestCompareRedy(t *testing.T) {
	c := small(t.TempDir(), Redy, SSD)
	c.Transport = TransportMem
	c.Threads = []int{2}
	results, err := Compare(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Experiment, func(t *testing.T) { checkResult(t, c, r) })
	}
}

// TestCompareSmallCache checks that reads beyond a cache of half the log go to the SSD.
func TestCompareSmallCache(t *testing.T) {
	c := small(t.TempDir(), Redy)
	c.Transport = TransportMem
	c.Cache = c.LogBytes() / 2
	c.Distributions, c.Threads = []Distribution{Uniform}, []int{1}
	results, err := Compare(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Errors > 0 || r.HitRedy < 0.1 || r.HitSSD < 0.4 || r.RatioToSSD != 0 {
		t.Errorf("%d errors (%s), %v from Redy, %v from the SSD, ratio %v", r.Errors, r.FirstError, r.HitRedy, r.HitSSD, r.RatioToSSD)
	}
}

func checkResult(t *testing.T, c Comparison, r Result) {
	if r.Errors != 0 || r.FirstError != "" || r.Note != "" {
		t.Errorf("%d errors (%s), note %q", r.Errors, r.FirstError, r.Note)
	}
	if r.Ops == 0 || math.Abs(r.Mops*1e6*r.Seconds-float64(r.Ops)) > 1 {
		t.Errorf("%d operations in %v s are %v Mops", r.Ops, r.Seconds, r.Mops)
	}
	if r.P50Micros <= 0 || r.P99Micros < r.P50Micros {
		t.Errorf("p50 %v us, p99 %v us", r.P50Micros, r.P99Micros)
	}
	if sum := r.HitMemory + r.HitRedy + r.HitSSD + r.HitOther; math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares of memory %v, redy %v, ssd %v and others %v are %v", r.HitMemory, r.HitRedy, r.HitSSD, r.HitOther, sum)
	}
	below := map[Device]float64{SSD: r.HitSSD, Redy: r.HitRedy, Memory: r.HitOther}[r.Device]
	if below < 0.5 || r.HitMemory == 0 {
		t.Errorf("%v of the reads came from local memory and %v from the device: a sixth of the log is in memory", r.HitMemory, below)
	}
	// Pages end before a record that does not fit, and the log does not begin at 0.
	if r.LogBytesExpected != 24*c.Records || r.LogBytes < r.LogBytesExpected || r.LogBytes > r.LogBytesExpected*102/100 {
		t.Errorf("log of %d bytes, by arithmetic %d", r.LogBytes, r.LogBytesExpected)
	}
	if r.IndexBytes <= 0 || r.RatioToSSD <= 0 {
		t.Errorf("index %d bytes, ratio %v", r.IndexBytes, r.RatioToSSD)
	}
	if remote := r.Device == Redy; remote != (r.CacheBytes == c.Cache) || remote != (r.Transport == TransportMem) || remote != (r.Net == "none") {
		t.Errorf("cache %d bytes, transport %q, net %q", r.CacheBytes, r.Transport, r.Net)
	}
	if r.Device == SSD && r.RatioToSSD != 1 {
		t.Errorf("the SSD's ratio to itself is %v", r.RatioToSSD)
	}
}

// TestCompareFileServer measures the tiered store, the file server and the SSD in one run, and
// checks their ratios.
func TestCompareFileServer(t *testing.T) {
	if err := smbd.Available(); err != nil {
		t.Skip(err)
	}
	c := small(t.TempDir(), Redy, SMB, SSD)
	c.Transport = TransportMem
	c.Distributions, c.Threads = []Distribution{Uniform}, []int{1}
	results, err := Compare(t.Context(), c, nil)
	if err != nil || len(results) != 3 {
		t.Fatal(results, err)
	}
	redy, r, ssd := results[0], results[1], results[2]
	if r.Device != SMB || r.Errors > 0 || r.HitSMB < 0.5 || r.HitSSD+r.HitOther > 0 || r.Transport != "smb" || r.RatioToSMB != 1 {
		t.Errorf("%+v", r)
	}
	if redy.HitRedy < 0.5 || redy.HitSMB > 0 || math.Abs(redy.RatioToSMB*r.Mops-redy.Mops) > 1e-9 ||
		math.Abs(redy.RatioToSSD*ssd.Mops-redy.Mops) > 1e-9 {
		t.Errorf("%+v", redy)
	}
	if ssd.HitSMB > 0 || ssd.RatioToSMB <= 0 || math.Abs(ssd.RatioToSMB*r.RatioToSSD-1) > 1e-9 {
		t.Errorf("%+v", ssd)
	}
	if left, err := os.ReadDir(c.Dir); err != nil || len(left) != 2 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

// loadings is a Progress that counts the records that are written before the rounds.
type loadings struct {
	mu      sync.Mutex // guards the fields below
	loading bool
	records int64
}

func (l *loadings) Begin(stage string, _ int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loading = strings.HasPrefix(stage, "load ")
}

func (l *loadings) Add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loading {
		l.records += n
	}
}

func (*loadings) End() {}

// TestCompareMixes checks that stores and peers get every mix, that what they wrote is counted,
// and which rows are compared with which.
func TestCompareMixes(t *testing.T) {
	const records = 20_000
	c := small(t.TempDir(), SSD, Memory, "pebble")
	c.ValueSize = 40
	c.Memory = DefaultMemory(c.LogBytes())
	c.Mixes, c.Distributions, c.Threads, c.Churn = MixNames, []Distribution{Uniform}, []int{2}, 4
	c.Duration = 100 * time.Millisecond
	disks := make(map[bool]*fakeDisk)
	c.Disk = func(_ context.Context, _ string, load DiskLoad) (Disk, error) {
		disks[load.Writes] = new(fakeDisk)
		return disks[load.Writes], nil
	}
	progress := new(loadings)
	results, err := Compare(t.Context(), c, progress)
	if err != nil || len(results) != len(MixNames)*4+2 {
		t.Fatal(results, err)
	}
	if written := progress.records; written < 3*(c.Records+c.churn()) || c.churn() < records/2 {
		t.Errorf("%d records were written, want 3 times %d and %d more", written, c.Records, c.churn())
	}
	pebbles := make(map[MixName]float64) // the faster rows
	for _, r := range results {
		if r.Device == "pebble" {
			pebbles[r.Mix] = max(pebbles[r.Mix], r.Mops)
		}
	}
	for _, r := range results {
		if r.Ops == 0 || r.Errors > 0 || r.FirstError != "" {
			t.Errorf("%+v", r)
		}
		if r.Device == DiskAlone {
			continue
		}
		if want := r.Mops / pebbles[r.Mix]; math.Abs(r.RatioToPebble-want) > 1e-9*want {
			t.Errorf("%s: %v times Pebble, want %v", r.Experiment, r.RatioToPebble, want)
		}
		wrote := r.Mix == MixWrite && r.Device != Memory && !machine.InMemory(c.Dir) // others may not fill a page
		written := wrote && r.Device != "pebble"                                     // which keeps so little in memory
		if written && r.WriteAmplification == 0 || !r.Mix.Writes() && r.WriteAmplification > 0 {
			t.Errorf("%s: wrote %d bytes, %v times what was asked", r.Experiment, r.DiskWritten, r.WriteAmplification)
		}
		if (r.SpaceAmplification >= 0.9) != (r.Device != Memory) || r.Processors <= 0 { // Pebble stores a common prefix of keys once
			t.Errorf("%s: files take %d bytes, %v times the data; %v processors", r.Experiment, r.FilesBytes, r.SpaceAmplification, r.Processors)
		}
		if wrote && r.Device == SSD && r.ShareOfDevice == 0 || r.Device != SSD && r.ShareOfDevice > 0 || (r.SettleSeconds > 0) != r.Mix.Writes() || (r.OfDisk > 0) != (r.Device == SSD && r.Mix != MixWrite) {
			t.Errorf("%s: %v of the disk's writes, %v of its reads", r.Experiment, r.ShareOfDevice, r.OfDisk)
		}
		if finds := r.HitMemory + r.HitSSD + r.HitOther; r.Device != "pebble" && (finds > 0) != (r.Mix != MixWrite) {
			t.Errorf("%s: %v of its reads were answered", r.Experiment, finds)
		}
	}
	for writes, want := range map[bool][]int{false: {64}, true: {writeDepth}} {
		if d := disks[writes]; !slices.Equal(d.depths, want) || !d.closed {
			t.Errorf("writes %v: depths %v, want %v", writes, d.depths, want)
		}
	}
	if name := (Spec{Device: SSD, Mix: MixA, Distribution: Uniform, Threads: 2}).name(); name != "ssd/a/uniform/2" {
		t.Errorf("an experiment is named %s", name)
	}
}

func TestCompareStops(t *testing.T) {
	c := small(t.TempDir(), Memory)
	c.Duration = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := Compare(ctx, c, cancelOn{"memory/uniform/1", cancel})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// cancelOn cancels a context at a stage's first progress.
type cancelOn struct {
	stage  string
	cancel context.CancelFunc
}

func (c cancelOn) Begin(stage string, _ int64) {
	if stage == c.stage {
		c.cancel()
	}
}
func (cancelOn) Add(int64) {}
func (cancelOn) End()      {}

func TestCompareRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*Comparison)
		want  string
	}{
		{"no records", func(c *Comparison) { c.Records = 0 }, "0 records"},
		{"negative records", func(c *Comparison) { c.Records = -1 }, "-1 records"},
		{"too many records", func(c *Comparison) { c.Records = MaxRecords + 1 }, "at most"},
		{"no value", func(c *Comparison) { c.ValueSize = 0 }, "value size"},
		{"no memory", func(c *Comparison) { c.Memory = 0 }, "memory"},
		{"more memory than the machine", func(c *Comparison) { c.Memory = 1 << 50 }, "this process may have"},
		{"more than can be added up", func(c *Comparison) { c.Memory = math.MaxInt64 }, "this process may have"},
		{"more cache than the machine", func(c *Comparison) { c.Devices = []Device{Redy}; c.Cache = 1 << 50 }, "this process may have"},
		{"no cache", func(c *Comparison) { c.Devices = []Device{Redy}; c.Cache = 0 }, "cache of 0 bytes"},
		{"unknown device", func(c *Comparison) { c.Devices = []Device{"tape"} }, `unknown device "tape"`},
		{"no device", func(c *Comparison) { c.Devices = nil }, "nothing to compare"},
		{"a device twice", func(c *Comparison) { c.Devices = []Device{SSD, SSD} }, "given twice"},
		{"unknown distribution", func(c *Comparison) { c.Distributions = []Distribution{"normal"} }, `unknown distribution "normal"`},
		{"no threads", func(c *Comparison) { c.Threads = []int{0} }, "0 threads"},
		{"too many threads", func(c *Comparison) { c.Threads = []int{MaxThreads + 1} }, "threads"},
		{"negative rounds", func(c *Comparison) { c.Rounds = -1 }, "-1 rounds"},
		{"too many rounds", func(c *Comparison) { c.Rounds = MaxRounds + 1 }, "rounds: want 1 to"},
		{"no read cache", func(c *Comparison) { c.ReadCaches = []float64{0, 1} }, "read cache of 1 of the memory"},
		{"a read cache twice", func(c *Comparison) { c.ReadCaches = []float64{0.5, 0.5} }, "given twice"},
		{"too many goroutines", func(c *Comparison) { c.Devices, c.Threads, c.Depth = []Device{"pebble"}, []int{MaxThreads}, MaxDepth }, "at most 65536"},
		{"unknown mix", func(c *Comparison) { c.Mixes = []MixName{"d"} }, `unknown mix "d"`},
		{"a mix twice", func(c *Comparison) { c.Mixes = []MixName{MixA, MixA} }, "given twice"},
		{"negative churn", func(c *Comparison) { c.Churn = -1 }, "churn of -1"},
		{"no time", func(c *Comparison) { c.Duration = 0 }, "duration"},
		{"negative warm-up", func(c *Comparison) { c.Warmup = -1 }, "warm-up"},
		{"no depth", func(c *Comparison) { c.Depth = 0 }, "depth 0"},
		{"unknown transport", func(c *Comparison) { c.Transport = "string" }, `unknown transport "string"`},
		{"bad net", func(c *Comparison) { c.Net = "pigeons" }, "pigeons"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			c := small(dir, SSD)
			tc.spoil(&c)
			_, err := Compare(context.Background(), c, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tc.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind %v, %v", left, err)
			}
		})
	}
}

func TestCompareNeedsItsDirectory(t *testing.T) {
	c := small(t.TempDir()+"/missing", SSD)
	if _, err := Compare(context.Background(), c, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// TestComparePeers checks that peers get the same load, and that their values are checked.
func TestComparePeers(t *testing.T) {
	const records = 5000
	c := Comparison{
		Shape:   Shape{Records: records, ValueSize: 24, Depth: 16, Memory: 1 << 20, Net: "none"},
		Devices: append([]Device{Memory}, Peers...), Distributions: []Distribution{Zipfian}, Threads: []int{2},
		Duration: 30 * time.Millisecond, Dir: t.TempDir(),
	}
	results, err := Compare(t.Context(), c, nil)
	if err != nil || len(results) != 1+2*len(Peers) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results[1:] {
		if r.Ops == 0 || r.Errors > 0 || r.Depth != []int{16, 1}[i%2] || r.P50Micros <= 0 || !strings.Contains(r.Note, "page cache") {
			t.Errorf("%+v", r)
		}
	}
	// Missing and wrong values are errors.
	p, err := openPeer(Peers[0], c.Shape, 1<<20, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := make([]byte, KeySize)
	putPeerKey(key, 1)
	if err := p.peer.store.Write([]peers.Pair{{Key: key, Value: make([]byte, c.ValueSize)}}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), p, Spec{Shape: c.Shape, Device: Peers[0], Distribution: Uniform, Threads: 2, Duration: 20 * time.Millisecond}, nil)
	if err != nil || r.Errors == 0 || r.Errors != r.Ops || r.FirstError == "" {
		t.Errorf("%+v, %v", r, err)
	}
}
