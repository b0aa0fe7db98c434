package store

import (
	"fmt"
	"io"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(w io.Writer) error { return bench.WriteJSON(w, r.Rows) }

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	r.writeHead(out)
	columns := []bench.Column[Row]{
		bench.Format("store", "%s", func(r *Row) string { return r.Store }),
		bench.Format("op", "%s", func(r *Row) Op { return r.Op }),
		bench.Format("distribution", "%s", func(r *Row) ycsb.Distribution { return r.Distribution }),
		bench.Format("mode", "%s", func(r *Row) Mode { return r.Mode }),
		bench.Format("threads", "%d", func(r *Row) int { return r.Threads }),
		bench.Format("Mop/s", "%.2f", func(r *Row) float64 { return r.Mops }),
		bench.Format("from", "%.2f", func(r *Row) float64 { return r.MopsMin }),
		bench.Format("to", "%.2f", func(r *Row) float64 { return r.MopsMax }),
		bench.Format("CPU", "%.0f%%", func(r *Row) float64 { return 100 * r.CPUShare }),
		bench.Format("limit", "%.2f", func(r *Row) float64 { return r.LimitMops }),
		bench.Format("of limit", "%.2f", func(r *Row) float64 { return r.OfLimit }),
		bench.Format("scaling", "%s", func(r *Row) string { return bench.Ratio(r.Scaling) }),
	}
	any := func(is func(Row) bool) bool { return slices.ContainsFunc(r.Rows, is) }
	if any(func(r Row) bool { return r.CopyMops > 0 }) {
		columns = append(columns,
			bench.Format("value bytes read", "%g", func(r *Row) float64 { return r.ValueBytesRead }),
			bench.Format("written", "%g", func(r *Row) float64 { return r.ValueBytesWritten }),
			bench.Column[Row]{Name: "copy", Text: func(r *Row) string { return orDash(r.CopyMops, r.CopyMops) }},
			bench.Column[Row]{Name: "of copy", Text: func(r *Row) string { return orDash(r.CopyMops, r.OfCopying) }})
	}
	if any(func(r Row) bool { return r.RatioToPeer > 0 }) {
		columns = append(columns, bench.Format("over peer", "%s", func(r *Row) string { return bench.Ratio(r.RatioToPeer) }))
	}
	if any(func(r Row) bool { return r.Case == "cold" }) {
		columns = append(columns, bench.Format("memory", "%.1f%%", func(r *Row) float64 { return 100 * r.HitMemory }),
			bench.Format("cache", "%.1f%%", func(r *Row) float64 { return 100 * r.HitCache }),
			bench.Format("device", "%.1f%%", func(r *Row) float64 { return 100 * r.HitDevice }))
	}
	return bench.WriteTable(out, append(columns,
		bench.Format("allocs/op", "%.4f", func(r *Row) float64 { return r.AllocsPerOp }),
		bench.Format("GC CPU", "%.2f%%", func(r *Row) float64 { return 100 * r.GCCPUShare }),
		bench.Format("RSS", "%v", func(r *Row) units.Size { return units.Size(r.RSSBytes) })), r.Rows)
}

// orDash prints a figure, or a dash if what it is compared with was not measured.
func orDash(base, figure float64) string {
	if base == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", figure)
}

// writeHead says what was measured, and the yardsticks.
func (r *Report) writeHead(out io.Writer) {
	s := &r.Spec
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "records: %d of %d + %d bytes, loaded in %.1f s (%.1f million a second)\n",
		s.Records, ycsb.KeySize, s.ValueSize, r.Load.Seconds, r.Load.Mops)
	fmt.Fprintf(out, "%s; batches and queues of %d operations\n", bench.OfSlices(s.Duration), s.Depth)
	if slices.Contains(s.Ops, RMW) {
		fmt.Fprintf(out, "rmw: adds to the first %d bytes of a value of %d, in place: it reads and writes %d bytes of it\n", rmwBytes, s.ValueSize, rmwBytes)
	}
	if r.Peer != "" {
		fmt.Fprintf(out, "peer: %s\n", r.Peer)
	}
	for _, l := range r.Limits {
		fmt.Fprintf(out, "yardstick, %d threads: %.1f million random lines a second in %v, the limit is half of that",
			l.Threads, l.LinesPerSecond/1e6, units.Size(r.FootprintBytes))
		if l.CopyMops > 0 {
			fmt.Fprintf(out, "; %.1f million copies of a value", l.CopyMops)
		}
		fmt.Fprintf(out, "; generator %.1f ns an operation\n", l.GeneratorNanos)
	}
	fmt.Fprintln(out)
}
