package open

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// Row is one opening. Its JSON form is one line.
type Row struct {
	After     Ending  `json:"after"`
	Round     int     `json:"round"`
	Records   int64   `json:"records"`
	ValueSize int     `json:"value_size"`
	Memory    int64   `json:"memory"`
	OpenedS   float64 `json:"opened_s"`
	CPUS      float64 `json:"cpu_s"` // of all processors
	Index     bool    `json:"index"` // a copy of the index was loaded
	// Replayed is the number of records in the part of the log that was read.
	Replayed int64 `json:"replayed"`
	// Bytes were read from the disk. DiskRate, in bytes a second, is that of reading as many
	// alone, right afterwards. OfDisk is Bytes / OpenedS / DiskRate; 0 if nothing was read.
	Bytes    int64   `json:"bytes"`
	DiskRate float64 `json:"disk_bytes_per_second"`
	OfDisk   float64 `json:"of_disk"`
}

func newRow(s *Spec, after Ending, round int, r Result, rate float64) Row {
	row := Row{
		After: after, Round: round, Records: s.Records, ValueSize: s.ValueSize, Memory: s.Memory,
		OpenedS: r.Opened, CPUS: r.CPU, Index: r.Index, Replayed: r.Records, Bytes: r.Bytes, DiskRate: rate,
	}
	if rate > 0 {
		row.OfDisk = float64(r.Bytes) / r.Opened / rate
	}
	return row
}

// Report is a run.
type Report struct {
	Spec    Spec
	Machine string
	Rows    []Row
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "store: %d records of %d + %d bytes, memory of %v\n", r.Spec.Records, ycsb.KeySize, r.Spec.ValueSize, units.Size(r.Spec.Memory))
	fmt.Fprintf(out, "rows: single openings, with nothing in the page cache; disk MB/s: as many bytes read alone, by %d threads in blocks of %v, right afterwards\n\n", readers, units.Size(block))
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("after", "%s", func(r *Row) Ending { return r.After }),
		bench.Format("opened s", "%.2f", func(r *Row) float64 { return r.OpenedS }),
		bench.Format("cpu s", "%.2f", func(r *Row) float64 { return r.CPUS }),
		bench.Format("index", "%s", func(r *Row) string {
			if r.Index {
				return "copy"
			}
			return "-"
		}),
		bench.Format("replayed", "%d", func(r *Row) int64 { return r.Replayed }),
		bench.Format("read MB", "%.0f", func(r *Row) float64 { return float64(r.Bytes) / 1e6 }),
		bench.Format("disk MB/s", "%.0f", func(r *Row) float64 { return r.DiskRate / 1e6 }),
		bench.Format("of disk", "%s", func(r *Row) string { return bench.Ratio(r.OfDisk) }),
	}, r.Rows)
}

// WriteJSON prints each row as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
