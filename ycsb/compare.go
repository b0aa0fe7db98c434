package ycsb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// Comparison describes experiments with every combination of devices, distributions and
// threads, on stores of one shape.
type Comparison struct {
	Shape
	Devices       []Device
	Distributions []Distribution
	Threads       []int
	Duration      time.Duration // of each run
	Warmup        time.Duration // before each run
	Rate          float64       // of each run, see Spec.Rate; 0: closed loops
	// Rounds is the number of runs of each experiment. Rounds alternate, and the run with the
	// median throughput counts. 0 means 1.
	Rounds int
	// Dir is an existing directory. Every store gets a subdirectory.
	Dir string
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

// MaxRounds is the largest number of rounds.
const MaxRounds = 1000

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
	if err := cmp.Or(noTwice("device", c.Devices), noTwice("distribution", c.Distributions), noTwice("number of threads", c.Threads)); err != nil {
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
		return c.fits(have)
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

// specs returns the experiments in the order in which they run. All devices run one after
// another under the same load, so that other work on the machine affects them alike.
func (c Comparison) specs() []Spec {
	var specs []Spec
	for _, distribution := range c.Distributions {
		for _, threads := range c.Threads {
			for _, device := range c.Devices {
				specs = append(specs, Spec{
					Shape: c.Shape, Device: device, Distribution: distribution,
					Threads: threads, Duration: c.Duration, Warmup: c.Warmup, Rate: c.Rate,
				})
			}
		}
	}
	return specs
}

// Compare loads a store on every device and runs every experiment. It returns the results so
// far, sorted by device, and the first error. The stores' files remain in Dir.
func Compare(ctx context.Context, c Comparison, progress Progress) (results []Result, err error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	if err := c.checkDisk(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	progress = bench.OrQuiet(progress)
	targets := make(map[Device]*Target)
	defer func() {
		for _, target := range targets {
			err = errors.Join(err, target.Close())
		}
	}()
	heap := heapBytes()
	for _, device := range c.Devices {
		target, err := Open(ctx, device, c.Shape, filepath.Join(c.Dir, string(device)))
		if err != nil {
			return nil, err
		}
		target.heap = heap
		targets[device] = target
		progress.Begin(fmt.Sprintf("load %s", device), c.Records)
		err = target.load(ctx, c.Shape, progress)
		progress.End()
		if err != nil {
			return nil, fmt.Errorf("ycsb: device %s: %w", device, err)
		}
	}
	specs := c.specs()
	runs := make([][]Result, len(specs))
	for range max(c.Rounds, 1) {
		for i, spec := range specs {
			result, err := Run(ctx, targets[spec.Device], spec, progress)
			if err != nil {
				return byDevice(medians(runs), c.Devices), err
			}
			if c.OnResult != nil {
				c.OnResult(result)
			}
			runs[i] = append(runs[i], result)
		}
	}
	return byDevice(medians(runs), c.Devices), nil
}

// medians returns, for each experiment that ran, the run with the median throughput, with the
// range and the errors of all its runs.
func medians(runs [][]Result) (results []Result) {
	for _, rounds := range runs {
		if len(rounds) == 0 {
			continue
		}
		slices.SortFunc(rounds, func(a, b Result) int { return cmp.Compare(a.Mops, b.Mops) })
		r := rounds[(len(rounds)-1)/2]
		r.Rounds, r.MopsMin, r.MopsMax = len(rounds), rounds[0].Mops, rounds[len(rounds)-1].Mops
		r.Errors, r.FirstError = 0, ""
		for _, round := range rounds {
			r.Errors += round.Errors
			r.FirstError = cmp.Or(r.FirstError, round.FirstError)
			r.Note = cmp.Or(r.Note, round.Note)
		}
		results = append(results, r)
	}
	return results
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
	_, have, err := machine.DiskBytes(c.Dir)
	if err != nil {
		return err
	}
	var need int64
	for _, d := range c.Devices {
		if d == SSD || d == Redy {
			need += c.LogBytes()
		}
	}
	if need > have {
		return fmt.Errorf("directory %s: the logs need %v, and %v are free", c.Dir, units.Size(need), units.Size(have))
	}
	return nil
}

// byDevice sorts results in the order of devices and sets their ratios to the SSD and to the
// file server.
func byDevice(results []Result, devices []Device) []Result {
	slices.SortStableFunc(results, func(a, b Result) int {
		return slices.Index(devices, a.Device) - slices.Index(devices, b.Device)
	})
	for i := range results {
		for _, base := range results {
			if base.Distribution != results[i].Distribution || base.Threads != results[i].Threads || base.Mops == 0 {
				continue
			}
			switch ratio := results[i].Mops / base.Mops; base.Device {
			case SSD:
				results[i].RatioToSSD = ratio
			case SMB:
				results[i].RatioToSMB = ratio
			}
		}
	}
	return results
}
