package cache

import (
	"cmp"
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/redytier"
)

// Row is the result of one cell. Its JSON form is one line.
type Row struct {
	Path      string `json:"path"` // redy, or fabric: the transport alone
	Mode      Mode   `json:"mode,omitempty"`
	Transport string `json:"transport"`
	Net       string `json:"net"`
	C         int    `json:"c"` // of path fabric, too, the number of threads; the next three are 0 there
	S         int    `json:"s"`
	B         int    `json:"b"`
	Q         int    `json:"q"`
	Tuning    string `json:"tuning,omitempty"` // what is turned off; on: nothing
	Depth     int    `json:"depth"`            // operations in flight, of all threads
	Op        Op     `json:"op"`
	Size      int    `json:"size"`
	bench.Figures

	// Ratios of rows of path redy to the transport alone, under the same operation.
	// MeanOverRaw and MopsOverRaw are the ratios of mean latency and throughput with as
	// many threads and operations in flight, MopsOverRawQ the ratio of throughput to the
	// transport with as many threads, and as many operations in flight as Redy has batches,
	// MopsOverRaw1 to that with one thread and one operation.
	MeanOverRaw  float64 `json:"mean_over_raw,omitempty"`
	MopsOverRaw  float64 `json:"mops_over_raw,omitempty"`
	MopsOverRawQ float64 `json:"mops_over_rawq,omitempty"`
	MopsOverRaw1 float64 `json:"mops_over_raw1,omitempty"`
}

// Report is the result of a run.
type Report struct {
	Machine string
	Spec    Spec
	Rows    []Row
}

// Find returns the row of a configuration and tuning, in the spec's first mode and size; nil
// if there is none.
func (r *Report) Find(c redytier.Configuration, tuning string, op Op) *Row {
	for i := range r.Rows {
		row := &r.Rows[i]
		of := redytier.Configuration{ClientThreads: row.C, ServerThreads: row.S, BatchSize: row.B, QueueDepth: row.Q}
		if !row.Raw() && of == c && row.Tuning == tuning && row.Op == op {
			return row
		}
	}
	return nil
}

// FindRaw returns the row of the transport with that many threads, each of which has that many
// operations in flight, of the first size; nil if there is none.
func (r *Report) FindRaw(threads, depth int, op Op) *Row {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Raw() && row.C == threads && row.Depth == threads*depth && row.Op == op {
			return row
		}
	}
	return nil
}

// Raw says whether the row is of the transport alone.
func (r *Row) Raw() bool { return r.Path == pathFabric }

// relate sets the ratios of the cache's rows to the transport's. samples has the slices of each
// row. A ratio is the median of the slices' ratios.
func (r *Report) relate(samples [][]bench.Sample) {
	raw := make(map[[4]any][]bench.Sample)
	for i, row := range r.Rows {
		if row.Raw() {
			raw[[4]any{row.Op, row.Size, row.C, row.Depth}] = samples[i]
		}
	}
	mean := func(s *bench.Sample) float64 { return float64(s.InFlight) / s.Mops }
	for i := range r.Rows {
		row, ours := &r.Rows[i], samples[i]
		if row.Raw() {
			continue
		}
		at := func(threads, depth int) []bench.Sample { return raw[[4]any{row.Op, row.Size, threads, depth}] }
		row.MeanOverRaw = bench.RatioOfRounds(ours, at(row.C, row.Depth), mean)
		row.MopsOverRaw = bench.RatioOfRounds(ours, at(row.C, row.Depth), bench.Throughput)
		row.MopsOverRawQ = bench.RatioOfRounds(ours, at(row.C, row.C*row.Q), bench.Throughput)
		row.MopsOverRaw1 = bench.RatioOfRounds(ours, at(1, 1), bench.Throughput)
	}
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	s := &r.Spec
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "transport: %s, network model: %s; random addresses in %v; idle: %s\n", s.Transport, s.Net, units.Size(s.Capacity), s.Idle)
	fmt.Fprintln(out, bench.OfSlices(s.Duration))
	fmt.Fprint(out, "over raw: beside the transport alone with as many threads, a queue pair each, and as many operations\n"+
		"in flight; over raw q: with as many as Redy has batches in flight; over raw 1: one thread, one operation\n\n")
	columns := []bench.Column[Row]{
		bench.Format("path", "%s", func(r *Row) string { return r.Path }),
		bench.Format("mode", "%s", func(r *Row) Mode { return cmp.Or(r.Mode, "-") }),
		{Name: "c,s,b,q", Text: (*Row).config},
		bench.Format("tuning", "%s", func(r *Row) string { return cmp.Or(r.Tuning, "-") }),
		bench.Format("depth", "%d", func(r *Row) int { return r.Depth }),
		bench.Format("op", "%s", func(r *Row) Op { return r.Op }),
		bench.Format("size", "%v", func(r *Row) units.Size { return units.Size(r.Size) }),
	}
	columns = append(columns, bench.FigureColumns(func(r *Row) *bench.Figures { return &r.Figures })...)
	columns = append(columns,
		bench.Column[Row]{Name: "mean over raw", Text: func(r *Row) string { return bench.Ratio(r.MeanOverRaw) }},
		bench.Column[Row]{Name: "Mop/s over raw", Text: func(r *Row) string { return bench.Ratio(r.MopsOverRaw) }},
		bench.Column[Row]{Name: "over raw q", Text: func(r *Row) string { return bench.Ratio(r.MopsOverRawQ) }},
		bench.Column[Row]{Name: "over raw 1", Text: func(r *Row) string { return bench.Ratio(r.MopsOverRaw1) }},
	)
	return bench.WriteTable(out, columns, r.Rows)
}

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }

func (r *Row) config() string {
	if r.Raw() {
		return fmt.Sprintf("%d,-,-,-", r.C)
	}
	return fmt.Sprintf("%d,%d,%d,%d", r.C, r.S, r.B, r.Q)
}
