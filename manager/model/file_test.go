package model

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample returns a model with one complete measurement.
func sample(t testing.TB) *Model {
	m := New(Provenance{
		Transport: "shm", Network: NoNetwork, Host: Host{CPU: `a "CPU"`, Cores: 2, Kernel: "6.1"},
		Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Revision: "abc", Apart: true,
	})
	n, err := m.Add(newMeasurement(1, 2048, 2))
	if err != nil {
		t.Fatal(err)
	}
	build(t, n, rising)
	return m
}

func TestSaveAndLoad(t *testing.T) {
	m := sample(t)
	path := filepath.Join(t.TempDir(), "m.json")
	for range 2 { // the second replaces the first
		if err := m.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Provenance != m.Provenance {
		t.Errorf("measured by %v, came back as %v", m.Provenance, got.Provenance)
	}
	want, _ := m.Encode()
	if again, _ := got.Encode(); !bytes.Equal(again, want) {
		t.Errorf("%s came back as %s", want, again)
	}
	if lines := bytes.Count(want, []byte("\n")); lines != 4+len(m.Measurements[0].Points) {
		t.Errorf("%d lines for %d points:\n%s", lines, len(m.Measurements[0].Points), want)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := m.Save(filepath.Join(path, "below a file")); err == nil {
		t.Error("a file is saved below a file")
	}
}

// Load refuses files that this program did not write, and reports the place of the error.
func TestLoadRefuses(t *testing.T) {
	good, err := sample(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{`"format":1`, `"format":2`, "format 2"},
		{`"transport":"shm"`, `"transport":""`, "no transport"},
		{`"transport":"shm"`, `"transport":"` + strings.Repeat("x", 300) + `"`, "at most 256 bytes"},
		{`"record_size":2048`, `"record_size":0`, "record_size 0"},
		{`"record_size":2048`, `"record_size":1024`, "point 6 is 1,1,2,1"}, // which has other points
		{`"client_cores":1`, `"client_cores":1000000000`, "client_cores 1000000000"},
		{`"queue_depth":2`, `"queue_depth":-1`, "queue_depth -1"},
		{`"distance":1`, `"distance":65`, "distance 65"},
		{`"network":"none","client`, `"network":"","client`, "network"},
		{`"opt":1`, `"opt":2`, "opt 2: the points give 1"},
		{`"latency_us":1,`, `"latency_us":0,`, "latency 0 us"},
		{`"mops":1}`, `"mops":-1}`, "-1 Mop/s"},
		{`{"c":1,"s":0,"b":1,"q":1,`, `{"c":1,"s":0,"b":1,"q":1,"skipped":true,`, "is skipped and has figures"},
		{`"q":2`, `"q":1`, "want 1,0,1,2"},
		{`"mops":1}`, `"mops":1,"p99":3}`, "unknown field"},
		{`"measurements":[`, `"measurements":[null,`, "measurement 0 is null"},
		{"]}\n", "]}\n{}", "text after the model"},
		{"]}\n", "", "EOF"},
	} {
		bad := bytes.Replace(good, []byte(tc.old), []byte(tc.new), 1)
		if bytes.Equal(bad, good) {
			t.Errorf("%s is not in %s", tc.old, good)
			continue
		}
		if tc.new == `"record_size":1024` { // leaves the points unchanged, which then need another batch size
			if _, err := Parse(bad); err != nil {
				t.Errorf("an incomplete measurement: %v", err)
			}
			continue
		}
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s instead of %s: %v, want %q", tc.new, tc.old, err, tc.want)
		}
	}
	twice := sample(t)
	twice.Measurements = append(twice.Measurements, twice.Measurements[0])
	if err := twice.Check(); err == nil || !strings.Contains(err.Error(), "measured twice") {
		t.Errorf("the same twice: %v", err)
	}
	path := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(path, good[:len(good)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: %v, want its name", err)
	}
	if _, err := Load(path + ".not"); err == nil {
		t.Error("a file that is not there is loaded")
	}
}

func TestAddRefusesOtherBounds(t *testing.T) {
	m := sample(t)
	if _, err := m.Add(newMeasurement(2, 2048, 2)); err == nil {
		t.Error("more client cores go on with what was measured with fewer")
	}
	if _, err := m.Add(newMeasurement(0, 16, 2)); err == nil {
		t.Error("no client cores are measured")
	}
}

// Any file is either refused or answers SLOs.
func FuzzParse(f *testing.F) {
	good, err := sample(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		for _, n := range m.Measurements {
			if n.Size() > 10_000 {
				return // valid, but slow to search
			}
		}
		l, err := NewLibrary(m)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Search(Query{SLO: SLO{Mops: 1}, RecordSize: 8, Transport: m.Provenance.Transport, Network: func(int) string { return NoNetwork }})
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("%s is written as %s: %v", data, again, err)
		}
	})
}
