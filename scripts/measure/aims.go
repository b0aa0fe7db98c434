package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// aim is a line of a table that compares catalogs: the greatest value of a field in the rows of
// one of them, beside what it should be.
type aim struct {
	what, aim string
	where     string  // PHASE, or PHASE CACHES; empty: all rows
	field     string  // or A+B
	unit      float64 // of the field, in those of the table; 0: 1
	name      string  // of the unit
	// misses says whether a value misses the aim; nil: there is none.
	misses func(catalog string, v float64) bool
}

func above(limit float64) func(string, float64) bool {
	return func(_ string, v float64) bool { return v > limit }
}

// managerAims are those of a manager with thousands of servers.
var managerAims = []aim{
	{what: "processors for 20,000 beats a second", aim: "0.5", where: "beats 20000", field: "cpu", misses: above(0.5)},
	{what: "the same for 10,000", where: "beats 0", field: "cpu"},
	{what: "a beat's answer, 99.9th percentile, nothing else", aim: "100 ms", where: "beats 20000", field: "beat_p999_ms", name: " ms", misses: above(100)},
	{what: "allocations a second, 64 callers without a pause, up to 10,000 caches", aim: "300 on Pebble, 100 on etcd", where: "allocate", field: "allocations_per_s",
		misses: func(catalog string, v float64) bool {
			return v < 100 || v < 300 && !strings.HasPrefix(catalog, "etcd")
		}},
	{what: "their 99th percentile", aim: "100 ms", where: "allocate", field: "allocate_p99_ms", name: " ms", misses: above(100)},
	{what: "the same at 400 a second, up to 20,000 caches", aim: "100 ms", where: "paced", field: "allocate_p99_ms", name: " ms", misses: above(100)},
	{what: "the same without a pause, with 20,000 caches and as many deallocations", aim: "100 ms", where: "churn", field: "allocate_p99_ms", name: " ms", misses: above(100)},
	{what: "refused while there is room, or failed", aim: "0", field: "refused+failed", misses: above(0)},
	{what: "a rack of 500 VMs is reclaimed without notice: all its caches told", aim: "2 s", where: "rack", field: "told_s", name: " s", misses: above(2)},
	{what: "restart with 20,000 caches", aim: "3 s", where: "restart", field: "restart_s", name: " s", misses: above(3)},
	{what: "takeover by another manager (etcd, `?lease=5s`)", aim: "6 s", where: "takeover", field: "takeover_s", name: " s", misses: above(6)},
	{what: "memory", aim: "1 GiB", field: "rss_bytes", unit: 1 << 30, name: " GiB", misses: above(1)},
}

// writeAims writes a line for each aim, with a column for each catalog. Values that miss their
// aim are bold.
func writeAims(b *bytes.Buffer, aims []aim, rows []row) {
	var catalogs []string
	for _, r := range rows {
		if name := fmt.Sprint(r["catalog"]); !slices.Contains(catalogs, name) {
			catalogs = append(catalogs, name)
		}
	}
	writeHead(b, append([]string{"what", "aim"}, catalogs...))
	for _, a := range aims {
		fmt.Fprintf(b, "| %s | %s ", a.what, a.aim)
		for _, catalog := range catalogs {
			fmt.Fprintf(b, "| %s ", a.cell(catalog, rows))
		}
		b.WriteString("|\n")
	}
}

// cell returns the value of a catalog; empty if nothing was measured.
func (a aim) cell(catalog string, rows []row) string {
	most := math.Inf(-1)
	for _, r := range rows {
		if r["catalog"] != catalog || a.where != "" && a.where != r["phase"] && a.where != fmt.Sprintf("%v %v", r["phase"], r["caches"]) {
			continue
		}
		sum := 0.0
		for field := range strings.SplitSeq(a.field, "+") {
			n, _ := r[field].(float64)
			sum += n
		}
		most = max(most, sum)
	}
	if math.IsInf(most, -1) {
		return ""
	}
	if a.unit != 0 {
		most /= a.unit
	}
	text := number(most) + a.name
	if a.misses != nil && a.misses(catalog, most) {
		return "**" + text + "**"
	}
	return text
}
