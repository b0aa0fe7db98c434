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
func (c *cell) mops() float64 { return bench.MedianSample(c.samples).Mops }

// over returns the ratio of the throughput to another cell's; 0 if that is nil.
func (c *cell) over(other *cell) float64 {
	if other == nil {
		return 0
	}
	return bench.RatioOfRounds(c.samples, other.samples, bench.Throughput)
}

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
	median := bench.MedianSample(c.samples)
	r := Row{
		Store: c.store, Case: "memory",
		Op: c.op, Distribution: c.distribution, Mode: c.mode, Threads: c.threads,
		Records: s.Records, ValueSize: s.ValueSize, Layout: "fixed", Depth: s.Depth,
		Mops: median.Mops, MopsMin: median.Mops, MopsMax: median.Mops,
		Slices: len(c.samples), LimitMops: y.lines.mops(), OfLimit: c.over(y.lines), GeneratorNanos: y.generatorNanos(),
		RSSBytes: c.rss, LogBytes: m.Log.Tail - m.Log.Begin, IndexBytes: m.Index.Bytes,
	}
	var allocs uint64
	var gc float64
	for _, s := range c.samples {
		r.Operations += s.Operations
		r.Seconds += s.Seconds
		allocs += s.Allocs
		gc += s.GCSeconds
		r.CPUShare += s.CPUShare / float64(len(c.samples))
		r.MopsMin, r.MopsMax = min(r.MopsMin, s.Mops), max(r.MopsMax, s.Mops)
	}
	r.CPUShare = min(r.CPUShare, 1) // a sum of rounded parts can be above 1
	r.AllocsPerOp = float64(allocs) / float64(max(r.Operations, 1))
	r.GCCPUShare = gc / (r.Seconds * float64(c.threads))
	r.ValueBytesRead, r.ValueBytesWritten = c.op.touches(s.ValueSize)
	if y.copies != nil && c.op != RMW { // which copies no value
		r.CopyMops, r.OfCopying = y.copies.mops(), c.over(y.copies)
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
