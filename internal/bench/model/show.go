package model

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/model"
)

// Statistic says what the figures of a model are.
const Statistic = "of a configuration, the mean of all slices after the warm-up, or the median of three such means if it seemed to gain nothing; least us and most Mop/s: the best configuration, by the worse of reads and writes"

// summary is a line of WriteSummary.
type summary struct {
	*model.Measurement
	measured, skipped int
	latency, mops     float64 // the least latency and the most throughput of the worse of reads and writes
}

func summarize(n *model.Measurement) summary {
	s := summary{Measurement: n, latency: math.Inf(1)}
	for _, p := range n.Points {
		if p.Skipped {
			s.skipped++
			continue
		}
		s.measured++
		s.latency = min(s.latency, max(p.Read.LatencyUs, p.Write.LatencyUs))
		s.mops = max(s.mops, min(p.Read.Mops, p.Write.Mops))
	}
	return s
}

// state says how much is measured, and how it is searched.
func (s *summary) state() string {
	f, err := s.Surface()
	switch {
	case err != nil:
		return fmt.Sprintf("%d %% measured", 100*len(s.Points)/s.Size())
	case f.Monotone():
		return "figure 10"
	}
	return "exact"
}

// leaves returns the number of configurations of a search.
func (s *summary) leaves() string {
	f, err := s.Surface()
	if err != nil {
		return "-"
	}
	return strconv.FormatInt(f.Space().Leaves(), 10)
}

// WriteSummary prints a line for each measurement of a model.
func WriteSummary(out io.Writer, m *model.Model) error {
	var rows []summary
	for _, n := range m.Measurements {
		rows = append(rows, summarize(n))
	}
	number := func(name string, value func(*summary) int) bench.Column[summary] {
		return bench.Column[summary]{Name: name, Text: func(s *summary) string { return strconv.Itoa(value(s)) }}
	}
	return bench.WriteTable(out, []bench.Column[summary]{
		{Name: "record", Text: func(s *summary) string { return units.Size(s.RecordSize).String() }},
		number("distance", func(s *summary) int { return s.Distance }),
		{Name: "network", Text: func(s *summary) string { return s.Network }},
		number("cores", func(s *summary) int { return s.ClientCores }),
		number("depth", func(s *summary) int { return s.QueueDepth }),
		number("opt", func(s *summary) int { return s.Opt }),
		number("measured", func(s *summary) int { return s.measured }),
		number("skipped", func(s *summary) int { return s.skipped }),
		{Name: "configurations", Text: (*summary).leaves},
		{Name: "least us", Text: func(s *summary) string { return fmt.Sprintf("%.3g", s.latency) }},
		{Name: "most Mop/s", Text: func(s *summary) string { return fmt.Sprintf("%.3g", s.mops) }},
		{Name: "search", Text: (*summary).state},
	}, rows)
}

// WritePoints prints the points of each configuration.
func WritePoints(out io.Writer, m *model.Model) error {
	type row struct {
		*model.Measurement
		model.Point
	}
	var rows []row
	for _, n := range m.Measurements {
		for _, p := range n.Points {
			rows = append(rows, row{n, p})
		}
	}
	figure := func(name string, value func(*row) float64) bench.Column[row] {
		return bench.Column[row]{Name: name, Text: func(r *row) string {
			if r.Skipped {
				return "-"
			}
			return fmt.Sprintf("%.4g", value(r))
		}}
	}
	fmt.Fprintln(out)
	return bench.WriteTable(out, []bench.Column[row]{
		{Name: "record", Text: func(r *row) string { return units.Size(r.RecordSize).String() }},
		{Name: "distance", Text: func(r *row) string { return strconv.Itoa(r.Distance) }},
		{Name: "c,s,b,q", Text: func(r *row) string { return r.String() }},
		figure("read us", func(r *row) float64 { return r.Read.LatencyUs }),
		figure("read Mop/s", func(r *row) float64 { return r.Read.Mops }),
		figure("write us", func(r *row) float64 { return r.Write.LatencyUs }),
		figure("write Mop/s", func(r *row) float64 { return r.Write.Mops }),
	}, rows)
}
