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
	// Of fio with its defaults, and as fast as it goes: the better one of two sizes of batches,
	// FioBatch. 0 if it took no part. The mean is computed as ours. FioPages says which pages the
	// buffers of the fast one had at the end.
	FioIOPS       float64 `json:"fio_iops"`
	FioMeanUs     float64 `json:"fio_mean_us"`
	FioFastIOPS   float64 `json:"fio_fast_iops"`
	FioFastMeanUs float64 `json:"fio_fast_mean_us"`
	FioBatch      int     `json:"fio_batch,omitempty"`
	FioPages      string  `json:"fio_pages,omitempty"`
	// OfFio is the ratio of IOPS to those of the best fio: the median of the ratios of slices
	// that were measured in the same round.
	OfFio float64 `json:"of_fio"`
	// CPUUs is the processor time of this process for one operation, in all slices.
	CPUUs       float64 `json:"cpu_us"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	Operations  uint64  `json:"operations"`
	Seconds     float64 `json:"seconds"`
}

// newRow converts the device's sample to a row.
func newRow(s *Spec, x cell, ours bench.Sample, cpuUs float64) Row {
	f := ours.Figures()
	return Row{
		Device: s.Device, Op: x.Op, Block: x.Size, Depth: x.Depth,
		IOPS: f.Mops * 1e6, MeanUs: f.MeanUs, P50Us: f.P50Us, P99Us: f.P99Us,
		CPUUs: cpuUs, AllocsPerOp: f.AllocsPerOp, Operations: f.Operations, Seconds: f.Seconds,
	}
}

// beside adds the slices of fio to the row; ours are the device's in the same rounds.
func (r *Row) beside(f *fio, ours, theirs []bench.Sample) {
	median := bench.MedianSample(theirs)
	iops, mean := median.Mops*1e6, float64(median.InFlight)/median.Mops
	if iops > max(r.FioIOPS, r.FioFastIOPS) {
		r.OfFio = bench.RatioOfRounds(ours, theirs, bench.Throughput)
	}
	switch {
	case f.fast == nil:
		r.FioIOPS, r.FioMeanUs = iops, mean
	case iops > r.FioFastIOPS:
		r.FioFastIOPS, r.FioFastMeanUs, r.FioBatch, r.FioPages = iops, mean, f.fast.batch(r.Depth), f.fast.pages.way
	}
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
	fmt.Fprintf(out, "%s\n\n", bench.OfSlices(r.Spec.Duration))
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
			bench.Format("fast IOPS", "%.0f", func(r *Row) float64 { return r.FioFastIOPS }),
			bench.Format("fast mean us", "%.2f", func(r *Row) float64 { return r.FioFastMeanUs }),
			bench.Format("in batches of", "%d", func(r *Row) int { return r.FioBatch }),
			bench.Column[Row]{Name: "of better fio", Text: func(r *Row) string { return bench.Ratio(r.OfFio) }})
	}
	return bench.WriteTable(out, columns, r.Rows)
}

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
