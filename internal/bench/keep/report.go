package keep

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/plot"
)

// Row is one disturbance with a manager of one kind. Its JSON form is one line.
type Row struct {
	Disturbance Disturbance `json:"disturbance"`
	Loop        string      `json:"loop"`    // on: the manager corrects models and changes caches; off: it watches
	Before      float64     `json:"before"`  // share of windows that kept the SLO, without the disturbance
	Windows     int         `json:"windows"` // that count, of all caches
	Kept        int         `json:"kept"`    // of them, that kept the SLO
	Share       float64     `json:"share"`   // Kept of Windows
	Changes     int         `json:"changes"` // that a cache was asked to make; the most of one cache
}

// Report is the result of Run.
type Report struct {
	Machine string
	Spec    Spec
	Rows    []Row
}

// WriteTable prints the rows.
func (r *Report) WriteTable(out io.Writer) error {
	_, err := fmt.Fprintf(out, "machine: %s\n%d caches of %g op/s within %v, with a round trip of %v; windows of %v count from %v after a disturbance on, for %v\nkept: windows with all of the throughput, within the latency; changes: the most that one cache was asked to make\n\n",
		r.Machine, r.Spec.Caches, slo.MinThroughput, slo.MaxLatency, network.RTT, r.Spec.Window, r.Spec.Settle, r.Spec.Measure)
	if err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("disturbance", "%s", func(r *Row) any { return r.Disturbance }),
		bench.Format("loop", "%s", func(r *Row) any { return r.Loop }),
		bench.Format("kept before", "%.3f", func(r *Row) any { return r.Before }),
		bench.Format("windows", "%d", func(r *Row) any { return r.Windows }),
		bench.Format("kept", "%d", func(r *Row) any { return r.Kept }),
		bench.Format("share", "%.3f", func(r *Row) any { return r.Share }),
		bench.Format("changes", "%d", func(r *Row) any { return r.Changes }),
	}, r.Rows)
}

// WriteJSON prints each row as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }

// Plot draws the share of windows that kept the SLO as an SVG file, by disturbance in the order of
// the rows, from 1 on.
func (r *Report) Plot() []byte {
	off, on := plot.Curve{Name: "loop off", Colour: 1}, plot.Curve{Name: "loop on", Colour: 0}
	place, names := map[Disturbance]float64{}, ""
	for _, row := range r.Rows {
		if place[row.Disturbance] == 0 {
			place[row.Disturbance] = float64(len(place) + 1)
			names += fmt.Sprintf("%d: %s  ", len(place), row.Disturbance)
		}
		c := &off
		if row.Loop == "on" {
			c = &on
		}
		c.Dots = append(c.Dots, plot.Lone(place[row.Disturbance], row.Share))
	}
	return plot.File(plot.Chart{
		Name: "slo keep", Title: "Share of windows that kept the SLO", Kind: plot.Points, Curves: []plot.Curve{off, on},
		X: plot.Axis{Label: names}, Y: plot.Axis{Label: "share"},
	})
}
