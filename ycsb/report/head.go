package report

import (
	"cmp"
	"fmt"
	"slices"
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
	Duration, Warmup time.Duration // of each run
}

// line is one line of a head.
type line struct{ Name, Text string }

// lines returns the lines of the head. Some come from the results.
func (h Head) lines(results []ycsb.Result) []line {
	lines := []line{
		{"machine", h.Machine},
		{"records", fmt.Sprintf("%d of %d + %d bytes, read only, %d pending per thread",
			h.Records, ycsb.KeySize, h.ValueSize, h.Depth)},
		{"scale", fmt.Sprintf("local memory %v, log %v, Redy cache %v (%s)",
			units.Size(h.Memory), units.Size(h.LogBytes()), units.Size(h.Cache), h.scale())},
		{"runs", fmt.Sprintf("%v each after %v of warm-up, devices in turn; %v in all, loading included",
			h.Duration, h.Warmup, h.Took.Round(time.Second))},
	}
	if h.ReadCache > 0 {
		lines = append(lines, line{"read cache", fmt.Sprintf("%g of the local memory", h.ReadCache)})
	}
	if len(results) > 0 && results[0].TargetRate > 0 {
		lines = append(lines, line{"rate", fmt.Sprintf("%g reads a second are begun, latencies from when they were meant to", results[0].TargetRate)})
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
	if len(results) > 0 {
		most := slices.MaxFunc(results, func(a, b ycsb.Result) int { return cmp.Compare(a.HeapBytesAfter, b.HeapBytesAfter) })
		lines = append(lines,
			line{"Go heap", fmt.Sprintf("%v before loading, %v at most after a run",
				units.Size(results[len(results)-1].HeapBytesBefore), units.Size(most.HeapBytesAfter))})
	}
	return lines
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
