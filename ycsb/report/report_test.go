package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ycsb"
)

var testHead = Head{
	Machine: "test machine", Dir: "/data", Started: time.Unix(0, 0).UTC(), Took: 30 * time.Second,
	Shape: ycsb.Shape{
		Records: 10_000_000, ValueSize: 8, Memory: 40 << 20, Cache: 320 << 20, Net: "rdma", Depth: 128,
	},
	Duration: 3 * time.Second, Warmup: time.Second,
}

func testResults() []ycsb.Result {
	base := ycsb.Result{
		Records: 10_000_000, ValueSize: 8, MemoryBytes: 40 << 20, Depth: 128, Seconds: 3,
		LogBytes: 240_003_632, LogBytesExpected: 240_000_000, IndexBytes: 142 << 20,
		HeapBytesBefore: 30 << 20, HeapBytesAfter: 31 << 20, DirectIO: true,
		Distribution: ycsb.Uniform, Threads: 1,
	}
	redy, ssd := base, base
	redy.Experiment, redy.Device = "redy/uniform/1", ycsb.Redy
	redy.CacheBytes, redy.Transport, redy.Net = 320<<20, "shm", "2.9us,100Gbit"
	redy.Ops, redy.Mops, redy.P50Micros, redy.P99Micros = 6_000_000, 2, 61.234, 104.5
	redy.HitMemory, redy.HitRedy, redy.HitSSD, redy.RatioToSSD = 0.167, 0.5, 0.333, 20
	redy.Note = "redy lost after 3.1 s (<peer> disconnected); reads went on from the ssd"
	ssd.Experiment, ssd.Device = "ssd/uniform/1", ycsb.SSD
	ssd.Ops, ssd.Mops, ssd.P50Micros, ssd.P99Micros = 300_000, 0.1, 1400, 2890
	ssd.HitMemory, ssd.HitSSD, ssd.RatioToSSD = 0.167, 0.833, 1
	return []ycsb.Result{redy, ssd}
}

