package ycsb

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv"
)

// tickEvery is the interval of progress reports.
const tickEvery = 100 * time.Millisecond

// Run runs one experiment on a loaded target: spec.Threads threads read and write random records
// for spec.Duration. It returns the store's error or ctx's. The result counts failed operations.
func Run(ctx context.Context, target *Target, spec Spec, progress Progress) (Result, error) {
	if err := spec.check(); err != nil {
		return Result{}, fmt.Errorf("ycsb: %w", err)
	}
	progress = bench.OrQuiet(progress)
	progress.Begin(spec.name(), int64(spec.Warmup+spec.Duration))
	defer progress.End()
	tick := func(step time.Duration) { progress.Add(int64(step)) }

	readers, err := target.newReaders(spec)
	if err != nil {
		return Result{}, err
	}
	if _, err := readers.run(ctx, spec.Warmup, tick); err != nil {
		return Result{}, fmt.Errorf("ycsb: %s: warm-up: %w", spec.name(), err)
	}
	warm := readers.takeTally()

	before, read, written, cpu := target.metrics(), machine.DiskReads(), machine.DiskWrites(), machine.ProcessCPU()
	began := time.Now()
	elapsed, err := readers.run(ctx, spec.Duration, tick)
	if err != nil {
		return Result{}, fmt.Errorf("ycsb: %s: %w", spec.name(), err)
	}
	total := readers.takeTally()

	result := target.stamped(spec)
	result.measured(total, elapsed)
	result.Processors = (machine.ProcessCPU() - cpu).Seconds() / elapsed.Seconds()
	result.DiskBytes, result.DiskWritten = machine.DiskReads()-read, machine.DiskWrites()-written
	if result.FilesBytes, err = target.filesBytes(); err != nil {
		return Result{}, fmt.Errorf("ycsb: %s: %w", spec.name(), err)
	}
	result.amplified(total)
	result.where(before, target.metrics(), target.tiers)
	result.Note = target.Happened(began, began.Add(elapsed))
	if target.peer != nil {
		result.HitOther, result.Note = 1, target.peer.describe()
	}
	// Failures of the warm-up count.
	result.Errors += warm.errors
	if first := cmp.Or(warm.first, total.first); first != nil {
		result.FirstError = first.Error()
	}
	result.HeapBytesAfter = heapBytes()
	result.ResidentBytes = mem.Private()
	if spec.Mix.Writes() {
		result.SettleSeconds = Settle(ctx).Seconds()
	}
	return result, nil
}

// Settle waits until the background work of the process is over, so that it does not disturb the
// next store: until this process uses less than a twentieth of a processor. It returns the time
// that took, at most ten seconds.
func Settle(ctx context.Context) time.Duration {
	began, cpu := time.Now(), machine.ProcessCPU()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for time.Since(began) < 10*time.Second {
		select {
		case <-ctx.Done():
			return time.Since(began)
		case <-ticker.C:
		}
		before := cpu
		if cpu = machine.ProcessCPU(); cpu-before < tickEvery/20 {
			break
		}
	}
	return time.Since(began)
}

// check returns an error for an experiment that cannot run.
func (s Spec) check() error {
	if err := s.Shape.check(); err != nil {
		return err
	}
	switch {
	case s.Threads < 1 || s.Threads > MaxThreads:
		return fmt.Errorf("%d threads: want 1 to %d", s.Threads, MaxThreads)
	case s.Duration <= 0:
		return fmt.Errorf("duration of %v: want a positive time", s.Duration)
	case !(s.Rate >= 0 && s.Rate <= MaxRate):
		return fmt.Errorf("rate of %g operations a second: want 0 to %g", s.Rate, float64(MaxRate))
	case isPeer(s.Device) && s.Threads*s.Depth > maxGoroutines:
		return fmt.Errorf("%d threads with %d operations each: %s has a goroutine for each, at most %d", s.Threads, s.Depth, s.Device, maxGoroutines)
	case s.Mix.mix() == (Mix{}):
		return fmt.Errorf("unknown mix %q: want one of %v", s.Mix, MixNames)
	case s.Mix.Writes() && !s.Written:
		return fmt.Errorf("mix %s writes to a store that is not made for it", s.Mix)
	case s.Warmup < 0:
		return fmt.Errorf("warm-up of %v: want a time that is not negative", s.Warmup)
	}
	return nil
}

// runner is one thread of an experiment.
type runner interface {
	// run operates until stop is set, and then until no operation is pending. ctx ends right
	// before stop is set.
	run(ctx context.Context, stop *atomic.Bool) error
	// take returns the counts since the last call.
	take() tally
}

// readers are the threads of one experiment.
type readers []runner

