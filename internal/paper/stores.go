package paper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// Stores is a trial of stores on several devices: reads at full speed. Sizes are the paper's,
// in GB for its 250 million records, and shrink with the number of records.
type Stores struct {
	Name         string
	Value        int // bytes of a value
	Distribution ycsb.Distribution
	ReadCache    float64 // share of local memory that is read cache
	Devices      []ycsb.Device
	Threads      []int
	Memory       []float64 // local memory, descending: the memory of one store is reduced step by step
	Cache        []float64 // Redy's memory; each size has a separate store
	// Vary names the field that is the X of the measurements.
	Vary Vary
}

// Vary names the variable of a trial of stores.
type Vary string

// Variables of a trial of stores.
const (
	Threads     Vary = "threads"
	LocalMemory Vary = "memory"
	RedyCache   Vary = "cache"
)

func (t Stores) trialName() string { return t.Name }

// records returns the number of records in this trial's database.
func (t Stores) records(s Scale) int64 {
	switch {
	case t.Value >= largeValue:
		return s.LargeRecords
	case t.Memory[0] >= largestLocal:
		return s.LocalRecords
	}
	return s.Records
}

// needs returns the trial's need with those devices.
func (t Stores) needs(records int64, devices []ycsb.Device) need {
	n := needs(records, t.Value, t.Memory[0], slices.Max(t.Cache))
	if !slices.Contains(devices, ycsb.SMB) {
		n.memory, n.share = n.memory-n.share, 0
	}
	return n
}

func (t Stores) plan(b *Bench) (*plan, error) {
	records := t.records(b.Scale)
	devices := slices.DeleteFunc(slices.Clone(t.Devices), func(d ycsb.Device) bool {
		var err error
		if d == ycsb.SMB {
			err = smbd.Available()
		}
		if err != nil {
			b.leave(t.Name, string(d), err)
		}
		return err != nil
	})
	p := &storePlan{trial: t, bench: b, records: records}
	var turns []turn
	for _, cache := range t.Cache {
		on := t.on(devices, cache)
		loads := load{fmt.Sprintf("%gGB cache", cache), t.loads(records, on)}
		for _, memory := range t.Memory {
			for round := 1; round <= b.Rounds; round++ {
				for _, threads := range t.Threads {
					turns = append(turns, p.turn(cell{cache, memory, threads, round}, on, loads))
				}
			}
		}
	}
	return &plan{turns: turns, end: p.end, need: t.needs(records, devices)}, nil
}

// Approximate speed of loading, in records per second, and in bytes per second for each
// device.
const (
	loadRecords = 2_000_000
	loadBytes   = 300 << 20
)

// loads estimates the time to load a store on devices.
func (t Stores) loads(records int64, devices []ycsb.Device) time.Duration {
	bytes := float64(ycsb.LogBytes(records, t.Value)) * float64(len(devices))
	return time.Duration((float64(records)/loadRecords + bytes/loadBytes) * float64(time.Second))
}

// on returns the devices that are measured with a cache of that size. Without a cache, Redy
// equals the SSD.
func (t Stores) on(devices []ycsb.Device, cache float64) []ycsb.Device {
	if cache > 0 {
		return devices
	}
	all := slices.Clone(devices)
	for i, d := range all {
		if d == ycsb.Redy {
			all[i] = ycsb.SSD
		}
	}
	return slices.Compact(all)
}

// series returns the name of a device's series. Where the size of Redy's cache varies, it is
// the tiered store's, whose cache may have size zero.
func (t Stores) series(d ycsb.Device) string {
	if t.Vary == RedyCache && (d == ycsb.Redy || d == ycsb.SSD) {
		return tieredSeries
	}
	return string(d)
}

// cell holds what the runs of a turn have in common.
type cell struct {
	cache, memory float64 // in the paper's GB
	threads       int
	round         int
}

// storePlan is the state of a trial of stores. The rig of a turn is kept for the next.
type storePlan struct {
	trial   Stores
	bench   *Bench
	records int64

	rig    *rig
	cache  float64 // Redy's memory in rig
	memory float64 // local memory in rig
	dir    string
}

// turn returns the turn of a cell.
func (p *storePlan) turn(c cell, devices []ycsb.Device, loads load) turn {
	var series []string
	for _, d := range devices {
		series = append(series, p.trial.series(d))
	}
	return turn{
		name:   fmt.Sprintf("%gGB cache, %gGB memory, %d threads, round %d", c.cache, c.memory, c.threads, c.round),
		series: series,
		lasts:  time.Duration(len(devices)) * (p.bench.Duration + p.bench.Warmup),
		loads:  loads,
		measure: func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error) {
			return p.measure(ctx, c, devices, progress)
		},
	}
}

func (p *storePlan) measure(ctx context.Context, c cell, devices []ycsb.Device, progress ycsb.Progress) ([]Measurement, error) {
	if err := p.ready(ctx, c, devices, progress); err != nil {
		return nil, err
	}
	var all []Measurement
	for _, d := range devices {
		r, err := p.rig.run(ctx, ycsb.Spec{
			Device: d, Distribution: p.trial.Distribution, Threads: c.threads, Duration: p.bench.Duration, Warmup: p.bench.Warmup,
		}, progress)
		if err != nil {
			return nil, err
		}
		if r.Errors > 0 {
			return nil, fmt.Errorf("device %s: %d of %d reads went wrong; the first: %s", d, r.Errors, r.Ops, r.FirstError)
		}
		all = append(all, p.measurement(c, &r))
	}
	return all, nil
}