// TestWriteTableWithOtherStores checks that the log and the index are those of redykv's
// stores, in any order of devices.
func TestWriteTableWithOtherStores(t *testing.T) {
	var b bytes.Buffer
	other := ycsb.Result{Experiment: "pebble/uniform/1", Device: "pebble", Distribution: ycsb.Uniform, Threads: 1}
	if err := WriteTable(&b, testHead, append(testResults(), other)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"log: 240003632 bytes, by arithmetic", "index: 142MiB beside"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := WriteTable(&b, testHead, []ycsb.Result{other}); err != nil || strings.Contains(b.String(), "index:") || !strings.Contains(b.String(), "Go heap:") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	results := testResults()
	results[1].Errors, results[1].FirstError = 3, "record 7: gone"
	if err := WriteTable(&b, testHead, results); err != nil {
		t.Fatal(err)
	}
	const want = `machine: test machine
records: 10000000 of 8 + 8 bytes, read only, 128 pending per thread
scale: local memory 40MiB, log 228.88MiB, Redy cache 320MiB (1 : 5.72 : 8)
runs: 3s each after 1s of warm-up, devices in turn; 30s in all, loading included
figures: of the round with the median throughput, of 1; ratios are the median of the rounds' ratios; each run draws records of its own
redy: transport shm, network 2.9us,100Gbit
files: /data, direct I/O
log: 240003632 bytes, by arithmetic 240000000 (24 a record)
index: 142MiB beside the memory above
Go heap: 30MiB before loading, 31MiB at most after a run

  device  distribution  threads   Mops  p50 us  p99 us  vs ssd  memory   redy    ssd
    redy       uniform        1   2.00    61.2     104  20.00x   16.7%  50.0%  33.3%
     ssd       uniform        1  0.100    1400    2890   1.00x   16.7%   0.0%  83.3%

redy/uniform/1: redy lost after 3.1 s (<peer> disconnected); reads went on from the ssd
ssd/uniform/1: 3 of 300000 operations went wrong; the first: record 7: gone
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestTableOfRounds checks the columns for the slowest and the fastest round, and the note if
// they are far apart.
func TestTableOfRounds(t *testing.T) {
	results := testResults()
	for i := range results {
		results[i].Rounds, results[i].MopsMin, results[i].MopsMax = 3, 0.9*results[i].Mops, 1.1*results[i].Mops
	}
	var calm, noisy strings.Builder
	if err := WriteTable(&calm, testHead, results); err != nil {
		t.Fatal(err)
	}
	results[0].MopsMax = 2 * results[0].Mops
	if err := WriteTable(&noisy, testHead, results); err != nil {
		t.Fatal(err)
	}
	const warning = "too far apart"
	if text := calm.String(); !strings.Contains(text, "least") || !strings.Contains(text, "most") || strings.Contains(text, warning) {
		t.Errorf("rounds close together:\n%s", text)
	}
	if text := noisy.String(); strings.Count(text, warning) != 1 || !strings.Contains(text, results[0].Experiment+": between") {
		t.Errorf("rounds far apart:\n%s", text)
	}
}

// TestTableOfReadCaches checks the line, the columns and the labels of stores with and without
// a read cache, and of peers that read with and without other reads under way.
func TestTableOfReadCaches(t *testing.T) {
	results := testResults()
	with := results[1]
	with.Experiment, with.ReadCache, with.HitCache = "ssd+0.5/uniform/1", 0.5, 0.25
	peer := ycsb.Result{Experiment: "pebble/uniform/1x1", Device: "pebble", Distribution: ycsb.Uniform, Threads: 1, Depth: 1}
	head := testHead
	head.ReadCaches = []float64{0, 0.5}
	var table, page strings.Builder
	if err := errors.Join(WriteTable(&table, head, append(results, with, peer)), WriteHTML(&page, head, append(results, with, peer))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nread cache: shares [0 0.5] of the local memory", "threads  depth  read cache ", " 1    128         0.5 ", " 1      1           - ", " 25.0%\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	for _, want := range []string{">ssd, read cache 0.5 0.100<", ">pebble, depth 1 0.000<", ">ssd 0.100<"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

// TestTableOfLimits checks the line of the memory limit, what is said of a peer's files, and
// the row and the column of the disk itself.
func TestTableOfLimits(t *testing.T) {
	results := testResults()
	results[1].OfDisk = 0.905
	peer := ycsb.Result{
		Experiment: "bbolt/uniform/1x1", Device: "bbolt", Distribution: ycsb.Uniform, Threads: 1, Depth: 1, Ops: 10, DiskBytes: 1000,
		FilesBytes: 1 << 30, Note: "bbolt v1",
	}
	disk := ycsb.Result{Experiment: "disk/1x128", Device: ycsb.DiskAlone, Distribution: ycsb.Uniform, Threads: 1, Depth: 128, Mops: 0.092, HitSSD: 1, Note: "random reads of 4KiB"}
	results = append(results, peer, disk)
	for _, tc := range []struct {
		limit int64
		what  string
		want  []string
	}{
		{0, "none: a reason", []string{
			"\nmemory limit: none: a reason; a peer's files may stay in the page cache",
			"bbolt/uniform/1x1: bbolt v1; its files take 1GiB, without a memory limit; it read 100 bytes from the disk for each record\n",
		}},
		{256 << 20, "control groups, version 2", []string{
			"\nmemory limit: 256MiB for each store's process, with the page cache that it fills (control groups, version 2)",
			"its files take 1GiB, 4.0 times its memory limit; it read 100 bytes",
			" of disk\n", " 90.5%\n", "\n    disk       uniform        1    128  0.092       -       -       - ", "\ndisk/1x128: random reads of 4KiB\n",
		}},
		{2 << 30, "control groups, version 1", []string{"less than its memory limit of 2GiB: the data are not larger than memory"}},
	} {
		for i := range results[:3] {
			results[i].MemoryLimit, results[i].Limit = tc.limit, tc.what
		}
		var b, page strings.Builder
		if err := errors.Join(WriteTable(&b, testHead, results), WriteHTML(&page, testHead, results)); err != nil {
			t.Fatal(err)
		}
		for _, want := range tc.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is not in\n%s", want, b.String())
			}
		}
		if text := page.String(); !strings.Contains(text, "90.5%") || !strings.Contains(text, "memory limit") || !strings.Contains(text, ">disk 0.092<") {
			t.Errorf("limit %d: not in the page", tc.limit)
		}
	}
}

// TestTableOfKilledStores checks the rows of a store that was killed after some rounds of an
// experiment, and before another: they say so, and have no figures that were not measured.
func TestTableOfKilledStores(t *testing.T) {
	results := testResults()
	some := ycsb.Result{
		Experiment: "pebble/uniform/1x1", Device: "pebble", Distribution: ycsb.Uniform, Threads: 1, Depth: 1, Ops: 10, Mops: 0.25, Rounds: 2,
		HitOther: 1, HeapBytesBefore: 40 << 20, Killed: "killed at its memory limit of 256MiB after 2 rounds",
	}
	none := ycsb.Result{
		Experiment: "pebble/zipfian/1x1", Device: "pebble", Distribution: ycsb.Zipfian, Threads: 1, Depth: 1,
		MemoryLimit: 256 << 20, Limit: "control groups, version 2", Killed: "killed at its memory limit of 256MiB after 0 rounds",
	}
	var table, page strings.Builder
	if err := errors.Join(WriteTable(&table, testHead, append(results, some, none)), WriteHTML(&page, testHead, append(results, some, none))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n  pebble       uniform        1      1  0.250 ", "\n  pebble       zipfian        1      1      -  ",
		"\npebble/uniform/1x1: killed at its memory limit of 256MiB after 2 rounds\n", "\npebble/zipfian/1x1: killed at its memory limit of 256MiB after 0 rounds\n",
		"\nmemory limit: 256MiB for each", "\nGo heap: 30MiB before",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	if text := page.String(); !strings.Contains(text, ">pebble, depth 1 0.250<") || strings.Contains(text, "depth 1 0.000<") {
		t.Error("the plots have a figure that was not measured")
	}
	if err := WriteTable(io.Discard, testHead, []ycsb.Result{none}); err != nil {
		t.Error(err)
	}
}

// TestTableOfRates checks that a device that did not keep up with an open loop is noted.
func TestTableOfRates(t *testing.T) {
	results := testResults()
	results[0].TargetRate, results[1].TargetRate = 2e6, 2e6
	var b strings.Builder
	if err := WriteTable(&b, testHead, results); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "ssd/uniform/1: 100000 operations a second of the 2000000 asked for") || strings.Contains(text, "redy/uniform/1: 2000000") {
		t.Errorf("one of two keeps up:\n%s", text)
	}
}

// TestFileServer checks the line and the columns of the file server.
func TestFileServer(t *testing.T) {
	results := testResults()
	server := results[1]
	server.Experiment, server.Device, server.Transport, server.Net = "smb/uniform/1", ycsb.SMB, "smb", "loopback to Samba"
	server.HitSSD, server.HitSMB, server.RatioToSSD, server.RatioToSMB = 0, 0.833, 0.5, 1
	results[0].RatioToSMB = 40
	var b bytes.Buffer
	if err := WriteTable(&b, testHead, append(results, server)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nsmb: loopback to Samba\n",
		"ssd    smb  vs smb\n",
		"33.3%   0.0%  40.00x\n",
		"83.3%   0.0%       -\n",
		"0.50x   16.7%   0.0%   0.0%  83.3%   1.00x\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// TestWriteJSON checks the names in JSON, which other programs read.
func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, testResults()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines for 2 results", len(lines))
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"cache_bytes", "depth", "device", "direct_io", "distribution", "errors", "experiment",
		"heap_bytes_after", "heap_bytes_before", "hit_memory", "hit_redy", "hit_ssd", "index_bytes",
		"log_bytes", "log_bytes_expected", "max_us", "memory_bytes", "memory_limit_bytes", "mix", "mops", "net", "note", "ops", "p50_us", "p95_us", "p999_us", "p99_us",
		"ratio_to_ssd", "read_cache", "records", "seconds", "seed", "threads", "transport", "value_size",
	}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("fields %v\nwant   %v", got, want)
	}
	if first["device"] != "redy" || first["mops"] != 2.0 || first["net"] != "2.9us,100Gbit" || first["hit_ssd"] != 0.333 {
		t.Errorf("values %v", first)
	}
}

// TestWriteHTML checks that the page is HTML, has its plots, and loads nothing.
func TestWriteHTML(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, testHead, testResults()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	count := make(map[string]int)
	var open []string
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			break
		}
		token := z.Token()
		switch kind {
		case html.StartTagToken:
			count[token.Data]++
			if token.Data != "meta" {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Fatalf("</%s> closes %v", token.Data, open)
			}
			open = open[:len(open)-1]
		}
		for _, attribute := range token.Attr {
			if slices.Contains([]string{"src", "href", "srcset", "data", "action", "poster"}, attribute.Key) {
				t.Errorf("<%s> refers to %s=%q", token.Data, attribute.Key, attribute.Val)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
	if count["svg"] != 3 || count["tr"] != 3 || count["script"]+count["link"]+count["iframe"] != 0 {
		t.Errorf("elements: %v", count)
	}
	if found := regexp.MustCompile(`(?i)https?:|//\w|@import|url\(|<\?xml|xmlns`).FindString(page); found != "" {
		t.Errorf("the page contains %q", found)
	}
	for _, want := range []string{
		"prefers-color-scheme: dark", "currentColor", "million operations per second", "microseconds",
		">uniform, 1 thread<", ">redy 2.00<", ">ssd 0.100<", "&lt;peer&gt; disconnected", "2.9us,100Gbit",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "#010101") || strings.Contains(page, "Liberation") {
		t.Error("a plot has kept the colour or the font that it was drawn with")
	}
}