// newReaders makes the threads of an experiment on a target.
func (t *Target) newReaders(spec Spec) (readers, error) {
	var all readers
	for i := range spec.Threads {
		if t.peer != nil {
			thread, err := t.peer.newThread(spec, i)
			if err != nil {
				return nil, err
			}
			all = append(all, thread)
			continue
		}
		seed := spec.Seed*MaxThreads + int64(i)
		numbers, err := spec.Distribution.Generator(spec.Records, seed)
		if err != nil {
			return nil, err
		}
		r := newReader(spec.ValueSize, spec.Depth, numbers)
		if spec.Mix.Writes() {
			if r.mixed, err = newMixed(spec.Mix.mix(), seed, 0, nil, r); err != nil {
				return nil, err
			}
		}
		r.store = t.Store
		r.pacer.pace(spec.Rate, i, spec.Threads)
		all = append(all, r)
	}
	return all, nil
}

// run runs all threads for duration, and returns the time until no operation was pending. Then the
// sessions are closed, so the store's metrics are complete. It calls tick with the time since
// the last call. If ctx ends, it returns ctx's error.
func (all readers) run(ctx context.Context, duration time.Duration, tick func(time.Duration)) (time.Duration, error) {
	if duration == 0 {
		return 0, ctx.Err()
	}
	var stop atomic.Bool
	group, groupCtx := errgroup.WithContext(ctx)
	groupCtx, cancel := context.WithTimeout(groupCtx, duration)
	defer cancel()
	start := time.Now()
	for _, r := range all {
		group.Go(func() error { return r.run(groupCtx, &stop) })
	}
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	last := start
	for running := true; running; {
		select {
		case <-groupCtx.Done(): // time is up, a reader failed, or ctx ended
			running = false
		case <-ticker.C:
		}
		now := time.Now()
		tick(now.Sub(last))
		last = now
	}
	stop.Store(true)
	err := group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return time.Since(start), err
}

// takeTally returns the threads' counts since the last call.
func (all readers) takeTally() tally {
	total := newTally()
	for _, r := range all {
		total.add(r.take())
	}
	return total
}

// stamped returns a result with the fields known before the run.
func (t *Target) stamped(spec Spec) Result {
	result := Result{
		Experiment:       spec.name(),
		Device:           spec.Device,
		Mix:              cmp.Or(spec.Mix, MixC),
		Distribution:     spec.Distribution,
		Threads:          spec.Threads,
		Depth:            spec.Depth,
		Records:          spec.Records,
		ValueSize:        spec.ValueSize,
		MemoryBytes:      spec.Memory,
		ReadCache:        spec.ReadCache,
		Seed:             spec.Seed,
		Transport:        t.Transport,
		Net:              t.Net,
		DirectIO:         t.DirectIO,
		LogBytesExpected: spec.LogBytes(),
		TargetRate:       spec.Rate,
		HeapBytesBefore:  t.heap,
	}
	if spec.Device == Redy {
		result.CacheBytes = spec.Cache
	}
	return result
}

// measured sets the throughput and the latencies.
func (r *Result) measured(total tally, elapsed time.Duration) {
	r.Ops = total.count
	r.Errors = total.errors
	r.Seconds = elapsed.Seconds()
	r.Mops = float64(total.count-total.errors) / 1e6 / elapsed.Seconds()
	quantile := func(part float64) float64 { return float64(total.latencies.ValueAtQuantile(part)) / 1e3 }
	r.P50Micros, r.P95Micros, r.P99Micros, r.P999Micros = quantile(50), quantile(95), quantile(99), quantile(99.9)
	r.MaxMicros = float64(total.latencies.Max()) / 1e3
}

// amplified sets what a byte that was written cost on the disk.
func (r *Result) amplified(total tally) {
	each := float64(KeySize + r.ValueSize)
	if total.writes > 0 {
		r.WriteAmplification = float64(r.DiskWritten) / (float64(total.writes) * each)
	}
	r.SpaceAmplification = float64(r.FilesBytes) / (float64(r.Records) * each)
}

// where sets the shares of reads that memory, read cache and tiers answered between two
// snapshots of the store's metrics. tiers lists the device's tiers.
func (r *Result) where(before, after kv.Metrics, tiers []Device) {
	memory := after.ReadsFrom.Memory - before.ReadsFrom.Memory
	cached := after.ReadsFrom.Cache - before.ReadsFrom.Cache
	all := memory + cached
	var tier [kv.MaxTiers]uint64
	for i := range tier {
		tier[i] = after.ReadsFrom.Tier[i] - before.ReadsFrom.Tier[i]
		all += tier[i]
	}
	if all > 0 {
		r.HitMemory = float64(memory) / float64(all)
		r.HitCache = float64(cached) / float64(all)
		for i, n := range tier {
			share := float64(n) / float64(all)
			switch {
			case i < len(tiers) && tiers[i] == Redy:
				r.HitRedy += share
			case i < len(tiers) && tiers[i] == SSD:
				r.HitSSD += share
			case i < len(tiers) && tiers[i] == SMB:
				r.HitSMB += share
			default:
				r.HitOther += share
			}
		}
	}
	r.LogBytes = after.Log.Tail - after.Log.Begin
	r.IndexBytes = after.Index.Bytes
}

// heapBytes returns the size of the live Go heap.
func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