// ready creates the rig that a cell needs, unless the current one fits.
func (p *storePlan) ready(ctx context.Context, c cell, devices []ycsb.Device, progress ycsb.Progress) (err error) {
	if p.rig != nil && (p.cache != c.cache || c.memory > p.memory) {
		if err := p.end(); err != nil {
			return err
		}
	}
	if p.rig == nil {
		if p.dir, err = os.MkdirTemp(p.bench.Work, p.trial.Name+"-*"); err != nil {
			return fmt.Errorf("files of stores: %w", err)
		}
		if p.rig, err = openRig(ctx, devices, p.shape(c), p.dir); err != nil {
			return errors.Join(err, os.RemoveAll(p.dir))
		}
		p.cache, p.memory = c.cache, c.memory
		if err := p.rig.load(ctx, progress); err != nil {
			return err
		}
		return p.warm(ctx, devices[0], progress)
	}
	if c.memory == p.memory {
		return nil
	}
	p.memory = c.memory
	return p.rig.setMemory(p.shape(c).Memory)
}

// Filling a read cache ends when a run no longer raises the hit rate by this share, or after
// this many runs.
const (
	warmGain = 0.01
	warmRuns = 40
)

// warm fills the read cache of a new rig by reads from the first device, which is the fastest.
// All devices share the cache, so it is equally full for the others.
func (p *storePlan) warm(ctx context.Context, by ycsb.Device, progress ycsb.Progress) error {
	if p.trial.ReadCache == 0 {
		return nil
	}
	hits := 0.0
	for range warmRuns {
		r, err := p.rig.run(ctx, ycsb.Spec{
			Device: by, Distribution: p.trial.Distribution, Threads: slices.Max(p.trial.Threads), Duration: p.bench.Duration,
		}, progress)
		if err != nil {
			return err
		}
		if r.HitCache <= hits*(1+warmGain) {
			break
		}
		hits = r.HitCache
	}
	return nil
}

// Page sizes of the log. A small local memory needs small pages.
const (
	smallPage = 64 << 10
	largePage = 1 << 20
	logPages  = 4 // least number of pages in a log
)

// shape returns the shape of a cell's store.
func (p *storePlan) shape(c cell) ycsb.Shape {
	t := p.trial
	page := smallPage
	if ycsb.LogBytes(p.records, t.Value) > gigabyte {
		page = largePage
	}
	least := int64(float64(logPages*page) / (1 - t.ReadCache))
	return ycsb.Shape{
		Records: p.records, ValueSize: t.Value, ReadCache: t.ReadCache, PageSize: page,
		Memory: max(scaled(p.records, c.memory), least+smallPage),
		// In the paper's setup Redy's memory holds the whole log, and it must do so after
		// rounding.
		Cache:     max(scaled(p.records, c.cache), largePage),
		Transport: p.bench.Transport, Net: p.bench.Net, Depth: ycsb.DefaultDepth, CacheServer: p.bench.CacheServer,
	}
}

func (p *storePlan) measurement(c cell, r *ycsb.Result) Measurement {
	m := Measurement{
		Trial: p.trial.Name, Series: p.trial.series(r.Device), Round: c.round, Transport: r.Transport, Net: r.Net, Note: r.Note,
		Values: map[string]float64{
			"mops": r.Mops, "p50_us": r.P50Micros, "p95_us": r.P95Micros, "p99_us": r.P99Micros,
			"p999_us": r.P999Micros, "max_us": r.MaxMicros,
			"hit_memory": r.HitMemory, "hit_cache": r.HitCache, "hit_redy": r.HitRedy, "hit_ssd": r.HitSSD, "hit_smb": r.HitSMB, "hit_other": r.HitOther,
			"memory_bytes": float64(r.MemoryBytes), "index_bytes": float64(r.IndexBytes), "log_bytes": float64(r.LogBytes),
			"resident_bytes": float64(r.ResidentBytes),
		},
		Setting: fmt.Sprintf("%d records of %d+%d B, log %v, local memory %v, Redy %v, %s, %d threads of %d pending reads",
			r.Records, ycsb.KeySize, r.ValueSize, units.Size(r.LogBytes), units.Size(r.MemoryBytes), units.Size(r.CacheBytes),
			r.Distribution, r.Threads, r.Depth),
	}
	switch p.trial.Vary {
	case Threads:
		m.X = float64(c.threads)
	case LocalMemory:
		m.X = c.memory
	case RedyCache:
		m.X = c.cache
	}
	if !r.DirectIO && r.Device == ycsb.SSD {
		m.Note = strings.TrimPrefix(m.Note+"; no direct I/O here: the page cache may have served reads", "; ")
	}
	return m
}

func (p *storePlan) end() error {
	if p.rig == nil {
		return nil
	}
	err := errors.Join(p.rig.close(), os.RemoveAll(filepath.Clean(p.dir)))
	p.rig = nil
	return err
}
