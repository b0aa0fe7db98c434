package cache

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
)

func refillSpec(t *testing.T) RefillSpec {
	return RefillSpec{
		Transport: "mem", Net: "none", Dir: t.TempDir(), Capacity: MinRefill, Size: 64, Threads: 2, Depth: 4, Rounds: 1, Turns: 1, Lasts: leastLoad,
	}
}

// A cache is copied to, refilled, created and read beside a refill.
func TestRefill(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the page cache is emptied by a system call of Linux")
	}
	spec := refillSpec(t)
	r, err := RunRefill(t.Context(), embed(t), spec, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if r.Transport != "mem" || r.Capacity != spec.Capacity || r.Rounds != 1 || r.CopyBytesPerSecond <= 0 || r.RefillOfCopy <= 0 || r.PopulateOfCopy <= 0 {
		t.Errorf("%+v", r)
	}
	for _, b := range []BesideRefill{r.Redy, r.SSD} {
		if b.AloneMops <= 0 || b.BesideMops <= 0 || b.Share <= 0 || b.RefillBytesPerSecond < 0 {
			t.Errorf("%+v", b)
		}
	}
}

func TestMedianRefill(t *testing.T) {
	rounds := make([]RefillRow, 3)
	for i, rate := range []float64{4, 2, 3} {
		rounds[i] = RefillRow{Capacity: 100, CopyBytesPerSecond: rate, PopulateOfCopy: 1 / rate, SSD: BesideRefill{Share: -rate}}
	}
	r := medianRefill(rounds)
	if r.Capacity != 100 || r.Rounds != 3 || r.CopyBytesPerSecond != 3 || r.PopulateOfCopy != 1./3 || r.SSD.Share != -3 {
		t.Errorf("%+v", r)
	}
}

func TestRefillSpecs(t *testing.T) {
	for name, change := range map[string]func(*RefillSpec){
		"capacity of 16777217": func(s *RefillSpec) { s.Capacity++ },
		"capacity of 4096":     func(s *RefillSpec) { s.Capacity = 4096 },
		"size of 0":            func(s *RefillSpec) { s.Size = 0 },
		"0 threads":            func(s *RefillSpec) { s.Threads = 0 },
		"0 pending reads":      func(s *RefillSpec) { s.Depth = 0 },
		"0 rounds":             func(s *RefillSpec) { s.Rounds = 0 },
		"0 turns":              func(s *RefillSpec) { s.Turns = 0 },
		"the files need":       func(s *RefillSpec) { s.Capacity = 1 << 60 },
		"turns of 1ns":         func(s *RefillSpec) { s.Lasts = 1 },
	} {
		spec := refillSpec(t)
		change(&spec)
		if _, err := RunRefill(t.Context(), nil, spec, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}
