package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/redykv/redykv/ycsb"
)

// WriteTable writes the results as a table for people, with the head above and
// what happened below.
func WriteTable(w io.Writer, head Head, results []ycsb.Result) error {
	var b strings.Builder
	for _, line := range head.lines(results) {
		fmt.Fprintf(&b, "%s: %s\n", line.Name, line.Text)
	}
	b.WriteByte('\n')
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads, rows := grid(results)
	for _, row := range append([][]string{heads}, rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t")+"\t")
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("report: table: %w", err)
	}
	if notes := notes(results); len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "\n") + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: table: %w", err)
	}
	return nil
}

// grid is the table as words: the heads of the columns, and a row for each
// result. Several rounds have columns for the slowest and the fastest. The file server
// has its columns if it was measured; what no run found anywhere else has no column for
// elsewhere.
func grid(results []ycsb.Result) (heads []string, rows [][]string) {
	heads = []string{
		"device", "distribution", "threads", "Mops", "p50 us", "p99 us", "vs ssd", "memory", "redy", "ssd",
	}
	several := slices.ContainsFunc(results, func(r ycsb.Result) bool { return r.Rounds > 1 })
	if several {
		heads = slices.Insert(heads, 4, "least", "most")
	}
	served := slices.ContainsFunc(results, func(r ycsb.Result) bool { return r.Device == ycsb.SMB })
	if served {
		heads = append(heads, "smb", "vs smb")
	}
	elsewhere := slices.ContainsFunc(results, func(r ycsb.Result) bool { return r.HitOther > 0 })
	if elsewhere {
		heads = append(heads, "other")
	}
	for _, r := range results {
		row := []string{
			string(r.Device), string(r.Distribution), strconv.Itoa(r.Threads),
			figure(r.Mops), figure(r.P50Micros), figure(r.P99Micros), ratio(r.RatioToSSD),
			percent(r.HitMemory), percent(r.HitRedy), percent(r.HitSSD),
		}
		if several {
			row = slices.Insert(row, 4, figure(r.MopsMin), figure(r.MopsMax))
		}
		if served {
			row = append(row, percent(r.HitSMB), ratio(r.RatioToSMB))
		}
		if elsewhere {
			row = append(row, percent(r.HitOther))
		}
		rows = append(rows, row)
	}
	return heads, rows
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

// ratio prints how many times as fast one device is as another; 0 is not known.
func ratio(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", r)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// wide is how many times as fast the fastest round may be as the slowest until a reader
// is warned.
const wide = 1.5

// keptUp is the share of an open loop's rate from which on a device has kept up with it.
const keptUp = 0.95

// notes are what a reader must know of single runs, one line for each.
func notes(results []ycsb.Result) []string {
	var lines []string
	for _, r := range results {
		if r.Note != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", r.Experiment, r.Note))
		}
		if r.MopsMax > wide*r.MopsMin {
			lines = append(lines, fmt.Sprintf("%s: between %s and %s Mops in %d rounds: too far apart to conclude much from",
				r.Experiment, figure(r.MopsMin), figure(r.MopsMax), r.Rounds))
		}
		if did := r.Mops * 1e6; did < keptUp*r.TargetRate {
			lines = append(lines, fmt.Sprintf("%s: %.0f reads a second of the %.0f asked for: its latencies are those of a queue that grows",
				r.Experiment, did, r.TargetRate))
		}
		if r.Errors > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d reads went wrong; the first: %s",
				r.Experiment, r.Errors, r.Ops, r.FirstError))
		}
	}
	return lines
}
