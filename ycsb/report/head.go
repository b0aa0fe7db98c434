package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// Head describes the measurement at the top of a report.
type Head struct {
	Machine string // see [ycsb.Machine]
	Dir     string // directory of the files
	Started time.Time
	Took    time.Duration // total time, with loading
	ycsb.Shape
	ReadCaches       []float64 // see [ycsb.Comparison.ReadCaches]
	Mixes            []ycsb.MixName
	Churn            float64 // see [ycsb.Comparison.Churn]
	Rounds           int
	Duration, Warmup time.Duration // of each run
}

// line is one line of a head.
type line struct{ Name, Text string }

// lines returns the lines of the head. Some come from the results.
func (h Head) lines(results []ycsb.Result) []line {
	lines := []line{
		{"machine", h.Machine},
		{"records", fmt.Sprintf("%d of %d + %d bytes, %s, %d pending per thread",
			h.Records, ycsb.KeySize, h.ValueSize, h.operations(), h.Depth)},
		{"scale", fmt.Sprintf("local memory %v, log %v, Redy cache %v (%s)",
			units.Size(h.Memory), units.Size(h.LogBytes()), units.Size(h.Cache), h.scale())},
		{"runs", fmt.Sprintf("%v each after %v of warm-up, devices in turn; %v in all, loading included",
			h.Duration, h.Warmup, h.Took.Round(time.Second))},
		{"figures", fmt.Sprintf("of the round with the median throughput, of %d; ratios are the median of the rounds' ratios; each run draws records of its own", max(h.Rounds, 1))},
	}
	if h.writes() {
		lines = append(lines, line{"writing", fmt.Sprintf("before the rounds %g times the local memory to each store; redykv compacts by itself, and no store syncs what it writes", h.Churn)})
	}
	all := results
	results = slices.DeleteFunc(slices.Clone(all), func(r ycsb.Result) bool { return !measured(r) })
	none := "" // why there is no limit; device memory has none anyway
	for _, r := range all {
		if r.Limit != "" && (none == "" || r.Device != ycsb.Memory) {
			none = r.Limit
		}
	}
	if none != "" {
		lines = append(lines, line{"memory limit", limitOf(all, none)})
	}
	if slices.ContainsFunc(h.ReadCaches, func(share float64) bool { return share > 0 }) {
		lines = append(lines, line{"read cache", fmt.Sprintf("shares %v of the local memory; a peer's memory is all cache", h.ReadCaches)})
	}
	if len(results) > 0 && results[0].TargetRate > 0 {
		lines = append(lines, line{"rate", fmt.Sprintf("%g operations a second are begun, latencies from when they were meant to", results[0].TargetRate)})
	}
	first := func(devices ...ycsb.Device) int {
		return slices.IndexFunc(results, func(r ycsb.Result) bool { return slices.Contains(devices, r.Device) })
	}
	if i := first(ycsb.Redy); i >= 0 {
		lines = append(lines, line{"redy", fmt.Sprintf("transport %s, network %s", results[i].Transport, results[i].Net)})
	}
	if i := first(ycsb.SMB); i >= 0 {
		lines = append(lines, line{"smb", results[i].Net})
	}
	if i := first(ycsb.SSD, ycsb.Redy); i >= 0 {
		lines = append(lines, line{"files", fmt.Sprintf("%s, %s", h.Dir, readsOf(results[i].DirectIO))})
	}
	for _, r := range slices.Backward(results) {
		if r.LogBytes > 0 { // a peer has no log
			lines = append(lines,
				line{"log", fmt.Sprintf("%d bytes, by arithmetic %d (%d a record)",
					r.LogBytes, r.LogBytesExpected, ycsb.RecordBytes(h.ValueSize))},
				line{"index", fmt.Sprintf("%v beside the memory above", units.Size(r.IndexBytes))})
			break
		}
	}
	stores := slices.DeleteFunc(slices.Clone(results), func(r ycsb.Result) bool { return r.Device == ycsb.DiskAlone })
	if len(stores) > 0 {
		least := slices.MinFunc(stores, func(a, b ycsb.Result) int { return cmp.Compare(a.HeapBytesBefore, b.HeapBytesBefore) })
		most := slices.MaxFunc(stores, func(a, b ycsb.Result) int { return cmp.Compare(a.HeapBytesAfter, b.HeapBytesAfter) })
		lines = append(lines,
			line{"Go heap", fmt.Sprintf("%v before loading, %v at most after a run",
				units.Size(least.HeapBytesBefore), units.Size(most.HeapBytesAfter))})
	}
	return lines
}

// writes says whether a mix writes.
func (h Head) writes() bool {
	return slices.ContainsFunc(h.Mixes, ycsb.MixName.Writes)
}

// operations describes the mixes.
func (h Head) operations() string {
	if !h.writes() {
		return "read only"
	}
	var all []string
	for _, m := range h.Mixes {
		all = append(all, fmt.Sprintf("mix %s: %s", m, m.Describe()))
	}
	return strings.Join(all, "; ")
}

// limitOf describes the memory limit of the stores' processes; none says why there is none.
func limitOf(results []ycsb.Result, none string) string {
	i := slices.IndexFunc(results, func(r ycsb.Result) bool { return r.MemoryLimit > 0 })
	if i < 0 {
		return none + "; a peer's files may stay in the page cache, beyond the memory that redykv has"
	}
	return fmt.Sprintf("%v for each store's process, with the page cache that it fills (%s); the servers of redy and smb are outside",
		units.Size(results[i].MemoryLimit), results[i].Limit)
}

func readsOf(direct bool) string {
	if direct {
		return "direct I/O"
	}
	return "no direct I/O here: the page cache may have served reads"
}

// scale returns memory : log : cache as a proportion. The paper's is 1 : 6 : 8.
func (h Head) scale() string {
	if h.Memory < 1 {
		return "no local memory"
	}
	of := func(bytes int64) float64 { return float64(bytes) / float64(h.Memory) }
	return fmt.Sprintf("1 : %.3g : %.3g", of(h.LogBytes()), of(h.Cache))
}
