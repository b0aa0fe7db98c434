package ycsb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// DiskAlone is the device of the rows that show what the disk does by itself. It has no store,
// and cannot be asked for: it stands beside the SSD.
const DiskAlone Device = "disk"

// Disk measures the disk that the SSD's store is on, under one load.
type Disk interface {
	// Ways names the ways in which it measures with depth operations in flight.
	Ways(depth int) []string
	// Measure operates for that long in each way, with depth operations in flight.
	Measure(ctx context.Context, depth int, lasts time.Duration) ([]bench.Sample, error)
	Close() error
}

// OpenDisk prepares a load in an empty directory.
type OpenDisk func(ctx context.Context, dir string, load DiskLoad) (Disk, error)

// DiskLoad is what a Disk does: random reads, or writes at the end of a log.
type DiskLoad struct {
	Writes bool
	Size   int64 // about the bytes of the file, or of the log
	Block  int   // bytes of an operation
	Depth  int   // most operations in flight
}

// files returns the most bytes that the files of a load take: those that are written have space
// that was truncated, and fio has its own.
func (l DiskLoad) files() int64 {
	bytes := max(l.Size, 4*int64(l.Block)*int64(l.Depth)) // what is in flight is a part of it
	if l.Writes {
		return 3 * bytes
	}
	return bytes
}

// mix returns the mix of the results.
func (l DiskLoad) mix() MixName {
	if l.Writes {
		return MixWrite
	}
	return MixC
}

const (
	// diskBlock is the unit in which the SSD's tier reads: it verifies a checksum of each.
	diskBlock = 4 << 10
	// diskBytes is the most bytes that the operations are spread over.
	diskBytes = 1 << 30
	// writeBlock and writeDepth are those of writes: a log's pages are at least as large.
	writeBlock = 64 << 10
	writeDepth = 32
)

// block returns the bytes that a cold read of a record reads at least.
func (s Shape) block() int {
	return int((RecordBytes(s.ValueSize) + diskBlock - 1) / diskBlock * diskBlock)
}

// ceiling measures the disk under one load in the rounds of a comparison.
type ceiling struct {
	disk Disk
	DiskLoad
	// runs has the results of each number of threads in each way.
	runs map[int][][]Result
}

type ceilings []*ceiling

// diskLoads returns what is measured of the disk by itself, if the SSD is compared.
func (c Comparison) diskLoads() (loads []DiskLoad) {
	if c.Disk == nil || !slices.Contains(c.Devices, SSD) {
		return nil
	}
	size := min(c.LogBytes(), diskBytes)
	loads = append(loads, DiskLoad{Size: size, Block: c.block(), Depth: slices.Max(c.Threads) * c.Depth})
	if c.writes() {
		loads = append(loads, DiskLoad{Writes: true, Size: size, Block: writeBlock, Depth: writeDepth})
	}
	return loads
}

// openCeilings prepares the disk.
func (c *comparing) openCeilings(ctx context.Context) error {
	for _, load := range c.diskLoads() {
		c.progress.Begin("prepare the disk", 1)
		dir := filepath.Join(c.Dir, fmt.Sprintf("%s-%s", DiskAlone, load.mix()))
		err := os.MkdirAll(dir, 0o755)
		var disk Disk
		if err == nil {
			disk, err = c.Disk(ctx, dir, load)
		}
		c.progress.End()
		if err != nil {
			return fmt.Errorf("ycsb: the disk by itself: %w", err)
		}
		c.disks = append(c.disks, &ceiling{disk: disk, DiskLoad: load, runs: make(map[int][][]Result)})
	}
	return nil
}

func (all ceilings) round(ctx context.Context, c Comparison, progress Progress) error {
	for _, d := range all {
		if err := d.round(ctx, c, progress); err != nil {
			return err
		}
	}
	return nil
}

// round measures the disk in each way for the time of a run: reads once for each number of
// threads, with as many in flight as the threads of a store keep, and writes once.
func (d *ceiling) round(ctx context.Context, c Comparison, progress Progress) error {
	all, depth := c.Threads, c.Depth
	if d.Writes {
		all, depth = []int{1}, d.Depth
	}
	for _, threads := range all {
		progress.Begin(d.name(threads, depth), 1)
		samples, err := d.disk.Measure(ctx, threads*depth, c.Duration)
		progress.End()
		if err != nil {
			return fmt.Errorf("ycsb: the disk by itself: %w", err)
		}
		if d.runs[threads] == nil {
			d.runs[threads] = make([][]Result, len(samples))
		}
		for way, s := range samples {
			d.runs[threads][way] = append(d.runs[threads][way], d.result(threads, way, s))
		}
	}
	return nil
}

// name returns the name of an experiment.
func (d *ceiling) name(threads, depth int) string {
	if d.Writes {
		return fmt.Sprintf("%s/%s/%dx%d", DiskAlone, MixWrite, threads, depth)
	}
	return fmt.Sprintf("%s/%dx%d", DiskAlone, threads, depth)
}

// result converts a sample.
func (d *ceiling) result(threads, way int, s bench.Sample) Result {
	ways := d.disk.Ways(s.InFlight)
	r := Result{
		Experiment: d.name(threads, s.InFlight/threads), Device: DiskAlone, Mix: d.mix(), Distribution: Uniform,
		Threads: threads, Depth: s.InFlight / threads, ValueSize: d.Block,
		Ops: s.Operations, Seconds: s.Seconds, Mops: s.Mops,
	}
	what := "writes at the end of a log"
	if d.Writes {
		r.DiskWritten = int64(s.Operations) * int64(d.Block)
	} else {
		what, r.HitSSD = "random reads", 1
	}
	r.Note = fmt.Sprintf("%s of %v, %d in flight, by %s: the best of %s",
		what, units.Size(d.Block), s.InFlight, ways[way], strings.Join(ways, "; "))
	return r
}

// best returns the rounds of the best way for each load and number of threads, by the medians of
// the rounds.
func (all ceilings) best() (best [][]Result) {
	of := func(rounds []Result) float64 { return bench.MedianBy(rounds, mops).Mops }
	for _, d := range all {
		for _, threads := range slices.Sorted(maps.Keys(d.runs)) {
			best = append(best, slices.MaxFunc(d.runs[threads], func(a, b []Result) int { return cmp.Compare(of(a), of(b)) }))
		}
	}
	return best
}

// Close ends the measurements.
func (all ceilings) Close() (err error) {
	for _, d := range all {
		err = errors.Join(err, d.disk.Close())
	}
	return err
}