// TestThroughput checks that the picture is a file by itself, with a bar for each store that
// was measured.
func TestThroughput(t *testing.T) {
	killed := ycsb.Result{Device: "pebble", Distribution: ycsb.Uniform, Threads: 1, Depth: 1, Killed: "before it was measured"}
	svg := string(Throughput(append(testResults(), killed)))
	for _, want := range []string{`<svg xmlns="http://www.w3.org/2000/svg"`, ">redy 2.00<", ">ssd 0.100<", "million operations per second"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(svg, "pebble") {
		t.Error("a bar of a store that was not measured")
	}
}

func TestWriteHTMLOfZeros(t *testing.T) {
	for _, results := range [][]ycsb.Result{nil, {{Device: ycsb.SSD, Distribution: ycsb.Uniform, Threads: 1}}} {
		if err := WriteHTML(io.Discard, Head{}, results); err != nil {
			t.Errorf("%d results: %v", len(results), err)
		}
	}
}

func TestTableOfOtherDevices(t *testing.T) {
	results := testResults()
	results[0].HitOther = 0.25
	grid := bench.Grid(columns(results), results)
	heads, rows := grid[0], grid[1:]
	if at := slices.Index(heads, "other"); at < 0 || rows[0][at] != "25.0%" || rows[1][at] != "0.0%" {
		t.Errorf("heads %v, rows %v", heads, rows)
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0.000", 0.0954: "0.095", 1.234: "1.23", 12.34: "12.3", 1234.5: "1234", 99.96: "100.0"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}
