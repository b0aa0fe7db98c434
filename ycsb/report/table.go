package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// WriteTable writes the results as a table, with the head above and notes below.
func WriteTable(w io.Writer, head Head, results []ycsb.Result) error {
	var b strings.Builder
	for _, line := range head.lines(results) {
		fmt.Fprintf(&b, "%s: %s\n", line.Name, line.Text)
	}
	b.WriteByte('\n')
	if err := bench.WriteTable(&b, columns(results), results); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if notes := notes(results); len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "\n") + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: table: %w", err)
	}
	return nil
}

// columns returns the columns of the table. With several rounds, there are columns for the
// slowest and the fastest. Columns of what was not measured are left out.
func columns(results []ycsb.Result) []bench.Column[ycsb.Result] {
	number := func(name string, value func(r *ycsb.Result) float64) bench.Column[ycsb.Result] {
		return bench.Column[ycsb.Result]{Name: name, Text: func(r *ycsb.Result) string { return figure(value(r)) }}
	}
	latency := func(name string, value func(r *ycsb.Result) float64) bench.Column[ycsb.Result] {
		return bench.Column[ycsb.Result]{Name: name, Text: func(r *ycsb.Result) string {
			if r.Device == ycsb.DiskAlone { // fio does not tell
				return "-"
			}
			return figure(value(r))
		}}
	}
	ratio := func(name string, value func(r *ycsb.Result) float64) bench.Column[ycsb.Result] {
		return bench.Column[ycsb.Result]{Name: name, Text: func(r *ycsb.Result) string { return bench.Ratio(value(r)) }}
	}
	share := func(name string, value func(r *ycsb.Result) float64) bench.Column[ycsb.Result] {
		return bench.Format(name, "%.1f%%", func(r *ycsb.Result) float64 { return 100 * value(r) })
	}
	named := []bench.Column[ycsb.Result]{
		bench.Format("device", "%s", func(r *ycsb.Result) ycsb.Device { return r.Device }),
	}
	any := func(is func(ycsb.Result) bool) bool { return slices.ContainsFunc(results, is) }
	writes := any(func(r ycsb.Result) bool { return r.Mix.Writes() })
	if writes {
		named = append(named, bench.Format("mix", "%s", func(r *ycsb.Result) ycsb.MixName { return r.Mix }))
	}
	named = append(named,
		bench.Format("distribution", "%s", func(r *ycsb.Result) ycsb.Distribution { return r.Distribution }),
		bench.Format("threads", "%d", func(r *ycsb.Result) int { return r.Threads }))
	if any(func(r ycsb.Result) bool { return r.Depth != results[0].Depth }) {
		named = append(named, bench.Format("depth", "%d", func(r *ycsb.Result) int { return r.Depth }))
	}
	if any(func(r ycsb.Result) bool { return r.ReadCache > 0 }) {
		named = append(named, bench.Column[ycsb.Result]{Name: "read cache", Text: readCache})
	}
	all := []bench.Column[ycsb.Result]{number("Mops", func(r *ycsb.Result) float64 { return r.Mops })}
	if any(func(r ycsb.Result) bool { return r.Rounds > 1 }) {
		all = append(all, number("least", func(r *ycsb.Result) float64 { return r.MopsMin }),
			number("most", func(r *ycsb.Result) float64 { return r.MopsMax }))
	}
	all = append(all,
		latency("p50 us", func(r *ycsb.Result) float64 { return r.P50Micros }),
		latency("p99 us", func(r *ycsb.Result) float64 { return r.P99Micros }),
		ratio("vs ssd", func(r *ycsb.Result) float64 { return r.RatioToSSD }),
		share("memory", func(r *ycsb.Result) float64 { return r.HitMemory }),
		share("redy", func(r *ycsb.Result) float64 { return r.HitRedy }),
		share("ssd", func(r *ycsb.Result) float64 { return r.HitSSD }))
	if any(func(r ycsb.Result) bool { return r.HitCache > 0 }) {
		all = append(all, share("cached", func(r *ycsb.Result) float64 { return r.HitCache }))
	}
	if any(func(r ycsb.Result) bool { return r.OfDisk > 0 }) {
		all = append(all, orNone("of disk", "%.1f%%", func(r *ycsb.Result) float64 { return 100 * r.OfDisk }))
	}
	if writes {
		all = append(all,
			orNone("of writes", "%.1f%%", func(r *ycsb.Result) float64 { return 100 * r.ShareOfDevice }),
			orNone("write amp", "%.2f", func(r *ycsb.Result) float64 { return r.WriteAmplification }),
			orNone("space amp", "%.2f", func(r *ycsb.Result) float64 { return r.SpaceAmplification }),
			orNone("settle s", "%.1f", func(r *ycsb.Result) float64 { return r.SettleSeconds }),
			orNone("processors", "%.2f", func(r *ycsb.Result) float64 { return r.Processors }))
	}
	if any(func(r ycsb.Result) bool { return r.RatioToPebble > 0 }) {
		all = append(all, ratio("vs pebble", func(r *ycsb.Result) float64 { return r.RatioToPebble }))
	}
	if any(func(r ycsb.Result) bool { return r.Device == ycsb.SMB }) {
		all = append(all, share("smb", func(r *ycsb.Result) float64 { return r.HitSMB }),
			ratio("vs smb", func(r *ycsb.Result) float64 { return r.RatioToSMB }))
	}
	if any(func(r ycsb.Result) bool { return r.HitOther > 0 }) {
		all = append(all, share("other", func(r *ycsb.Result) float64 { return r.HitOther }))
	}
	for i, c := range all {
		all[i].Text = func(r *ycsb.Result) string {
			if !measured(*r) {
				return "-"
			}
			return c.Text(r)
		}
	}
	return append(named, all...)
}

