package ycsb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/testrun"
)

// TestCompareInChildren checks that stores in processes of their own are measured like those
// in this one, all but the one in memory under the same limit.
func TestCompareInChildren(t *testing.T) {
	c := small(t.TempDir(), Memory, SSD, "pebble")
	c.Child, c.Distributions, c.Threads = inChildren, []Distribution{Uniform}, []int{2}
	var progress stages
	results, err := Compare(t.Context(), c, &progress)
	if err != nil || len(results) != 4 {
		t.Fatal(results, err)
	}
	limit := c.limits()
	for _, r := range results {
		if r.Ops == 0 || r.Errors > 0 || r.ResidentBytes <= 0 {
			t.Errorf("%+v", r)
		}
		if r.Device != "pebble" {
			checkResult(t, c, r)
		} else if r.FilesBytes <= 0 {
			t.Errorf("files of %d bytes", r.FilesBytes)
		}
		want := limit.of(subject{device: r.Device})
		if r.MemoryLimit != want.Bytes || r.Limit != want.What || r.Limit == "" || (r.Device == Memory) && r.MemoryLimit > 0 {
			t.Errorf("%s: limit of %d bytes, %q, want %+v", r.Experiment, r.MemoryLimit, r.Limit, want)
		}
	}
	if progress.open || progress.added.Load() < 3*c.Records {
		t.Errorf("progress of %d, left open: %v", progress.added.Load(), progress.open)
	}
}

// TestChildBeyondItsLimit checks the error of a store that needs more than its limit.
func TestChildBeyondItsLimit(t *testing.T) {
	group, err := mem.NewGroup(1 << 30)
	if err != nil {
		t.Skip(err)
	}
	if err := group.Close(); err != nil {
		t.Fatal(err)
	}
	shape := small("", SSD).Shape
	shape.Memory, shape.Records = 256<<20, 5_000_000
	r, err := newRemote(t.Context(), inChildren, opening{Device: SSD, Shape: shape, Dir: t.TempDir()}, memoryLimit{40 << 20, "a test's"}, 40<<20)
	if err != nil {
		t.Fatal(err)
	}
	err = r.load(t.Context(), bench.OrQuiet(nil))
	if err == nil || !strings.Contains(err.Error(), "ssd needs more memory than the limit of 40MiB (a test's)") {
		t.Errorf("loaded with %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestServeLimitsTheGoHeap checks that a child obeys the limit for its Go runtime.
func TestServeLimitsTheGoHeap(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	shape := small("", Memory).Shape
	var orders, answers bytes.Buffer
	for _, o := range []order{{Open: &opening{Device: Memory, Shape: shape}}, {Load: &loading{GoMemory: 1 << 40}}} {
		if err := json.NewEncoder(&orders).Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	// The end of the orders ends the child, so it is kept back until they are carried out.
	in, more := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), in, &answers) }()
	if _, err := more.Write(orders.Bytes()); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the limit is set", func() bool { return debug.SetMemoryLimit(-1) == 1<<40 })
	if err := errors.Join(more.Close(), <-ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestChildFails checks the errors of a child: one that it reports, one that ends it, and one
// that cannot start.
func TestChildFails(t *testing.T) {
	shape := small("", SSD).Shape
	if _, err := newRemote(t.Context(), inChildren, opening{Device: SSD, Shape: shape, Dir: "/proc/nowhere"}, memoryLimit{}, 1<<30); err == nil || !strings.Contains(err.Error(), "/proc/nowhere") {
		t.Errorf("no directory: %v", err)
	}
	r, err := newRemote(t.Context(), inChildren, opening{Device: SSD, Shape: shape, Dir: t.TempDir()}, memoryLimit{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.child.Kill()
	if err := r.load(t.Context(), bench.OrQuiet(nil)); err == nil || !strings.Contains(err.Error(), "the process of ssd") {
		t.Errorf("killed: %v", err)
	}
	_ = r.Close() // its exit status
	broken := errors.New("no process")
	c := small(t.TempDir(), SSD)
	c.Child = func(context.Context, []string, chan<- string) (*bench.Child, error) { return nil, broken }
	if _, err := Compare(t.Context(), c, nil); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestChildrenStop checks that a comparison that is cancelled ends its processes.
func TestChildrenStop(t *testing.T) {
	c := small(t.TempDir(), SSD)
	c.Child, c.Duration = inChildren, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	compared := make(chan error, 1)
	go func() {
		_, err := Compare(ctx, c, cancelOn{"ssd/uniform/1", cancel})
		compared <- err
	}()
	if err := testrun.Receive(t, "the comparison ends", compared); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// fakeDisk reads 1000 and 2000 times a second, in two ways.
type fakeDisk struct {
	depths []int
	closed bool
}

func (d *fakeDisk) Ways(int) []string { return []string{"one way", "another"} }
func (d *fakeDisk) Close() error      { d.closed = true; return nil }
func (d *fakeDisk) Measure(_ context.Context, depth int, lasts time.Duration) ([]bench.Sample, error) {
	d.depths = append(d.depths, depth)
	return []bench.Sample{
		{Operations: 10, Seconds: lasts.Seconds(), Mops: 0.001, InFlight: depth},
		{Operations: 20, Seconds: lasts.Seconds(), Mops: 0.002, InFlight: depth},
	}, nil
}

// TestCeiling checks that the disk itself is measured in each round with the reads in flight
// of each number of threads, and that the SSD's rows have their share of the best way.
func TestCeiling(t *testing.T) {
	disk := new(fakeDisk)
	c := small(t.TempDir(), Memory, SSD)
	c.Rounds, c.Distributions = 2, []Distribution{Uniform}
	c.Disk = func(_ context.Context, _ string, load DiskLoad) (Disk, error) {
		if want := (DiskLoad{Size: c.LogBytes(), Block: 4096, Depth: 64}); load != want {
			t.Errorf("a disk under %+v, want %+v", load, want)
		}
		return disk, nil
	}
	shares := make(map[string][]float64) // of the rounds
	c.OnResult = func(r Result) { shares[r.Experiment] = append(shares[r.Experiment], r.Mops*r.HitSSD/0.002) }
	results, err := Compare(t.Context(), c, nil)
	if err != nil || len(results) != 6 || !disk.closed {
		t.Fatal(results, err)
	}
	if want := []int{32, 64, 32, 64}; !slices.Equal(disk.depths, want) {
		t.Errorf("depths %v, want %v", disk.depths, want)
	}
	for i, r := range results {
		switch r.Device {
		case DiskAlone:
			if i < 4 || r.Mops != 0.002 || r.Rounds != 2 || r.ValueSize != 4096 || r.Depth != c.Depth || !strings.Contains(r.Note, "by another") {
				t.Errorf("%+v", r)
			}
		case SSD:
			if want := bench.Median(shares[r.Experiment]); r.OfDisk != want {
				t.Errorf("%s has %v of the disk, want %v", r.Experiment, r.OfDisk, want)
			}
		default:
			if r.OfDisk != 0 {
				t.Errorf("%s has %v of the disk", r.Experiment, r.OfDisk)
			}
		}
	}
	for size, want := range map[int]int{8: 4096, 4080: 4096, 4081: 8192} {
		if got := (Shape{ValueSize: size}).block(); got != want {
			t.Errorf("values of %d bytes are in blocks of %d, want %d", size, got, want)
		}
	}
}
