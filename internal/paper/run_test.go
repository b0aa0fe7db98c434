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

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	testrun.Main(m)
}

// tiny is a scale for tests: all trials run, and their numbers mean nothing.
func tiny() Scale {
	return Scale{
		Name: "tiny", Records: 40_000, LocalRecords: 30_000, TierRecords: 20_000, LargeRecords: 4_000, Duration: 10 * time.Millisecond, Warmup: time.Millisecond, Rounds: 2,
		Cell: bench.MinDuration, Capacity: 4 << 20, Threads: 1, SLOs: sloTurns, PerPoint: bench.Rounds * bench.MinDuration,
		// The copy rates are low enough for a move to span several samples.
		Region: 1 << 20, Load: 60 * time.Millisecond, CopyRate: 32 << 20, IdleCopyRate: 32 << 20, VMs: 3000, Servers: 20,
	}
}

// newBench returns a run in a directory and a bench in this process.
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

// R91: every figure is measured, and every claim has a number if the machine has the devices.
func TestAllFigures(t *testing.T) {
	testrun.SkipUnlessSoak(t, "it measures everything")
	w, b := newBench(t, t.TempDir())
	if err := Run(t.Context(), w, b, Figures(), false, Watcher{}); err != nil {
		t.Fatal(err)
	}
	d := NewData(w.Journal.All())
	// What a claim compares is measured in one turn: numbers are combined round by round, and a
	// round has one turn.
	turns := make(map[[2]any]string)
	for _, m := range w.Journal.All() {
		of := [2]any{m.Trial, m.Round}
		if turn, known := turns[of]; known && turn != m.Turn {
			t.Errorf("%s: round %d was measured in turns %q and %q", m.Trial, m.Round, turn, m.Turn)
		}
		turns[of] = m.Turn
	}
	// What was loaded first in a round is loaded last in the next.
	round := 0
	for _, m := range d.Trial("small values") {
		if m.Round != round && strings.HasSuffix(m.Series, uniformStore) != (m.Round == 1) {
			t.Errorf("round %d of small values begins with %s", m.Round, m.Series)
		}
		round = m.Round
	}
	for _, f := range Figures() {
		left := func(what string) bool {
			return slices.ContainsFunc(w.LeftOut, func(l LeftOut) bool { return l.Trial == f.Trial && strings.Contains(what, l.What) })
		}
		for _, v := range Judge(f, d, w.LeftOut) {
			if v.Outcome == Unmeasured && !left(v.Reason) {
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

// The command line and the claims refer to figures by these names.
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
		texts := make(map[string]bool)
		for _, c := range f.Claims {
			if c.Ours == nil || c.Text == "" || texts[c.Text] {
				t.Errorf("%s: %+v", f.Name, c)
			}
			texts[c.Text] = true
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

// An interrupted run keeps its measurements and continues with the missing turns.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	figures, err := Choose([]string{"fig19", "fig20"})
	if err != nil {
		t.Fatal(err)
	}
	w, b := newBench(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const stopAt = 3 // the last turn of the second trial
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
	if began[0] != stopAt || turns["fig19"] != 0 || turns["fig20"] != 4-stopAt {
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
	// Everything is measured; again measures it once more.
	w, b = newBench(t, dir)
	if err := Run(t.Context(), w, b, figures[1:], false, watch); err != nil || turns["fig20"] != 0 {
		t.Errorf("%v, %v", turns, err)
	}
	if err := Run(t.Context(), w, b, figures[1:], true, watch); err != nil || turns["fig20"] != 2 {
		t.Errorf("%v, %v", turns, err)
	}
	// A run with other circumstances is refused.
	if _, err := OpenWorkspace(dir, Head{Scale: tiny(), Transport: "mem", Net: "rdma"}); !errors.Is(err, ErrOtherRun) {
		t.Error(err)
	}
}

func TestScales(t *testing.T) {
	const gib = 1 << 30
	// A machine with 24 GB, of which the kernel keeps some.
	issues := Stock{Memory: 23 * gib, FreeMemory: 22 * gib, Disk: 252 * gib, FreeDisk: 45 * gib, Share: 24 * gib, FreeShare: 24 * gib}
	for _, c := range []struct {
		name string
		has  Stock
		want int64 // Scale.Records
	}{
		{Quick, Stock{Memory: 4 * gib, FreeDisk: 10 * gib}, quickRecords},
		{Full, Stock{Memory: 4 * gib, FreeDisk: 10 * gib}, paperRecords},
		{Machine, issues, paperRecords}, // has room for the paper's database
		{Machine, Stock{Memory: 1 << 42, FreeDisk: 1 << 44}, paperRecords},
	} {
		s, err := NewScale(c.name, c.has)
		if err != nil || s.Records != c.want {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
	small := Stock{Memory: 8 * gib, FreeMemory: 8 * gib, Disk: 20 * gib, FreeDisk: 20 * gib, Share: 4 * gib, FreeShare: 4 * gib}
	for _, has := range []Stock{issues, small} {
		s, err := NewScale(Machine, has)
		if err != nil || s.LocalRecords <= quickRecords || s.LocalRecords >= s.Records || s.TierRecords <= quickRecords || s.TierRecords > s.Records || s.Threads < 1 {
			t.Errorf("%+v: %v", s, err)
		}
		// All trials of a machine's scale fit into it, for any free space.
		w, b := newBench(t, t.TempDir())
		w.Scale, b.Stock = s, has
		if _, err := prepare(w, b, Figures(), false); err != nil || slices.ContainsFunc(b.leftOut, func(l LeftOut) bool { return l.What == "all" }) {
			t.Errorf("%+v: %v, left out %v", s, err, b.leftOut)
		}
	}
	if _, err := NewScale("huge", small); err == nil {
		t.Error("huge is a scale")
	}
}

// What a machine lacks is left out. What is only in use is an error before anything starts,
// unless everything has been measured.
func TestRoom(t *testing.T) {
	const gib = 1 << 30
	figures, err := Choose([]string{"fig20", "stranded"})
	if err != nil {
		t.Fatal(err)
	}
	enough := Stock{Memory: gib, FreeMemory: gib, Disk: gib, FreeDisk: gib, Share: gib, FreeShare: gib}
	for _, c := range []struct {
		what  string
		spoil func(s *Stock)
		left  string // reason for which a trial is left out
		err   string
	}{
		{"enough", func(*Stock) {}, "", ""},
		{"unknown", func(s *Stock) { *s = Stock{} }, "", ""},
		{"little memory", func(s *Stock) { s.Memory = 1 << 20 }, "of memory, and this machine has 1MiB", ""},
		{"little disk", func(s *Stock) { s.Disk = 1 << 20 }, "on disk, and this machine has 1MiB", ""},
		{"memory in use", func(s *Stock) { s.FreeMemory = 1 << 20 }, "", "of memory, of which 1MiB are free now"},
		{"a disk in use", func(s *Stock) { s.FreeDisk = 1 << 20 }, "", "on disk, of which 1MiB are free now"},
	} {
		w, b := newBench(t, t.TempDir())
		b.Stock = enough
		c.spoil(&b.Stock)
		began := 0
		err := Run(t.Context(), w, b, figures, false, Watcher{Turn: func(Standing) { began++ }})
		if c.err != "" {
			if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "fig20") || !strings.Contains(err.Error(), c.err) || began > 0 {
				t.Errorf("%s: %v after %d turns", c.what, err, began)
			}
			continue
		}
		if err != nil || (c.left == "") != (len(w.LeftOut) == 0) || c.left != "" && !strings.Contains(w.LeftOut[0].Reason, c.left) {
			t.Errorf("%s: %v, left out %v", c.what, err, w.LeftOut)
		}
		if c.left != "" {
			continue
		}
		b.Stock = Stock{Memory: gib, FreeMemory: 1, Disk: gib, FreeDisk: 1}
		if err := Run(t.Context(), w, b, figures, false, Watcher{}); err != nil {
			t.Errorf("%s, measured already: %v", c.what, err)
		}
		// Measurements that cannot be repeated are kept, for either reason.
		was := len(w.Journal.All())
		if err := Run(t.Context(), w, b, figures, true, Watcher{}); !errors.Is(err, ErrNoRoom) || len(w.Journal.All()) != was {
			t.Errorf("%s, again: %v, %d measurements of %d", c.what, err, len(w.Journal.All()), was)
		}
		b.Stock = Stock{Memory: 1 << 20, Disk: 1 << 20}
		if err := Run(t.Context(), w, b, figures[:1], true, Watcher{}); err != nil || len(w.Journal.All()) != was {
			t.Errorf("%s, again on a small machine: %v, %d measurements of %d", c.what, err, len(w.Journal.All()), was)
		}
	}
}
