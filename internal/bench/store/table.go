package store

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, row := range r.Rows {
		if err := encoder.Encode(row); err != nil {
			return fmt.Errorf("storebench: JSON lines: %w", err)
		}
	}
	return nil
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.writeHead(out)
	cold, copies, peer := false, false, false
	for _, row := range r.Rows {
		cold = cold || row.Case == "cold"
		copies = copies || row.CopyMops > 0
		peer = peer || row.RatioToPeer > 0
	}
	fmt.Fprint(w, "store\top\tdistribution\tmode\tthreads\tMop/s\tfrom\tto\tCPU\tlimit\tof limit\tscaling\t")
	for _, column := range []struct {
		shown bool
		name  string
	}{{copies, "copy\tof copy\t"}, {peer, "over peer\t"}, {cold, "memory\tcache\tdevice\t"}} {
		if column.shown {
			fmt.Fprint(w, column.name)
		}
	}
	fmt.Fprintln(w, "allocs/op\tGC CPU\tRSS\t")
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.0f%%\t%.2f\t%.2f\t%s\t", row.Store, row.Op, row.Distribution,
			row.Mode, row.Threads, row.Mops, row.MopsMin, row.MopsMax, 100*row.CPUShare, row.LimitMops, row.Mops/row.LimitMops, times(row.Scaling))
		if copies {
			fmt.Fprintf(w, "%.2f\t%.2f\t", row.CopyMops, row.Mops/row.CopyMops)
		}
		if peer {
			fmt.Fprintf(w, "%s\t", times(row.RatioToPeer))
		}
		if cold {
			fmt.Fprintf(w, "%.1f%%\t%.1f%%\t%.1f%%\t", 100*row.HitMemory, 100*row.HitCache, 100*row.HitDevice)
		}
		fmt.Fprintf(w, "%.4f\t%.2f%%\t%v\t\n", row.AllocsPerOp, 100*row.GCCPUShare, units.Size(row.RSSBytes))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("storebench: table: %w", err)
	}
	return nil
}

// writeHead says what was measured, and the yardsticks.
func (r *Report) writeHead(out io.Writer) {
	s := &r.Spec
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "records: %d of %d + %d bytes, loaded in %.1f s (%.1f million a second)\n",
		s.Records, ycsb.KeySize, s.ValueSize, r.Load.Seconds, r.Load.Mops)
	fmt.Fprintf(out, "cells: %v each in %d slices, turn by turn; batches and queues of %d operations\n",
		s.Duration, laps, s.Depth)
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

// times prints a ratio, or nothing where there is none.
func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", ratio)
}
