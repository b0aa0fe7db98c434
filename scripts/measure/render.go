package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
	"github.com/redykv/redykv/ycsb/report"
)

// document is where the tables of most parts are.
const document = "docs/measured.md"

func render() error {
	files, err := rendered(".")
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rendered returns the documents and the pictures of all parts that have a record, by their
// names below root.
func rendered(root string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, p := range parts {
		data, err := os.ReadFile(filepath.Join(root, folder, cmp.Or(p.from, p.name)+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		name := cmp.Or(p.document, document)
		if files[name] == nil {
			if files[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
				return nil, err
			}
		}
		if err := p.render(data, files, name); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return files, nil
}

// render puts the part's table into a document, and its picture beside.
func (p part) render(data []byte, files map[string][]byte, name string) error {
	var m measured
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	table, err := p.table(m)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(files[name], []byte("<!-- measured "+p.name+" -->\n"))
	_, after, ended := bytes.Cut(rest, []byte("<!-- end -->"))
	if !found || !ended {
		return fmt.Errorf("%s has no lines <!-- measured %s --> and <!-- end -->", name, p.name)
	}
	files[name] = slices.Concat(before, []byte("<!-- measured "+p.name+" -->\n"), table, []byte("<!-- end -->"), after)
	if p.picture != "" {
		files[p.picture], err = picture(m)
	}
	return err
}

// picture draws the throughput of a comparison.
func picture(m measured) ([]byte, error) {
	var results []ycsb.Result
	for _, line := range m.Rows {
		var r ycsb.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return report.Throughput(results), nil
}

// row is a row of a record.
type row = map[string]any

// table returns the part's table in Markdown, stamped with its origin.
func (p part) table(m measured) ([]byte, error) {
	var rows []row
	for _, line := range m.Rows {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		if field, value, found := strings.Cut(p.skip, "="); !found || r[field] != value {
			rows = append(rows, r)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n", p.stamp(m, rows))
	if p.aims != nil {
		writeAims(&b, p.aims, rows)
		return b.Bytes(), nil
	}
	var fields, heads []string
	for _, c := range p.columns {
		field, head, found := strings.Cut(c, "=")
		if !found {
			head = field
		}
		fields, heads = append(fields, field), append(heads, strings.ReplaceAll(head, "_", " "))
	}
	writeHead(&b, heads)
	for _, r := range rows {
		withoutFigures(r)
		for _, f := range fields {
			fmt.Fprintf(&b, "| %s ", cell(r, f))
		}
		b.WriteString("|\n")
	}
	if p.sentence != "" {
		fmt.Fprintf(&b, "\n%s\n", filled(p.sentence, rows))
	}
	return b.Bytes(), nil
}

func writeHead(b *bytes.Buffer, heads []string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
}

// stamp says where, when, by which revision and how the part was measured.
func (p part) stamp(m measured, rows []row) string {
	text := fmt.Sprintf("`%s`; %s; %s, revision %s.", strings.Join(m.Commands, "`, `"), m.Machine, m.Date, m.Revision)
	if m.Statistic != "" {
		text += " Figures: " + m.Statistic + "."
	}
	if limits := limits(rows); limits != "" {
		text += " Memory limit of a store's process, with the page cache that it fills: " + limits + "."
	}
	return text
}

// limits names the memory limits of a comparison's rows, with what enforces them.
func limits(rows []row) string {
	var all []string
	for _, r := range rows {
		what, _ := r["memory_limit"].(string)
		if bytes, _ := r["memory_limit_bytes"].(float64); bytes > 0 {
			what = fmt.Sprintf("%v (%s)", units.Size(bytes), what)
		}
		if what != "" && !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	return strings.Join(all, "; ")
}

// withoutFigures removes numbers that were not measured: of a store that was killed before, all
// but those that say what was to be measured, and the latencies of the disk, which fio does not
// tell.
func withoutFigures(r row) {
	killed := r["killed"] != nil && r["rounds"] == nil
	for field, value := range r {
		_, number := value.(float64)
		if killed && number && !slices.Contains([]string{"threads", "depth", "read_cache"}, field) || r["device"] == "disk" && strings.HasSuffix(field, "_us") {
			delete(r, field)
		}
	}
}

var blank = regexp.MustCompile(`\{(least|most|count) ([^}]*)\}`)

// filled returns a part's sentence with figures of the rows. Of numbers only those count that are
// not 0, which means that there is none.
func filled(sentence string, rows []row) string {
	return blank.ReplaceAllStringFunc(sentence, func(text string) string {
		words := blank.FindStringSubmatch(text)
		field, value, _ := strings.Cut(words[2], "=")
		least, most, count := math.Inf(1), math.Inf(-1), 0
		for _, r := range rows {
			if n, ok := r[field].(float64); ok && n != 0 {
				least, most = min(least, n), max(most, n)
			}
			if r[field] == value {
				count++
			}
		}
		if words[1] == "count" {
			return fmt.Sprint(count)
		}
		return fmt.Sprintf("%.2f", map[string]float64{"least": least, "most": most}[words[1]])
	})
}

// cell returns a value as the table shows it: numbers with three significant digits.
func cell(row map[string]any, field string) string {
	if a, b, quotient := strings.Cut(field, "/"); quotient {
		over, _ := row[a].(float64)
		under, _ := row[b].(float64)
		if under == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", over/under)
	}
	if outer, inner, nested := strings.Cut(field, "."); nested {
		within, _ := row[outer].(map[string]any)
		return cell(within, inner)
	}
	switch v := row[field].(type) {
	case nil:
		return ""
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case float64:
		return number(v)
	default:
		return strings.ReplaceAll(fmt.Sprint(v), "|", "\\|")
	}
}

// number returns a number with three significant digits.
func number(v float64) string {
	if 0 < v && v < 0.001 {
		return "<0.001"
	}
	if v == float64(int64(v)) || math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
