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
//
// A turn is a round: it measures all stores on all devices, in alternating order
// ([Stores.order]). A claim compares what was measured in one turn.
type Stores struct {
	Name    string
	Value   int // bytes of a value
	Devices []ycsb.Device
	Threads []int
	Stores  []Store
	Cache   []float64 // Redy's memory; each size is another device of the same store
	// Vary names the field that is the X of the measurements.
	Vary Vary
}

// Store is one of the stores of a trial.
type Store struct {
	Name         string // in the names of its series; empty for the only store of a trial or an X
	Distribution ycsb.Distribution
	ReadCache    float64 // share of local memory that is read cache
	Memory       float64 // local memory
}

// follows reports whether the store before can become this one: it needs no more memory.
// Memory that a store has given up and gets back is empty, so a store with more is loaded anew.
func (s Store) follows(before Store) bool {
	return s.ReadCache == before.ReadCache && s.Memory <= before.Memory
}

// order returns the stores in the order of a round. In every second round what is loaded first is
// loaded last, so that the same store is not always measured on the disk and in the memory that
// another has left. A store that follows another stays behind it, as otherwise it is loaded again.
func (t Stores) order(round int) []Store {
	var loads [][]Store // each with the stores that follow
	for i, s := range t.Stores {
		if i > 0 && s.follows(t.Stores[i-1]) {
			loads[len(loads)-1] = append(loads[len(loads)-1], s)
			continue
		}
		loads = append(loads, []Store{s})
	}
	if round%2 == 0 {
		slices.Reverse(loads)
	}
	return slices.Concat(loads...)
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
	case t.Stores[0].Memory >= largestLocal:
		return s.LocalRecords
	case len(t.Cache) > 1:
		return s.TierRecords
	}
	return s.Records
}

// member is one device of a rig.
type member struct {
	device ycsb.Device
	cache  float64 // Redy's memory, in the paper's GB
}

// members returns the devices that a turn compares: each size of Redy's memory is one of them.
// Without memory, Redy equals the SSD.
func (t Stores) members(devices []ycsb.Device) []member {
	var all []member
	for _, d := range devices {
		if d != ycsb.Redy {
			all = append(all, member{device: d})
			continue
		}
		for _, cache := range t.Cache {
			if cache == 0 {
				all = append(all, member{device: ycsb.SSD})
			} else {
				all = append(all, member{ycsb.Redy, cache})
			}
		}
	}
	return all
}

// demandOf returns the demand of a store on members.
func demandOf(value int, local float64, members []member) demand {
	d := demand{value: value, local: local}
	for _, m := range members {
		d.cache += m.cache
		if m.device == ycsb.SMB {
			d.shares++
		} else {
			d.logs++ // Redy's is its SSD tier
		}
	}
	return d
}

func (t Stores) plan(b *Bench) (*plan, error) {
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
	p := &storePlan{trial: t, bench: b, records: t.records(b.Scale), members: t.members(devices)}
	var turns []turn
	for round := 1; round <= b.Rounds; round++ {
		turns = append(turns, p.turn(round))
	}
	return &plan{turns: turns, end: p.end, need: demandOf(t.Value, t.Stores[0].Memory, p.members).of(p.records)}, nil
}

// Approximate speed of loading, in records per second, and in bytes per second for each
// device.
const (
	loadRecords = 2_000_000
	loadBytes   = 300 << 20
)

// loads describes what a turn loads, after the round before. The only store of a trial is loaded
// once.
func (p *storePlan) loads(round int) load {
	l := load{name: "the store"}
	loads := 1
	if len(p.trial.Stores) > 1 {
		l.name, loads = fmt.Sprintf("the stores of round %d", round), 0
		var before *Store
		if round > 1 {
			last := p.trial.order(round - 1)
			before = &last[len(last)-1]
		}
		for _, s := range p.trial.order(round) {
			if before == nil || !s.follows(*before) {
				loads++
			}
			before = &s
		}
	}
	bytes := float64(ycsb.LogBytes(p.records, p.trial.Value)) * float64(len(p.members))
	l.lasts = time.Duration(loads) * time.Duration((float64(p.records)/loadRecords+bytes/loadBytes)*float64(time.Second))
	return l
}

// series returns the name of the series of a store on a device. Where the size of Redy's cache
// varies, it is the tiered store's, whose cache may have size zero.
func (t Stores) series(s Store, d ycsb.Device) string {
	name := string(d)
	if t.Vary == RedyCache && d != ycsb.SMB {
		name = tieredSeries
	}
	if s.Name != "" {
		name += " " + s.Name
	}
	return name
}

// storePlan is the state of a trial of stores. The rig of a store is kept for the next one, if
// that can follow it.
type storePlan struct {
	trial   Stores
	bench   *Bench
	records int64
	members []member

	rig   *rig
	store Store // that rig is
	dir   string
}

