package ycsb

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
)

// greedyVariable makes a store's process take a gibibyte at that order: 1 opens the store, 2 loads
// it, and each later one is a run.
const greedyVariable = "REDYKV_TEST_GREEDY"

// greedy is the standard input of such a process.
type greedy struct {
	io.Reader
	orders int // until it takes the memory
}

func (g *greedy) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	if g.orders -= bytes.Count(p[:n], []byte("\n")); g.orders <= 0 {
		all := make([]byte, 1<<30)
		for i := 0; i < len(all); i += 4096 {
			all[i] = 1
		}
	}
	return n, err
}

// orders returns the standard input of a store's process.
func orders() io.Reader {
	if n, err := strconv.Atoi(os.Getenv(greedyVariable)); err == nil {
		return &greedy{os.Stdin, n}
	}
	return os.Stdin
}

// dying is a host whose process is killed when its loads or runs have been as many.
type dying struct {
	loads, runs int
	closed      bool
}

func (d *dying) load(context.Context, Progress) error {
	if d.loads--; d.loads < 0 {
		return &killedError{subject{device: "pebble"}, memoryLimit{64 << 20, "a test's"}}
	}
	return nil
}

func (d *dying) run(_ context.Context, spec Spec, _ Progress) (Result, error) {
	if d.runs--; d.runs < 0 {
		return Result{}, &killedError{spec.subject(), memoryLimit{64 << 20, "a test's"}}
	}
	return Result{Experiment: spec.name(), Device: spec.Device, Distribution: spec.Distribution, Threads: spec.Threads, Depth: spec.Depth, Ops: 1, Mops: 1}, nil
}

func (d *dying) Close() error { d.closed = true; return nil }

// TestAKilledStoreLosesNoOther checks that the experiments of a store that is killed have rows
// which say so, and that all others are measured in all rounds.
func TestAKilledStoreLosesNoOther(t *testing.T) {
	c := small(t.TempDir(), SSD, "pebble")
	c.Distributions, c.Threads, c.Rounds = []Distribution{Uniform}, []int{1}, 3
	for _, tc := range []struct {
		runs int
		want []string // of pebble's two experiments: rounds, and how it ended
	}{
		{6, []string{"3 ", "3 "}},
		{3, []string{"2 killed at its memory limit of 64MiB after 2 rounds", "1 killed at its memory limit of 64MiB after 1 round"}},
		{0, []string{"0 killed at its memory limit of 64MiB after 0 rounds", "0 killed at its memory limit of 64MiB after 0 rounds"}},
	} {
		r := newComparing(c, nil)
		ssd, pebble := &dying{runs: 3}, &dying{runs: tc.runs}
		r.hosts = map[subject]host{{device: SSD}: ssd, {device: "pebble"}: pebble}
		err := r.run(t.Context())
		results := r.results()
		if err := errors.Join(err, r.close()); err != nil || len(results) != 3 || !ssd.closed || !pebble.closed {
			t.Fatalf("%d runs: %v, %v", tc.runs, results, err)
		}
		if s := results[0]; s.Device != SSD || s.Rounds != 3 || s.Killed != "" || s.RatioToSSD != 1 {
			t.Errorf("%d runs: %+v", tc.runs, s)
		}
		for i, p := range results[1:] {
			if got := strconv.Itoa(p.Rounds) + " " + p.Killed; got != tc.want[i] || p.Experiment != []string{"pebble/uniform/1x32", "pebble/uniform/1x1"}[i] || (p.Mops > 0) != (p.Rounds > 0) {
				t.Errorf("%d runs: %q, want %q of %+v", tc.runs, got, tc.want[i], p)
			}
		}
	}
	r := newComparing(c, nil)
	s := subject{device: "pebble"}
	if err := r.bury(s, (&dying{}).load(t.Context(), nil), true); err != nil || r.killed[s].after(0) != "killed at its memory limit of 64MiB while it was loaded" {
		t.Errorf("%v, %q", err, r.killed[s].after(0))
	}
	if err := r.bury(s, io.ErrClosedPipe, false); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("another error: %v", err)
	}
}

// TestKilledInAControlGroup checks a comparison of which the kernel kills the peer's process:
// while it is loaded, and later. Only a peer's process has the peer's environment.
func TestKilledInAControlGroup(t *testing.T) {
	group, err := mem.NewGroup(1 << 30)
	if err != nil {
		t.Skip(err)
	}
	if err := group.Close(); err != nil {
		t.Fatal(err)
	}
	c := small(t.TempDir(), SSD, "pebble")
	c.Distributions, c.Threads, c.Rounds = []Distribution{Uniform}, []int{1}, 2
	if c.Child = inChildren; c.limits().Bytes == 0 {
		t.Skip(c.limits().What)
	}
	for orders, want := range map[string]string{"2": " while it was loaded", "5": " after 1 round"} {
		c.Child = func(ctx context.Context, env []string, lines chan<- string) (*bench.Child, error) {
			if slices.Contains(env, "MALLOC_ARENA_MAX=1") {
				env = append(env, greedyVariable+"="+orders)
			}
			return inChildren(ctx, env, lines)
		}
		c.Dir = t.TempDir()
		results, err := Compare(t.Context(), c, nil)
		if err != nil || len(results) != 3 {
			t.Fatal(results, err)
		}
		if r := results[0]; r.Device != SSD || r.Rounds != 2 || r.Killed != "" || r.Errors > 0 {
			t.Errorf("%+v", r)
		}
		for _, r := range results[1:] {
			if !strings.HasPrefix(r.Killed, "killed at its memory limit of ") || !strings.HasSuffix(r.Killed, want) || r.MemoryLimit == 0 || r.Limit == "" {
				t.Errorf("%+v, want the end %q", r, want)
			}
		}
	}
}

