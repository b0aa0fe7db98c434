package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// build completes a measurement with the figures of f.
func build(t interface{ Fatal(...any) }, m *Measurement, f func(Config) Performance) {
	for {
		at, ok := m.Next()
		if !ok {
			return
		}
		p := f(at)
		if err := m.Report(at, p, p); err != nil {
			t.Fatal(err)
		}
	}
}

// rising improves with every parameter.
func rising(c Config) Performance {
	mops := float64(c.C) * float64(1+c.S) * float64(c.B) * float64(c.Q)
	return Performance{LatencyUs: float64(c.C * c.B * c.Q), Mops: mops}
}

func newMeasurement(c, recordSize, q int) *Measurement {
	return &Measurement{RecordSize: recordSize, Distance: 1, Network: NoNetwork, ClientCores: c, QueueDepth: q}
}

// The scripts show which configurations are measured, in which order, and which are
// skipped.
//
//	measure c= record= q= [client=] [server=] [threads=]   throughput rises with the
//	    product of c, b and q up to client, and up to server for each server thread
func TestMeasurementScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/measure", func(t *testing.T, d *datadriven.TestData) string {
		var c, record, q int
		client, server := 1<<20, 1<<20
		d.ScanArgs(t, "c", &c)
		d.ScanArgs(t, "record", &record)
		d.ScanArgs(t, "q", &q)
		d.MaybeScanArgs(t, "client", &client)
		d.MaybeScanArgs(t, "server", &server)
		m := newMeasurement(c, record, q)
		d.MaybeScanArgs(t, "threads", &m.Threads)
		build(t, m, func(c Config) Performance {
			most := client
			if c.S > 0 {
				most = min(most, c.S*server)
			}
			flight := c.C * c.B * c.Q
			mops := float64(min(most, flight)) / 4
			return Performance{LatencyUs: float64(flight) / mops, Mops: mops}
		})
		var out strings.Builder
		skipped := 0
		for _, p := range m.Points {
			if p.Skipped {
				skipped++
			}
		}
		fmt.Fprintf(&out, "%d measured, %d skipped, opt %d\n", len(m.Points)-skipped, skipped, m.Opt)
		for line := range slices.Chunk(m.Points, len(axis(q))) {
			for i, p := range line {
				what := p.String()
				if p.Skipped {
					what = strings.Repeat("-", len(what))
				}
				if i > 0 {
					what = " " + what
				}
				out.WriteString(what)
			}
			out.WriteString("\n")
		}
		return out.String()
	})
}

// Q25, Q26: fewer than two thousand measurements suffice for three million configurations,
// even if none is skipped.
func TestSizeOfThePapersModel(t *testing.T) {
	m := newMeasurement(30, 8, 16)
	if n := m.Size(); n != 975 { // 1080 with the configurations of b = 1 that have server threads (A16)
		t.Errorf("%d configurations, want 975", n)
	}
	build(t, m, rising)
	if i := slices.IndexFunc(m.Points, func(p Point) bool { return p.Skipped }); i >= 0 {
		t.Errorf("%v is skipped though everything gains", m.Points[i])
	}
	if !m.Complete() {
		t.Error("not complete")
	}
}

// R48, A18: opt is the last queue depth that improves both figures by 2 %.
func TestOpt(t *testing.T) {
	for _, tc := range []struct {
		latency, mops []float64 // at queue depths 1, 2, 4, 8, 16
		want          int
	}{
		{[]float64{12, 9, 7.1, 7.5, 9}, []float64{.22, .4, .74, .9, 1}, 4}, // the paper's figures 7 and 8
		{[]float64{5, 6, 7, 8, 9}, []float64{1, 2, 3, 4, 5}, 1},            // latency only worsens
		{[]float64{5, 4, 3, 2, 1}, []float64{1, 2, 3, 4, 5}, 16},
		{[]float64{5, 4.95, 3, 2, 1}, []float64{1, 2, 3, 4, 5}, 1}, // by 1 %: noise
		{[]float64{5, 4, 3, 2, 1}, []float64{1, 2, 2.01, 4, 5}, 2},
	} {
		m := newMeasurement(1, 4096, 16)
		i := 0
		build(t, m, func(Config) Performance {
			i++
			return Performance{tc.latency[i-1], tc.mops[i-1]}
		})
		if m.Opt != tc.want {
			t.Errorf("latencies %v, throughputs %v: opt %d, want %d", tc.latency, tc.mops, m.Opt, tc.want)
		}
	}
}

// A measurement that is encoded and decoded at any point continues from there, and ends
// with the same surface.
func TestResume(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		c, record, q := rapid.IntRange(1, 9).Draw(t, "c"), rapid.SampledFrom([]int{100, 700, 5000}).Draw(t, "record"), rapid.IntRange(1, 16).Draw(t, "q")
		limit := float64(rapid.IntRange(1, 200).Draw(t, "limit"))
		f := func(c Config) Performance {
			p := rising(c)
			p.Mops = min(p.Mops, limit)
			return p
		}
		whole := newMeasurement(c, record, q)
		build(t, whole, f)
		stop := rapid.IntRange(0, len(whole.Points)).Draw(t, "stop")
		m := New(Provenance{Transport: "shm"})
		part, err := m.Add(newMeasurement(c, record, q))
		if err != nil {
			t.Fatal(err)
		}
		for range stop {
			if at, ok := part.Next(); ok {
				if err := part.Report(at, f(at), f(at)); err != nil {
					t.Fatal(err)
				}
			}
		}
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		again, err := read.Add(newMeasurement(c, record, q))
		if err != nil {
			t.Fatal(err)
		}
		build(t, again, f)
		if !slices.Equal(again.Points, whole.Points) || again.Opt != whole.Opt {
			t.Fatalf("resumed: %+v, at once: %+v", again, whole)
		}
	})
}

func TestReportRefuses(t *testing.T) {
	m := newMeasurement(1, 8, 4)
	if err := m.Report(Config{1, 0, 1, 2}, Performance{1, 1}, Performance{1, 1}); err == nil {
		t.Error("the report of a configuration that was not to be measured is taken")
	}
	if err := m.Report(Config{1, 0, 1, 1}, Performance{1, 1}, Performance{}); err == nil {
		t.Error("the report of no performance is taken")
	}
	if _, err := m.Surface(); err == nil {
		t.Error("a measurement that has not begun has a surface")
	}
}
