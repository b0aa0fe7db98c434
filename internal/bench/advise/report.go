package advise

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "stores: %d records of %d + %d bytes; %d threads, each with %d operations under way\n", r.Spec.Records, ycsb.KeySize, r.Spec.ValueSize, r.Spec.Threads, r.Spec.Depth)
	fmt.Fprintf(out, "times, us: memory %.3f, read cache %.3f, Redy %.3f, SSD %.3f, a KiB appended %.3f\n\n",
		r.Used.Memory.Busy, r.Used.Cache.Busy, r.Used.Redy.Busy, r.Used.SSD.Busy, r.Used.Append)
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("load", "%s", func(r *Row) string { return r.Load }),
		bench.Format("setting", "%s", func(r *Row) string { return r.What }),
		bench.Format("memory", "%v", func(r *Row) units.Size { return units.Size(r.Setting.Memory) }),
		bench.Format("read cache", "%v", func(r *Row) units.Size { return units.Size(r.ReadCache) }),
		bench.Format("Redy", "%v", func(r *Row) units.Size { return units.Size(r.Redy) }),
		bench.Format("cost/h", "%.5f", func(r *Row) float64 { return r.Cost }),
		bench.Format("goal Mop/s", "%.3f", func(r *Row) float64 { return r.Goal }),
		bench.Format("predicted", "%.3f", func(r *Row) float64 { return r.Mops }),
		bench.Format("measured", "%.3f", func(r *Row) float64 { return r.Measured }),
		bench.Format("off", "%+.0f%%", func(r *Row) float64 { return 100 * r.Off }),
		bench.Format("in memory", "%s", func(r *Row) string { return both(r.InMemory, r.Memory) }),
		bench.Format("in cache", "%s", func(r *Row) string { return both(r.InCache, r.Cache) }),
		bench.Format("in Redy", "%s", func(r *Row) string { return both(r.InRedy, r.Near) }),
		bench.Format("reached", "%s", func(r *Row) string { return map[bool]string{true: "yes", false: "no"}[r.Reached] }),
	}, r.Rows)
}

// both prints a share as predicted and as measured.
func both(predicted, measured float64) string { return fmt.Sprintf("%.2f/%.2f", predicted, measured) }

// WriteJSON prints each row as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
