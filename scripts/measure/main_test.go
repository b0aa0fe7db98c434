package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tables of the documents, and the pictures, are those of the rows that are kept.
func TestDocumentsAreRendered(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := rendered(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{document, "README.md", "docs/compare.svg"} {
		if files[name] == nil {
			t.Errorf("%s is not rendered", name)
		}
	}
	for name, want := range files {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%s differs from the rows in %s, %v: go run ./scripts/measure render", name, folder, err)
		}
	}
}

// Every part that a command measures has a statistic, and so has every record of one; each
// record has a part.
func TestPartsSayTheirStatistic(t *testing.T) {
	records, err := filepath.Glob(filepath.Join("..", "..", folder, "*.json"))
	if err != nil || len(records) == 0 {
		t.Fatal(records, err)
	}
	for _, p := range parts {
		if p.from == "" && (p.statistic == "" || p.commands == nil) {
			t.Errorf("part %s does not say what its figures are", p.name)
		}
		if p.from != "" && !slices.ContainsFunc(parts, func(o part) bool { return o.name == p.from && o.from == "" }) {
			t.Errorf("part %s shows %s", p.name, p.from)
		}
	}
	for _, file := range records {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			t.Errorf("%s has no part", file)
			continue
		}
		text, err := os.ReadFile(file)
		var m measured
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || m.Statistic == "" || m.Date == "" || m.Revision == "" || m.Machine == "" || len(m.Commands) == 0 {
			t.Errorf("%s: %v, lacks something beside its rows", file, err)
		}
	}
}

func tableOf(t *testing.T, p part, record string) string {
	t.Helper()
	var m measured
	if err := json.Unmarshal([]byte(record), &m); err != nil {
		t.Fatal(err)
	}
	table, err := p.table(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(table)
}

func TestTable(t *testing.T) {
	p := part{
		commands: []string{"x"}, columns: []string{"op", "mops=Mop/s", "redis.ops=redis", "mops/limit=of_limit", "few", "holds", "none"}, skip: "op=raw",
		sentence: "From {least share} to {most share}; {count op=a|b} of them.",
	}
	got := tableOf(t, p, `{"machine":"M","date":"2026-01-02","revision":"abc","commands":["redykv x"],"statistic":"medians",
		"rows":[{"op":"raw","share":9},{"op":"a|b","mops":1.23456,"limit":2,"few":1e-6,"redis":{"ops":123456.7},"holds":true,"share":0.844},{"share":0},{"share":0.9632}]}`)
	want := "`redykv x`; M; 2026-01-02, revision abc. Figures: medians.\n\n| op | Mop/s | redis | of limit | few | holds | none |\n|---|---|---|---|---|---|---|\n| a\\|b | 1.23 | 123457 | 0.62 | <0.001 | yes |  |\n" +
		strings.Repeat("|  |  |  |  |  |  |  |\n", 2) + "\nFrom 0.84 to 0.96; 1 of them.\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// The stamp of a comparison has the memory limit and what enforces it, and a store that was
// killed before it was measured has no figures, nor has the disk latencies.
func TestTableOfAComparison(t *testing.T) {
	got := tableOf(t, part{commands: []string{"x"}, columns: []string{"device", "threads", "mops", "p99_us", "killed"}}, `{"machine":"M","date":"D","revision":"R","commands":["c"],"rows":[
		{"device":"ssd","threads":1,"mops":2,"p99_us":7,"rounds":5,"memory_limit_bytes":281133394,"memory_limit":"control groups, version 1"},
		{"device":"pebble","threads":1,"mops":0.5,"rounds":1,"memory_limit_bytes":281133394,"memory_limit":"control groups, version 1","killed":"after 1 round"},
		{"device":"pebble","threads":2,"mops":0,"memory_limit_bytes":281133394,"memory_limit":"control groups, version 1","killed":"after 0 rounds"},
		{"device":"memory","threads":1,"mops":3,"memory_limit_bytes":0,"memory_limit":"none: a reason"},
		{"device":"disk","threads":1,"mops":1,"p99_us":0,"memory_limit_bytes":0}]}`)
	want := "`c`; M; D, revision R. Memory limit of a store's process, with the page cache that it fills: 268.11MiB (control groups, version 1); none: a reason.\n\n" +
		"| device | threads | mops | p99 us | killed |\n|---|---|---|---|---|\n| ssd | 1 | 2 | 7 |  |\n| pebble | 1 | 0.5 |  | after 1 round |\n| pebble | 2 |  |  | after 0 rounds |\n| memory | 1 | 3 |  |  |\n| disk | 1 | 1 |  |  |\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// A table of aims has the greatest value of each catalog, and says which miss.
func TestTableOfAims(t *testing.T) {
	aims := []aim{
		{what: "time", aim: "2 s", where: "told", field: "s", name: " s", misses: above(2)},
		{what: "with caches", aim: "", where: "beats 20", field: "s"},
		{what: "in all", aim: "2 KiB", field: "a+b", unit: 1024, name: " KiB", misses: above(2)},
	}
	got := tableOf(t, part{from: "x", aims: aims}, `{"machine":"M","date":"D","revision":"R","commands":["c"],"rows":[
		{"catalog":"one","phase":"told","s":1,"a":1024,"b":2048},{"catalog":"one","phase":"told","s":3},
		{"catalog":"two","phase":"told","s":2,"b":512},{"catalog":"two","phase":"beats","caches":20,"s":0.25},{"catalog":"two","phase":"beats","caches":0,"s":7}]}`)
	want := "`c`; M; D, revision R.\n\n| what | aim | one | two |\n|---|---|---|---|\n| time | 2 s | **3 s** | 2 s |\n| with caches |  |  | 0.25 |\n| in all | 2 KiB | **3 KiB** | 0.5 KiB |\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	for _, tc := range []struct {
		catalog string
		v       float64
		want    bool
	}{{"etcd", 99, true}, {"etcd + 5ms", 100, false}, {"pebble", 299, true}, {"pebble", 300, false}} {
		if got := managerAims[3].misses(tc.catalog, tc.v); got != tc.want {
			t.Errorf("%v allocations a second on %s miss the aim: %v", tc.v, tc.catalog, got)
		}
	}
}
