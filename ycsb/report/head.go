package report

import (
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
		{"records", fmt.Sprintf("%d of %d + %d bytes, read only, %d under way per thread",
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
	for _, r := range results {
		if r.Device == ycsb.Redy {
			lines = append(lines, line{"redy", fmt.Sprintf("transport %s, network %s", r.Transport, r.Net)})
			break
		}
	}
	for _, r := range results {
		if r.Device == ycsb.SMB {
			lines = append(lines, line{"smb", r.Net})
			break
		}
	}
	for _, r := range results {
		if r.Device == ycsb.SSD || r.Device == ycsb.Redy {
			lines = append(lines, line{"files", fmt.Sprintf("%s, %s", h.Dir, readsOf(r.DirectIO))})
			break
		}
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
		lines = append(lines,
			line{"Go heap", fmt.Sprintf("%v before loading, %v at most after a run",
				units.Size(results[len(results)-1].HeapBytesBefore), units.Size(heapAfter(results)))})
	}
	return lines
}

// heapAfter returns the largest Go heap after a run.
func heapAfter(results []ycsb.Result) uint64 {
	var most uint64
	for _, r := range results {
		most = max(most, r.HeapBytesAfter)
	}
	return most
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