func (p *storePlan) turn(round int) turn {
	t := p.trial
	var series []string
	for _, s := range t.Stores {
		for _, m := range p.members {
			if name := t.series(s, m.device); !slices.Contains(series, name) {
				series = append(series, name)
			}
		}
	}
	return turn{
		name:   fmt.Sprintf("round %d", round),
		series: series,
		lasts:  time.Duration(len(t.Stores)*len(t.Threads)*len(p.members)) * (p.bench.Duration + p.bench.Warmup),
		loads:  p.loads(round),
		measure: func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error) {
			return p.measure(ctx, round, progress)
		},
	}
}

func (p *storePlan) measure(ctx context.Context, round int, progress ycsb.Progress) ([]Measurement, error) {
	var all []Measurement
	for _, s := range p.trial.order(round) {
		if err := p.ready(ctx, s, progress); err != nil {
			return nil, err
		}
		for _, threads := range p.trial.Threads {
			for i, m := range p.members {
				r, err := p.rig.run(ctx, i, ycsb.Spec{
					Distribution: s.Distribution, Threads: threads, Duration: p.bench.Duration, Warmup: p.bench.Warmup,
					Seed: int64(round)<<16 + int64(len(all)), // every run has its own sequence of keys
				}, progress)
				if err != nil {
					return nil, err
				}
				if r.Errors > 0 {
					return nil, fmt.Errorf("device %s: %d of %d reads went wrong; the first: %s", m.device, r.Errors, r.Ops, r.FirstError)
				}
				all = append(all, p.measurement(s, m, round, &r))
			}
		}
	}
	return all, nil
}

// ready makes the rig a store: it reduces the present one, or loads another.
func (p *storePlan) ready(ctx context.Context, s Store, progress ycsb.Progress) (err error) {
	before := p.store
	if p.rig != nil && !s.follows(before) {
		if err := p.end(); err != nil {
			return err
		}
	}
	p.store = s
	switch {
	case p.rig == nil:
		if err := p.open(ctx, progress); err != nil {
			return err
		}
	case s.Memory < before.Memory:
		if err := p.rig.setMemory(p.shape(s).Memory); err != nil {
			return err
		}
	default:
		return nil
	}
	return p.warm(ctx, progress)
}

// open opens a rig, and loads it.
func (p *storePlan) open(ctx context.Context, progress ycsb.Progress) (err error) {
	if p.dir, err = os.MkdirTemp(p.bench.Work, "stores-*"); err != nil {
		return fmt.Errorf("files of stores: %w", err)
	}
	parts := make([]rigPart, len(p.members))
	for i, m := range p.members {
		parts[i] = rigPart{device: m.device}
		if m.device == ycsb.Redy {
			// In the paper's setup Redy's memory holds the whole log, and it must do so after
			// rounding.
			parts[i].cache = max(scaled(p.records, m.cache), largePage)
		}
	}
	if p.rig, err = openRig(ctx, parts, p.shape(p.store), p.dir); err != nil {
		return errors.Join(err, os.RemoveAll(p.dir))
	}
	return p.rig.load(ctx, progress)
}

// Filling a read cache ends when a run no longer raises the hit rate by this share, or after
// this many runs.
const (
	warmGain = 0.01
	warmRuns = 40
)

// warm fills the read cache of a store by reads from the first device, which is the fastest.
// All devices share the cache, so it is equally full for the others.
func (p *storePlan) warm(ctx context.Context, progress ycsb.Progress) error {
	if p.store.ReadCache == 0 {
		return nil
	}
	hits := 0.0
	for i := range warmRuns {
		r, err := p.rig.run(ctx, 0, ycsb.Spec{
			Distribution: p.store.Distribution, Threads: slices.Max(p.trial.Threads), Duration: p.bench.Duration,
			Seed: -1 - int64(i), // no measured run has it
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

// shape returns the shape of a store, without Redy's memory.
func (p *storePlan) shape(s Store) ycsb.Shape {
	page := smallPage
	if ycsb.LogBytes(p.records, p.trial.Value) > gigabyte {
		page = largePage
	}
	least := int64(float64(logPages*page) / (1 - s.ReadCache))
	return ycsb.Shape{
		Records: p.records, ValueSize: p.trial.Value, ReadCache: s.ReadCache, PageSize: page,
		Memory:    max(scaled(p.records, s.Memory), least+smallPage),
		Transport: p.bench.Transport, Net: p.bench.Net, Depth: ycsb.DefaultDepth, CacheServer: p.bench.CacheServer,
	}
}

func (p *storePlan) measurement(s Store, of member, round int, r *ycsb.Result) Measurement {
	m := Measurement{
		Trial: p.trial.Name, Series: p.trial.series(s, r.Device), Round: round, Transport: r.Transport, Net: r.Net, Note: r.Note,
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
		m.X = float64(r.Threads)
	case LocalMemory:
		m.X = s.Memory
	case RedyCache:
		m.X = of.cache
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
