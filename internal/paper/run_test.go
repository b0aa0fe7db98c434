package paper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabricbench"
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	goleak.VerifyTestMain(m)
}

// tiny is a scale for tests: everything runs, and nothing says anything.
func tiny() Scale {
	return Scale{
		Name: "tiny", Records: 40_000, LargeRecords: 4_000, Duration: 10 * time.Millisecond, Warmup: time.Millisecond, Rounds: 2,
		Cell: bench.MinDuration, Capacity: 4 << 20, SLOs: sloTurns, PerPoint: 6 * bench.MinDuration,
		// Slow enough for a move to be seen.
		Region: 1 << 20, Load: 60 * time.Millisecond, CopyRate: 32 << 20, IdleCopyRate: 32 << 20, VMs: 3000, Servers: 20,
	}
}

// newBench makes a run in a directory, all of it in this process.
func newBench(t *testing.T, dir string) (*Workspace, *Bench) {
	t.Helper()
	w, err := OpenWorkspace(dir, Head{Scale: tiny(), Transport: "mem", Net: "none"})
	if err != nil {
		t.Fatal(err)
	}
	return w, &Bench{
		Transport: "mem", Net: "none", Dir: dir, Work: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Raw: func(ctx context.Context, p fabric.Provider, memory int) (string, func() error, error) {
			return fabricbench.ServeHere(ctx, p, memory)
		},
	}
}

// R91: every figure is measured, and every claim that the machine has the devices for
// comes to a number.
func TestAllFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures everything")
	}
	w, b := newBench(t, t.TempDir())
	if err := Run(t.Context(), w, b, Figures(), false, Watcher{}); err != nil {
		t.Fatal(err)
	}
	d := NewData(w.Journal.All())
	for _, f := range Figures() {
		left := func(what string) bool {
			return slices.ContainsFunc(w.LeftOut, func(l LeftOut) bool { return l.Trial == f.Trial && strings.Contains(what, l.What) })
		}
		for _, v := range Judge(f, d, w.LeftOut) {
			if v.Ours == nil && !left(v.Reason) {
				t.Errorf("%s: %s: %s", f.Name, v.Claim, v.Reason)
			}
		}
		for _, c := range f.Charts {
			for _, s := range c.Series {
				if xs := d.Xs(f.Trial, s); len(xs) == 0 || d.Metric(f.Trial, s, xs[0], c.Metric).Rounds == 0 {
					t.Errorf("%s: chart %q: nothing of series %q", f.Name, c.Title, s)
				}
			}
		}
	}
	if files, err := os.ReadDir(b.Work); err != nil || len(files) > 0 {
		t.Errorf("files of stores are left: %v, %v", files, err)
	}
}

// Names are what the command line and the claims know figures by.
func TestFigureNames(t *testing.T) {
	var names, used []string
	for _, f := range Figures() {
		if slices.Contains(names, f.Name) {
			t.Errorf("two figures are %s", f.Name)
		}
		names, used = append(names, f.Name), append(used, f.Trial)
		if trialOf(f.Trial) == nil {
			t.Errorf("%s: no trial %q", f.Name, f.Trial)
		}
		if f.Title == "" || f.Section == "" || f.Scaled == "" || len(f.Charts) == 0 || len(f.Claims) == 0 {
			t.Errorf("%s is not told whole", f.Name)
		}
		for _, c := range f.Claims {
			if c.Ours == nil || c.Text == "" {
				t.Errorf("%s: %+v", f.Name, c)
			}
		}
	}
	for _, trial := range trials {
		if !slices.Contains(used, trial.trialName()) {
			t.Errorf("no figure shows trial %s", trial.trialName())
		}
	}
	all, err := Choose([]string{"all"})
	if err != nil || len(all) != len(names) {
		t.Errorf("%d figures, %v", len(all), err)
	}
	if two, err := Choose([]string{"fig18a", "fig3", "fig18a"}); err != nil || len(two) != 2 || two[0].Name != "fig3" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := Choose([]string{"fig99"}); err == nil || !strings.Contains(err.Error(), "fig18a") {
		t.Error(err)
	}
}

// A run that is interrupted keeps what it has, and goes on with what it lacks.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	figures, err := Choose([]string{"fig19", "fig20"})
	if err != nil {
		t.Fatal(err)
	}
	w, b := newBench(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const stopAt = 13 // in the second of the two
	err = Run(ctx, w, b, figures, false, Watcher{Turn: func(s Standing) {
		if s.Done == stopAt {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := w.Journal.All()
	w, b = newBench(t, dir)
	var began []int
	turns := make(map[string]int)
	watch := Watcher{
		Turn:  func(s Standing) { began = append(began, s.Done) },
		Trial: func(name string, n int, _ time.Duration) { turns[name] = n },
	}
	if err := Run(t.Context(), w, b, figures, false, watch); err != nil {
		t.Fatal(err)
	}
	if began[0] != stopAt || turns["fig19"] != 0 || turns["fig20"] != 20-stopAt {
		t.Errorf("went on at turns %v: %v", began, turns)
	}
	for i, m := range w.Journal.All()[:len(before)] {
		if m.Values["mops"] != before[i].Values["mops"] {
			t.Errorf("%s at %g was measured again", m.Series, m.X)
		}
	}
	if v := NewData(w.Journal.All()).Metric("fig20", tieredSeries, 8, "mops"); v.Rounds != 2 {
		t.Errorf("%+v", v)
	}
	// All of it is there; again means again.
	w, b = newBench(t, dir)
	if err := Run(t.Context(), w, b, figures[1:], false, watch); err != nil || turns["fig20"] != 0 {
		t.Errorf("%v, %v", turns, err)
	}
	if err := Run(t.Context(), w, b, figures[1:], true, watch); err != nil || turns["fig20"] != 10 {
		t.Errorf("%v, %v", turns, err)
	}
	// Another run is not mixed with it.
	if _, err := OpenWorkspace(dir, Head{Scale: tiny(), Transport: "mem", Net: "rdma"}); !errors.Is(err, ErrOtherRun) {
		t.Error(err)
	}
}

func TestScales(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name         string
		memory, disk int64
		want         int64 // small records
	}{
		{Quick, 4 * gib, 10 * gib, quickRecords},
		{Full, 4 * gib, 10 * gib, paperRecords},
		{Machine, 24 * gib, 100 * gib, paperRecords}, // the machine holds the paper's database
		{Machine, 1 << 42, 1 << 44, paperRecords},
	} {
		s, err := NewScale(c.name, c.memory, c.disk)
		if err != nil || s.Records != c.want {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
	s, err := NewScale(Machine, 8*gib, 20*gib)
	if memory, disk := smallNeeds(s.Records); err != nil || s.Records <= quickRecords || s.Records >= paperRecords || memory > 8*gib || disk > 20*gib {
		t.Errorf("%+v needs %d and %d: %v", s, memory, disk, err)
	}
	if memory, disk := largeNeeds(s.LargeRecords); memory > 8*gib || disk > 20*gib {
		t.Errorf("%+v needs %d and %d", s, memory, disk)
	}
	if _, err := NewScale("huge", gib, gib); err == nil {
		t.Error("huge is a scale")
	}
}
