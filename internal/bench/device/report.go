package device

import (
	"fmt"
	"io"
	"strings"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// Row is the result of one cell. Its JSON form is one line.
type Row struct {
	Device string  `json:"device"`
	Op     Op      `json:"op"`
	Block  int     `json:"block"` // bytes
	Depth  int     `json:"depth"` // operations in flight
	IOPS   float64 `json:"iops"`
	MeanUs float64 `json:"mean_us"` // operations in flight over throughput
	P50Us  float64 `json:"p50_us"`  // percentiles are of a sample of the operations
	P99Us  float64 `json:"p99_us"`
	// Of fio, in the same rounds; 0 if it took no part. The mean is computed as ours.
	FioIOPS   float64 `json:"fio_iops"`
	FioMeanUs float64 `json:"fio_mean_us"`
	// CPUUs is the processor time of this process for one operation, in all slices.
	CPUUs       float64 `json:"cpu_us"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	Operations  uint64  `json:"operations"`
	Seconds     float64 `json:"seconds"`
}

// newRow converts samples to a row; theirs may be nil.
func newRow(s *Spec, x cell, ours bench.Sample, theirs *bench.Sample, cpuUs float64) Row {
	f := ours.Figures()
	r := Row{
		Device: s.Device, Op: x.Op, Block: x.Size, Depth: x.Depth,
		IOPS: f.Mops * 1e6, MeanUs: f.MeanUs, P50Us: f.P50Us, P99Us: f.P99Us,
		CPUUs: cpuUs, AllocsPerOp: f.AllocsPerOp, Operations: f.Operations, Seconds: f.Seconds,
	}
	if theirs != nil {
		r.FioIOPS, r.FioMeanUs = theirs.Mops*1e6, float64(theirs.InFlight)/theirs.Mops
	}
	return r
}

// Report is the result of a run.
type Report struct {
	Machine string
	Spec    Spec
	Note    string // on the device
	Fio     string // its version, and its way of I/O; empty if it took no part
	Rows    []Row
}

// files describes the files that fio read and wrote.
func (r *Report) files() (what []string) {
	for _, op := range r.Spec.Ops {
		what = append(what, fmt.Sprintf("%s: %s", op, map[Op]string{
			Read:  "the same file",
			Store: "the same file",
			Write: "the log's files and fio's were written before",
			Grow:  "the log's files and fio's have space that was never written",
		}[op]))
	}
	return what
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	device := "device: " + r.Spec.Device
	if r.Note != "" {
		device += ", " + r.Note
	}
	fmt.Fprintf(out, "%s; a log of %v\n", device, units.Size(r.Spec.Size))
	if r.Fio != "" {
		fmt.Fprintf(out, "beside it: %s; %s\n", r.Fio, strings.Join(r.files(), "; "))
	}
	median := "throughput"
	if r.Fio != "" {
		median = "share of fio's"
	}
	fmt.Fprintf(out, "cells: %v each in %d slices, alternately; figures of the slice with the median %s\n\n", r.Spec.Duration, bench.Rounds, median)
	columns := []bench.Column[Row]{
		bench.Format("op", "%s", func(r *Row) Op { return r.Op }),
		bench.Format("block", "%v", func(r *Row) units.Size { return units.Size(r.Block) }),
		bench.Format("depth", "%d", func(r *Row) int { return r.Depth }),
		bench.Format("IOPS", "%.0f", func(r *Row) float64 { return r.IOPS }),
		bench.Format("MB/s", "%.1f", func(r *Row) float64 { return r.IOPS * float64(r.Block) / 1e6 }),
		bench.Format("mean us", "%.2f", func(r *Row) float64 { return r.MeanUs }),
		bench.Format("p99 us", "%.2f", func(r *Row) float64 { return r.P99Us }),
		bench.Format("CPU us", "%.2f", func(r *Row) float64 { return r.CPUUs }),
		bench.Format("allocs/op", "%.4f", func(r *Row) float64 { return r.AllocsPerOp }),
	}
	if r.Fio != "" {
		columns = append(columns,
			bench.Format("fio IOPS", "%.0f", func(r *Row) float64 { return r.FioIOPS }),
			bench.Format("fio mean us", "%.2f", func(r *Row) float64 { return r.FioMeanUs }),
			bench.Column[Row]{Name: "of fio", Text: func(r *Row) string {
				if r.FioIOPS == 0 {
					return bench.Ratio(0)
				}
				return bench.Ratio(r.IOPS / r.FioIOPS)
			}})
	}
	return bench.WriteTable(out, columns, r.Rows)
}

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