// TestCachesOfPeers checks that peers and redykv's stores have one limit, which is what the
// largest of redykv's takes, and that a peer's caches are what its process leaves of that. Only
// where that is less than half of what redykv has, the limit is larger.
func TestCachesOfPeers(t *testing.T) {
	const records = 10_000_000
	c := Comparison{
		Shape:   Shape{Records: records, ValueSize: 100, Memory: DefaultMemory(LogBytes(records, 100)), Depth: DefaultDepth},
		Devices: []Device{Redy, SSD, "pebble", "badger", "bbolt"}, Threads: []int{1, 2}, ReadCaches: []float64{0, 0.5},
	}
	alone := c
	alone.Devices = []Device{Redy, SSD}
	if got, want := c.limitBytes(), alone.limitBytes(); got != want || want <= programMemory {
		t.Errorf("limit of %v with peers, %v without", size(got), size(want))
	}
	for _, d := range Peers {
		s := subject{device: d}
		caches := c.caches(s)
		if float64(caches) >= c.memory() || float64(caches) < c.memory()*3/4 {
			t.Errorf("%s: caches of %v, where redykv has %v", d, size(float64(caches)), size(c.memory()))
		}
		if takes := local(c.parts(s)); takes > c.limitBytes() || takes < c.limitBytes()-1 {
			t.Errorf("%s takes %v of %v", d, size(takes), size(c.limitBytes()))
		}
	}
	c.Devices = []Device{"pebble"}
	if got, want := c.limitBytes(), alone.limitBytes(); got != want {
		t.Errorf("limit of %v for a peer alone, and of redykv's stores %v", size(got), size(want))
	}
	c.Records, c.Memory = 1000, leastMemory // the process is larger than the caches
	if takes := local(c.parts(subject{device: "pebble"})); takes != c.limitBytes() || takes <= local(c.parts(subject{device: SSD})) || float64(c.caches(subject{device: "pebble"})) != float64(int64(c.memory()/2)) {
		t.Errorf("few records: %v of %v, caches of %d", size(takes), size(c.limitBytes()), c.caches(subject{device: "pebble"}))
	}
}

// TestGoMemory checks that the Go heap of a store's process is limited also without a control
// group.
func TestGoMemory(t *testing.T) {
	c := small("", Memory, SSD, "badger")
	for _, s := range c.subjects() {
		own := int64(local(c.parts(s)))
		if got := c.goMemory(s, memoryLimit{}); got != own-own/goShare || got <= c.Memory {
			t.Errorf("%v: %d bytes without a limit, of an estimate of %d", s, got, own)
		}
		if got := c.goMemory(s, memoryLimit{Bytes: 800}); got != 700 {
			t.Errorf("%v: %d bytes of a limit of 800", s, got)
		}
	}
}

// TestFilesInMemory checks that files in a directory that is in memory count as memory: of the
// comparison, and of the store's process.
func TestFilesInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "redykv-test-")
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	c := small(t.TempDir(), Redy, SSD, SMB, Memory, "bbolt")
	c.Disk = func(context.Context, string, DiskLoad) (Disk, error) { return new(fakeDisk), nil }
	ssd, sum := local(c.parts(subject{device: SSD})), c.memoryBytes()
	c.Dir = dir
	for _, s := range c.subjects() {
		want := map[Device]int64{Redy: 1, SSD: 1, "bbolt": peerFiles}[s.device] * c.LogBytes()
		got := int64(0)
		for _, p := range c.parts(s) {
			if p.name == "files in memory" && p.local {
				got += int64(p.bytes)
			}
		}
		if got != want {
			t.Errorf("%v: files of %d bytes in memory, want %d", s, got, want)
		}
	}
	if got, want := local(c.parts(subject{device: SSD})), ssd+float64(c.LogBytes()); got < want {
		t.Errorf("the process takes %v, want at least %v", size(got), size(want))
	}
	if more := c.memoryBytes() - sum; more < float64(3*c.LogBytes()) { // two stores and the disk's own file
		t.Errorf("the comparison takes %v more in memory", size(more))
	}
	err = c.fits(int64(sum)+1, int64(sum)+1)
	if err == nil || !strings.Contains(err.Error(), "files in memory") {
		t.Errorf("%v", err)
	}
	// It is refused before a file is made.
	c.Disk, c.Devices, c.Duration = nil, []Device{SSD}, time.Millisecond
	c.Records = mem.Available() / RecordBytes(c.ValueSize)
	if _, err := Compare(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "files in memory") {
		t.Errorf("a log as large as the memory: %v", err)
	}
}
