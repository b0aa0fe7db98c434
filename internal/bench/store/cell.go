package store

import (
	"fmt"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// cell is one combination to measure, with its samples so far.
type cell struct {
	store        string // redykv, a peer, or empty for a yardstick
	op           Op
	distribution ycsb.Distribution
	mode         Mode
	threads      int
	run          func(w *worker, k kinds, numbers []uint32) error

	samples []bench.Sample // of each slice
	memory  uint64         // reads answered in the log's memory…
	cache   uint64         // …in the read cache…
	device  uint64         // …and by the device
	rss     int64          // at the end of the last slice
}

func (c *cell) String() string {
	return fmt.Sprintf("%s %s %s %s with %d threads", c.store, c.op, c.distribution, c.mode, c.threads)
}

// yards are the yardsticks for one number of threads.
type yards struct{ lines, copies, generator *cell }

// plan lists the cells of a run, yardsticks first: for each number of threads.
// peer may be nil.
func plan(s *Spec, peer *pebblePeer) (cells []*cell, limits map[int]yards) {
	limits = make(map[int]yards)
	runs := map[Mode]func(*worker, kinds, []uint32) error{
		Plain: (*worker).plain, Batch: (*worker).batch, Async: (*worker).async,
	}
	add := func(c cell) *cell {
		cells = append(cells, &c)
		return &c
	}
	for _, threads := range s.Threads {
		y := yards{
			lines:     add(cell{mode: "lines", op: Read, distribution: ycsb.Uniform, threads: threads, run: (*worker).lines}),
			generator: add(cell{mode: "generator", op: Read, distribution: ycsb.Uniform, threads: threads, run: (*worker).generate}),
		}
		if s.ValueSize >= copyFrom {
			y.copies = add(cell{mode: "copy", op: Read, distribution: ycsb.Uniform, threads: threads, run: (*worker).copies})
		}
		limits[threads] = y
	}
	for _, op := range s.Ops {
		for _, d := range s.Distributions {
			for _, mode := range s.Modes {
				for _, threads := range s.Threads {
					add(cell{store: "redykv", op: op, distribution: d, mode: mode, threads: threads, run: runs[mode]})
				}
			}
		}
	}
	if peer != nil {
		for _, op := range s.peerOps() {
			for _, threads := range s.Threads {
				add(cell{store: s.Peer, op: op, distribution: ycsb.Uniform, mode: Plain, threads: threads, run: peer.run})
			}
		}
	}
	return cells, limits
}

// mops returns the cell's throughput.
func (c *cell) mops() float64 { return medianMops(calmest(c.samples)) }

// reads adds up where the reads between two snapshots were answered. The store counts a
// session's last few operations late, so only shares are meaningful.
func (c *cell) reads(before, after kv.Metrics) {
	c.memory += after.ReadsFrom.Memory - before.ReadsFrom.Memory
	c.cache += after.ReadsFrom.Cache - before.ReadsFrom.Cache
	for tier := range after.ReadsFrom.Tier {
		c.device += after.ReadsFrom.Tier[tier] - before.ReadsFrom.Tier[tier]
	}
}

// row returns the cell's result.
func (c *cell) row(s *Spec, m kv.Metrics, y yards) Row {
	samples := calmest(c.samples)
	r := Row{
		Store: c.store, Case: "memory",
		Op: c.op, Distribution: c.distribution, Mode: c.mode, Threads: c.threads,
		Records: s.Records, ValueSize: s.ValueSize, Layout: "fixed", Depth: s.Depth,
		Mops: medianMops(samples), MopsMin: samples[0].Mops, MopsMax: samples[len(samples)-1].Mops,
		Slices: len(samples), LimitMops: y.lines.mops(), GeneratorNanos: y.generatorNanos(),
		RSSBytes: c.rss, LogBytes: m.Log.Tail - m.Log.Begin, IndexBytes: m.Index.Bytes,
	}
	var allocs uint64
	var gc float64
	for _, s := range c.samples {
		r.Operations += s.Operations
		r.Seconds += s.Seconds
		allocs += s.Allocs
		gc += s.GCSeconds
	}
	r.AllocsPerOp = float64(allocs) / float64(max(r.Operations, 1))
	r.GCCPUShare = gc / (r.Seconds * float64(c.threads))
	for _, s := range samples {
		r.CPUShare += s.CPUShare
	}
	r.CPUShare /= float64(len(samples)) // at the end: as a sum of rounded parts it could be above 1
	if y.copies != nil {
		r.CopyMops = y.copies.mops()
	}
	if s.Cold {
		r.Case = "cold"
	}
	if s.Variable {
		r.Layout = "variable"
	}
	if c.store == s.Peer {
		r.Layout, r.LogBytes, r.IndexBytes = "", 0, 0 // those of the store beside it
		return r
	}
	if all := float64(c.memory + c.cache + c.device); all > 0 && (c.op == Read || c.op == Mixed) {
		r.HitMemory, r.HitCache, r.HitDevice = float64(c.memory)/all, float64(c.cache)/all, float64(c.device)/all
	}
	return r
}

// generatorNanos returns the time of one thread for an operation without the store.
func (y yards) generatorNanos() float64 {
	return float64(y.generator.threads) * 1e3 / y.generator.mops()
}