// measured says whether a result has figures. A store may have been killed before an experiment.
func measured(r ycsb.Result) bool { return r.Killed == "" || r.Rounds > 0 }

// readCache prints the share of the local memory that is read cache.
func readCache(r *ycsb.Result) string {
	if r.ReadCache == 0 {
		return "-"
	}
	return fmt.Sprintf("%g", r.ReadCache)
}

// orNone is a column of a figure that is 0 where there is none.
func orNone(name, format string, value func(*ycsb.Result) float64) bench.Column[ycsb.Result] {
	return bench.Column[ycsb.Result]{Name: name, Text: func(r *ycsb.Result) string {
		if value(r) == 0 {
			return "-"
		}
		return fmt.Sprintf(format, value(r))
	}}
}

// figure prints a number to three significant digits, without an exponent.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// wide is the ratio of the fastest to the slowest round from which a note warns.
const wide = 1.5

// keptUp is the least fraction of an open loop's rate that counts as kept up.
const keptUp = 0.95

// filesOf says whether a peer's data are larger than its memory.
func filesOf(r ycsb.Result) string {
	text := fmt.Sprintf("its files take %v", units.Size(r.FilesBytes))
	switch {
	case r.MemoryLimit == 0:
		text += ", without a memory limit"
	case r.FilesBytes < r.MemoryLimit:
		text += fmt.Sprintf(", less than its memory limit of %v: the data are not larger than memory", units.Size(r.MemoryLimit))
	default:
		text += fmt.Sprintf(", %.1f times its memory limit", float64(r.FilesBytes)/float64(r.MemoryLimit))
	}
	return fmt.Sprintf("%s; it read %.0f bytes from the disk for each record", text, float64(r.DiskBytes)/float64(max(r.Ops, 1)))
}

// notes returns warnings about single runs, one line each.
func notes(results []ycsb.Result) []string {
	var lines []string
	for _, r := range results {
		if slices.Contains(ycsb.Peers, r.Device) && r.FilesBytes > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s; %s", r.Experiment, r.Note, filesOf(r)))
		} else if r.Note != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", r.Experiment, r.Note))
		}
		if r.Killed != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", r.Experiment, r.Killed))
		}
		if r.MopsMax > wide*r.MopsMin {
			lines = append(lines, fmt.Sprintf("%s: between %s and %s Mops in %d rounds: too far apart to conclude much from",
				r.Experiment, figure(r.MopsMin), figure(r.MopsMax), r.Rounds))
		}
		if did := r.Mops * 1e6; did < keptUp*r.TargetRate {
			lines = append(lines, fmt.Sprintf("%s: %.0f operations a second of the %.0f asked for: its latencies are those of a queue that grows",
				r.Experiment, did, r.TargetRate))
		}
		if r.Errors > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d operations went wrong; the first: %s",
				r.Experiment, r.Errors, r.Ops, r.FirstError))
		}
	}
	return lines
}
