package ycsb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
)

// Comparison describes experiments with every combination of devices, mixes, distributions and
// threads, on stores of one shape.
type Comparison struct {
	Shape
	Devices []Device
	// ReadCaches are the shares of the memory for a read cache, in place of Shape.ReadCache:
	// there is a store on each device for each of them. Empty: one store with the Shape's.
	ReadCaches    []float64
	Mixes         []MixName // empty: reads alone
	Distributions []Distribution
	Threads       []int
	Duration      time.Duration // of each run
	Warmup        time.Duration // before each run
	Rate          float64       // of each run, see Spec.Rate; 0: closed loops
	// Rounds is the number of runs of each experiment. Rounds alternate. The run with the median
	// throughput counts; a ratio is the median of the rounds' ratios. 0 means 1.
	Rounds int
	// Churn is how often as many bytes as Shape.Memory are written to each store before the
	// rounds, if there is a mix that writes: updates of random records, so that all are measured
	// while they reuse space.
	Churn float64
	// Dir is an existing directory. Every store gets a subdirectory.
	Dir string
	// Child starts the process of a store. Each store has one, and all but those on device
	// memory have the same memory limit. nil: all stores are in this process, without a limit.
	Child Child
	// Disk measures the disk by itself in each round: random reads of the size and number of the
	// SSD's, and writes at the end of a log if there is a mix that writes. nil: it is not measured.
	Disk OpenDisk
	// OnResult, if set, is called with each result when it is measured. Its ratios are not set
	// yet.
	OnResult func(Result)
}

// The paper's scale (A56): the log is 6 times the local memory, the cache 8 times.
const (
	logShares   = 6
	cacheShares = 8
)

// leastMemory is the minimum of DefaultMemory: a store needs a few pages.
const leastMemory = 64 << 10

// DefaultMemory returns a sixth of the log, the local memory of the paper's scale.
func DefaultMemory(logBytes int64) int64 { return max(logBytes/logShares, leastMemory) }

// DefaultCache returns Redy's memory at the paper's scale, which holds the whole log.
func DefaultCache(logBytes int64) int64 { return DefaultMemory(logBytes) * cacheShares }

// MaxRounds is the largest number of rounds, and MaxChurn the largest Churn.
const (
	MaxRounds = 1000
	MaxChurn  = 1000
)

const loadThreads = 2

// Check returns an error if the comparison is not valid, or needs more memory than the machine
// has. It starts nothing and touches no file.
func (c Comparison) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	if len(c.Devices) == 0 || len(c.Distributions) == 0 || len(c.Threads) == 0 {
		return errors.New("nothing to compare: give at least one device, distribution and number of threads")
	}
	for _, d := range c.Devices {
		if _, err := ParseDevice(string(d)); err != nil {
			return err
		}
	}
	if c.Rounds < 0 || c.Rounds > MaxRounds {
		return fmt.Errorf("%d rounds: want 1 to %d", c.Rounds, MaxRounds)
	}
	if !(c.Churn >= 0 && c.Churn <= MaxChurn) {
		return fmt.Errorf("churn of %g: want 0 to %d times the memory", c.Churn, MaxChurn)
	}
	if err := cmp.Or(noTwice("device", c.Devices), noTwice("read cache", c.ReadCaches), noTwice("mix", c.Mixes), noTwice("distribution", c.Distributions), noTwice("number of threads", c.Threads)); err != nil {
		return err
	}
	for _, spec := range c.specs() {
		if err := spec.check(); err != nil {
			return err
		}
		if _, err := ParseDistribution(string(spec.Distribution)); err != nil {
			return err
		}
	}
	if err := c.checkRedy(); err != nil {
		return err
	}
	if slices.Contains(c.Devices, SMB) {
		if err := checkSMB(); err != nil {
			return err
		}
	}
	if slices.Contains(c.Devices, Redy) && c.Cache < 1 {
		return fmt.Errorf("cache of %d bytes: device %s needs a positive size", c.Cache, Redy)
	}
	if have := mem.Total(); have > 0 {
		return c.fits(have, mem.Available())
	}
	return nil
}

func noTwice[T comparable](what string, list []T) error {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return fmt.Errorf("%s %v is given twice", what, v)
		}
	}
	return nil
}

// Compare loads a store on every device and runs every experiment. It returns the results so
// far, sorted by device, and the first error. A store that the kernel kills at its memory limit
// is no error: the others go on, and its results say so (Result.Killed). The stores' files
// remain in Dir.
func Compare(ctx context.Context, c Comparison, progress Progress) (results []Result, err error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	if err := c.checkDisk(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	r := newComparing(c, progress)
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	err = r.run(ctx)
	return r.results(), err
}

// checkDisk returns an error if the directory is not writable, or has too little space for
// the logs.
func (c Comparison) checkDisk() error {
	probe, err := os.CreateTemp(c.Dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("directory %s is not writable: %w", c.Dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("directory %s: %w", c.Dir, err)
	}
	var need int64
	for _, s := range c.subjects() {
		if s.hasFiles() {
			need += c.files(s)
		}
	}
	for _, load := range c.diskLoads() {
		need += load.files()
	}
	return machine.Room(c.Dir, need)
}

// churn returns the number of records that are written to each store before the rounds.
func (c Comparison) churn() int64 {
	if !c.writes() {
		return 0
	}
	return int64(c.Churn * float64(c.Memory) / float64(RecordBytes(c.ValueSize)))
}

// writtenFiles is the most that the files of a store that is written to take, in logs: half of
// the log is dead before it is compacted, and what is compacted is freed last.
const writtenFiles = 3

// files returns the most bytes that a store's files take.
func (c Comparison) files(s subject) int64 {
	logs := 1
	if isPeer(s.device) {
		logs = peerFiles
	}
	if c.writes() {
		logs = writtenFiles
	}
	return int64(size(float64(logs) * float64(c.LogBytes())))
}
