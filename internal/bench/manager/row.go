package manager

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// Row is the result of one phase. Figures that a phase does not have are 0.
type Row struct {
	Phase   string `json:"phase"`
	Catalog string `json:"catalog"`
	VMs     int    `json:"vms"`
	Caches  int    `json:"caches"`  // that exist at the end of the phase
	Beating int64  `json:"beating"` // VMs and caches that beat

	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // processors that the manager used
	RSS     int64   `json:"rss_bytes"`

	BeatsPerS   float64 `json:"beats_per_s"` // answered ones
	BeatP50Ms   float64 `json:"beat_p50_ms"`
	BeatP999Ms  float64 `json:"beat_p999_ms"`
	BeatsFailed int64   `json:"beats_failed"`

	RegistrationsPerS float64 `json:"registrations_per_s"`
	AllocationsPerS   float64 `json:"allocations_per_s"`
	AllocateP50Ms     float64 `json:"allocate_p50_ms"`
	AllocateP99Ms     float64 `json:"allocate_p99_ms"`
	DeallocateP99Ms   float64 `json:"deallocate_p99_ms"`
	Refused           int64   `json:"refused"` // allocations for which there was no room
	Failed            int64   `json:"failed"`  // allocations that failed otherwise

	ToldS     float64 `json:"told_s"`       // from a rack's end until the last of its caches was told
	ToldCount int     `json:"told"`         // caches of that rack
	RestartS  float64 `json:"restart_s"`    // from the manager's start until it answered
	TakeoverS float64 `json:"takeover_s"`   // from one manager's end until another answered
	BeatsS    float64 `json:"beats_back_s"` // from then until each player had an answer
}

// Report is the result of a run.
type Report struct {
	Machine string
	Spec    Spec
	Rows    []Row
}

// WriteJSON writes one line of JSON for each row.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "catalog: %s; %d VMs, and %d clients with %d caches; their beats on %d connections; %d callers at once\n",
		r.Spec.Catalog, r.Spec.VMs, r.Spec.Clients, r.Spec.Caches, r.Spec.Connections, r.Spec.Callers)
	fmt.Fprintf(out, "figures: one run of each phase; rates and CPUs are means over the phase, percentiles those of all its beats and calls\n\n")
	number := func(name, format string, value func(r *Row) float64) bench.Column[Row] {
		return bench.Column[Row]{Name: name, Text: func(r *Row) string {
			if x := value(r); x != 0 {
				return fmt.Sprintf(format, x)
			}
			return "-"
		}}
	}
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("phase", "%s", func(r *Row) string { return r.Phase }),
		bench.Format("caches", "%d", func(r *Row) int { return r.Caches }),
		bench.Format("s", "%.2f", func(r *Row) float64 { return r.Seconds }),
		bench.Format("CPUs", "%.2f", func(r *Row) float64 { return r.CPU }),
		bench.Format("memory", "%v", func(r *Row) units.Size { return units.Size(r.RSS) }),
		number("beats/s", "%.0f", func(r *Row) float64 { return r.BeatsPerS }),
		number("p50 ms", "%.2f", func(r *Row) float64 { return r.BeatP50Ms }),
		number("p99.9 ms", "%.1f", func(r *Row) float64 { return r.BeatP999Ms }),
		number("failed", "%.0f", func(r *Row) float64 { return float64(r.BeatsFailed) }),
		number("register/s", "%.0f", func(r *Row) float64 { return r.RegistrationsPerS }),
		number("allocate/s", "%.0f", func(r *Row) float64 { return r.AllocationsPerS }),
		number("p99 ms", "%.1f", func(r *Row) float64 { return r.AllocateP99Ms }),
		number("refused", "%.0f", func(r *Row) float64 { return float64(r.Refused + r.Failed) }),
		number("told s", "%.2f", func(r *Row) float64 { return r.ToldS }),
		number("back s", "%.2f", func(r *Row) float64 { return r.RestartS + r.TakeoverS }),
		number("beats back s", "%.2f", func(r *Row) float64 { return r.BeatsS }),
	}, r.Rows)
}
