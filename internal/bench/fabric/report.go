package fabric

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// Row is the result of one cell. Its JSON form is one line.
type Row struct {
	Transport string `json:"transport"`
	Net       string `json:"net"` // the model of the network in between
	Idle      Idle   `json:"idle"`
	Op        Op     `json:"op"`
	Size      int    `json:"size"`
	Depth     int    `json:"depth"` // operations in flight
	bench.Figures
}

func row(s *Spec, c cell, sample bench.Sample) Row {
	return Row{
		Transport: s.Transport, Net: s.Model.String(), Idle: s.Idle,
		Op: c.Op, Size: c.Size, Depth: c.Depth, Figures: sample.Figures(),
	}
}

// Report is the result of a run.
type Report struct {
	Machine string
	Spec    Spec
	Memory  int64 // that the other side lends
	Rows    []Row
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "transport: %s, network model: %v; random addresses in %v; idle: %s\n",
		r.Spec.Transport, r.Spec.Model, units.Size(r.Memory), r.Spec.Idle)
	fmt.Fprintf(out, "%s\n\n", bench.OfSlices(r.Spec.Duration))
	columns := []bench.Column[Row]{
		bench.Format("op", "%s", func(r *Row) Op { return r.Op }),
		bench.Format("size", "%v", func(r *Row) units.Size { return units.Size(r.Size) }),
		bench.Format("depth", "%d", func(r *Row) int { return r.Depth }),
	}
	columns = append(columns, bench.FigureColumns(func(r *Row) *bench.Figures { return &r.Figures })...)
	columns = append(columns, bench.Format("MB/s", "%.1f", func(r *Row) float64 { return r.Mops * float64(r.Size) }))
	return bench.WriteTable(out, columns, r.Rows)
}

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
