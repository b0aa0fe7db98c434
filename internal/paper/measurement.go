package paper

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/redykv/redykv/internal/bench"
)

// Measurement is one point of a trial in one round. Its JSON form is one line of the file of
// measurements.
type Measurement struct {
	Trial  string  `json:"trial"`
	Turn   string  `json:"turn"`   // turn of the trial, which measures what is compared
	Series string  `json:"series"` // device, configuration, ...
	X      float64 `json:"x"`      // value of the trial's variable; for bars, the index of the group
	Label  string  `json:"label,omitempty"`
	Round  int     `json:"round"` // from 1
	// Values by metric. A metric's name ends in its unit, as p50_us; mops are 10^6 per second;
	// shares have no unit.
	Values map[string]float64 `json:"values"`
	// Points is a course over time: seconds, and values in the unit of the chart's axis.
	Points [][2]float64 `json:"points,omitempty"`

	Transport string `json:"transport,omitempty"`
	Net       string `json:"net,omitempty"`
	Setting   string `json:"setting,omitempty"` // sizes and counts, in words
	// Note describes an event that readers of the figures must know of.
	Note string `json:"note,omitempty"`
}

// point is where a measurement belongs.
type point struct {
	trial, series string
	x             float64
}

func (m *Measurement) point() point { return point{m.Trial, m.Series, m.X} }

// key identifies a measurement. A later measurement with the same key replaces the earlier.
type key struct {
	point
	round int
}

func (m *Measurement) key() key { return key{m.point(), m.Round} }

// Journal is the file to which measurements are appended, one turn at a time.
type Journal struct {
	path string
	all  []Measurement // without replaced measurements
}

// OpenJournal reads the measurements in a file, which need not exist. An incomplete last line,
// which an interruption leaves, is cut off. Any other malformed line is an error.
func OpenJournal(path string) (*Journal, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("measurements: %w", err)
	}
	whole := wholeLines(text)
	if len(whole) < len(text) {
		if err := os.Truncate(path, int64(len(whole))); err != nil {
			return nil, fmt.Errorf("measurements: %w", err)
		}
	}
	all, err := ReadMeasurements(bytes.NewReader(whole))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Journal{path: path, all: all}, nil
}

// wholeLines returns text without an incomplete last line.
func wholeLines(text []byte) []byte { return text[:bytes.LastIndexByte(text, '\n')+1] }

// ReadMeasurements reads measurements, one per line.
func ReadMeasurements(r io.Reader) ([]Measurement, error) {
	var all []Measurement
	at := make(map[key]int)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var m Measurement
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("line %d is no measurement: %w", n, err)
		}
		if m.Trial == "" || m.Series == "" || m.Round < 1 {
			return nil, fmt.Errorf("line %d is no measurement: it lacks a trial, a series or a round", n)
		}
		if i, known := at[m.key()]; known {
			all[i] = m
			continue
		}
		at[m.key()] = len(all)
		all = append(all, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("measurements: %w", err)
	}
	return all, nil
}

// Append adds the measurements of a turn to the file.
func (j *Journal) Append(some []Measurement) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for i := range some {
		if err := encoder.Encode(&some[i]); err != nil {
			return fmt.Errorf("measurements of %s: %w", some[i].Series, err)
		}
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("measurements: %w", err)
	}
	_, err = f.Write(text.Bytes())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("measurements: %w", err)
	}
	for _, m := range some {
		j.all = slices.DeleteFunc(j.all, func(old Measurement) bool { return old.key() == m.key() })
		j.all = append(j.all, m)
	}
	return nil
}

// Drop removes all measurements of a trial, also from the file.
func (j *Journal) Drop(trial string) error {
	left := slices.DeleteFunc(slices.Clone(j.all), func(m Measurement) bool { return m.Trial == trial })
	if len(left) == len(j.all) {
		return nil
	}
	if err := writeFile(j.path, func(w io.Writer) error { return bench.WriteJSON(w, left) }); err != nil {
		return fmt.Errorf("measurements: %w", err)
	}
	j.all = left
	return nil
}

// All returns the measurements in the order in which they were taken.
func (j *Journal) All() []Measurement { return slices.Clone(j.all) }

// has reports whether a turn of a trial is complete: every one of series was measured.
func (j *Journal) has(trial, turn string, series []string) bool {
	for _, s := range series {
		if !slices.ContainsFunc(j.all, func(m Measurement) bool {
			return m.Trial == trial && m.Turn == turn && m.Series == s
		}) {
			return false
		}
	}
	return true
}

// WriteCSV writes a line per measurement and a column per metric. Courses over time are in the
// JSON lines only.
func WriteCSV(w io.Writer, all []Measurement) error {
	metrics := make(map[string]bool)
	for _, m := range all {
		for name := range m.Values {
			metrics[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(metrics))
	out := csv.NewWriter(w)
	head := []string{"trial", "turn", "series", "x", "label", "round", "transport", "net", "setting", "note"}
	rows := [][]string{append(head, names...)}
	for _, m := range all {
		row := []string{m.Trial, m.Turn, m.Series, number(m.X), m.Label, strconv.Itoa(m.Round), m.Transport, m.Net, m.Setting, m.Note}
		for _, name := range names {
			text := ""
			if v, ok := m.Values[name]; ok {
				text = number(v)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("CSV: %w", err)
	}
	return nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Data indexes measurements.
type Data struct {
	all    []Measurement
	points map[point][]Measurement
}

// NewData indexes measurements.
func NewData(all []Measurement) *Data {
	d := &Data{all: all, points: make(map[point][]Measurement)}
	for _, m := range all {
		d.points[m.point()] = append(d.points[m.point()], m)
	}
	for _, some := range d.points {
		slices.SortFunc(some, func(a, b Measurement) int { return cmp.Compare(a.Round, b.Round) })
	}
	return d
}

// All returns all measurements, in the order in which they were taken.
func (d *Data) All() []Measurement { return slices.Clone(d.all) }

// Trial returns the measurements of one trial, in the order in which they were taken.
func (d *Data) Trial(name string) []Measurement {
	var some []Measurement
	for _, m := range d.all {
		if m.Trial == name {
			some = append(some, m)
		}
	}
	return some
}

// Series returns the series of a trial, in the order in which they were first measured.
func (d *Data) Series(trial string) []string {
	var names []string
	for _, m := range d.all {
		if m.Trial == trial && !slices.Contains(names, m.Series) {
			names = append(names, m.Series)
		}
	}
	return names
}

// Xs returns the X values at which a series was measured, ascending.
func (d *Data) Xs(trial, series string) []float64 {
	var xs []float64
	for p := range d.points {
		if p.trial == trial && p.series == series {
			xs = append(xs, p.x)
		}
	}
	slices.Sort(xs)
	return xs
}

// At returns the rounds of one point.
func (d *Data) At(trial, series string, x float64) []Measurement {
	return d.points[point{trial, series, x}]
}
