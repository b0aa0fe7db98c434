package cache

import (
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/redytier"
)

func migrateSpec() MigrateSpec {
	// Migrations are slow enough to span several ticks.
	return MigrateSpec{
		Transport: "mem", Net: "none", Capacity: 4 * MinCapacity, RegionSize: MinCapacity, Size: 64, Depth: 2, Ops: []Op{Idle, Read, Write}, Rounds: 2, Lasts: 4 * leastLoad,
		Migrations: []redytier.Migration{{BytesPerSecond: 32 << 20}, {BytesPerSecond: 32 << 20, PauseReads: true, PauseAll: true}},
	}
}

// showing repeats a measurement up to five times until wrong returns "": on a busy machine a
// thread may miss the interval of interest. wrong describes what the rows lack.
func showing(t *testing.T, m redytier.Manager, spec MigrateSpec, wrong func(rows []MigrateRow) string) {
	t.Helper()
	for try := 1; ; try++ {
		rows, err := RunMigrations(t.Context(), m, spec, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		what := wrong(rows)
		if what == "" {
			return
		}
		if try == 5 {
			t.Fatalf("%s: %+v", what, rows)
		}
	}
}

// A cache moves idle and under load. Requests to regions that do not move continue, unless all
// regions are paused.
func TestMigrations(t *testing.T) {
	spec := migrateSpec()
	least := float64(spec.Capacity) / float64(spec.Migrations[0].BytesPerSecond) / 2
	showing(t, embed(t), spec, func(rows []MigrateRow) string {
		if len(rows) != 6 {
			t.Fatalf("%d rows", len(rows))
		}
		for i, r := range rows {
			if want := []Op{Idle, Read, Write}[i%3]; r.Op != want || r.Regions != 4 || r.Rounds != spec.Rounds || r.OfCopy <= 0 {
				t.Fatalf("%+v", r)
			}
			held := i >= 3
			switch {
			case r.Seconds < least:
				return fmt.Sprintf("row %d: too fast a migration", i)
			case r.Op == Idle:
			case r.Before.Mops <= 0 || r.After.Mops <= 0 || r.Beside.Mops <= 0 || r.BesideOverBefore <= 0:
				return fmt.Sprintf("row %d: no load", i)
			case r.MovesAt == 0 || r.MovesAt >= len(r.Series):
				return fmt.Sprintf("row %d: a series without the migration", i)
			case !held && r.During.Mops <= 0:
				return fmt.Sprintf("row %d: all is held", i)
			case held && r.DuringOverBefore > 0.9:
				return fmt.Sprintf("row %d: nothing is held", i)
			}
		}
		return ""
	})
}

// Some regions move, each from its own VM, under an offered load, and once more in a closed
// loop. The rate of all others stays the same; the requests that are held take as long as the
// move does.
func TestSomeMove(t *testing.T) {
	m, err := StartManager(t.Context(), Servers{Transport: "mem", Menu: &menu.Menu{Version: menu.Version, Types: []menu.Type{{
		Name: "one", Memory: MinCapacity, Cores: 1, Sold: []menu.Sold{{CloudRegion: "here", Distance: 1, Price: 1}},
	}}}}, manager.EmbedOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	spec := migrateSpec()
	spec.Moving, spec.Rate, spec.Ops, spec.Rounds, spec.Depth, spec.Closed = 2, 5000, []Op{Idle, Read}, 1, 1, 3
	offered := 4 * spec.Rate / 1e6
	showing(t, m, spec, func(rows []MigrateRow) string {
		if len(rows) != 6 { // of each migration: idle, open, closed
			t.Fatalf("%d rows", len(rows))
		}
		for i, r := range rows {
			if r.Moving != 2 {
				t.Fatalf("%+v", r)
			}
			switch i % 3 {
			case 0:
				if r.Op != Idle {
					t.Fatalf("%+v", r)
				}
			case 1:
				if r.Rate != spec.Rate || r.Depth != 1 {
					t.Fatalf("%+v", r)
				}
				if r.Before.Mops <= 0 || r.Before.Mops > 1.3*offered {
					return fmt.Sprintf("row %d: %g Mop/s of %g offered", i, r.Before.Mops, offered)
				}
				if r.Before.P99Us <= 0 || r.During.P99Us <= 0 || r.Beside.P99Us <= 0 {
					return fmt.Sprintf("row %d: no latencies", i)
				}
			case 2:
				if r.Rate != 0 || r.Depth != spec.Closed || r.Before.P99Us != 0 {
					t.Fatalf("%+v", r)
				}
				if r.Before.Mops <= 1.3*offered {
					return fmt.Sprintf("row %d: %g Mop/s in a closed loop, of %g offered in an open one", i, r.Before.Mops, offered)
				}
			}
		}
		if rows[4].During.Mops > 0.8*offered {
			return "row 4: two of four regions are not held"
		}
		// All of them are held for longer than one region's copy takes, at least.
		if one := 1e6 * float64(spec.RegionSize) / float64(spec.Migrations[1].BytesPerSecond); rows[4].During.P99Us < one/2 {
			return fmt.Sprintf("row 4: requests that are held take %g us", rows[4].During.P99Us)
		}
		return ""
	})
	if _, err := RunMigrations(t.Context(), embed(t), spec, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("regions of one VM move by themselves")
	}
}

func TestMigrateSpecCheck(t *testing.T) {
	for what, spoil := range map[string]func(*MigrateSpec){
		"no size":          func(s *MigrateSpec) { s.Size = 0 },
		"too large a size": func(s *MigrateSpec) { s.Size = 2 * MaxSize },
		"no regions":       func(s *MigrateSpec) { s.RegionSize = 0 },
		"half a region":    func(s *MigrateSpec) { s.Capacity++ },
		"no capacity":      func(s *MigrateSpec) { s.Capacity = 0 },
		"no depth":         func(s *MigrateSpec) { s.Depth = 0 },
		"no rate":          func(s *MigrateSpec) { s.Rate = -1 },
		"too many regions": func(s *MigrateSpec) { s.Moving = 5 },
		"no operations":    func(s *MigrateSpec) { s.Ops = nil },
		"too deep":         func(s *MigrateSpec) { s.Depth = redytier.MaxDepth },
		"no round":         func(s *MigrateSpec) { s.Rounds = 0 },
		"closed twice":     func(s *MigrateSpec) { s.Closed = 1 },
		"too deep, closed": func(s *MigrateSpec) { s.Rate, s.Closed = 1, redytier.MaxDepth },
		"less than none":   func(s *MigrateSpec) { s.Rate, s.Closed = 1, -1 },
		"too short":        func(s *MigrateSpec) { s.Lasts = time.Millisecond },
	} {
		s := migrateSpec()
		if spoil(&s); s.Check() == nil {
			t.Errorf("%s: %+v passes", what, s)
		}
	}
}

// A request's latency counts from the time at which it was due, and belongs to the part of the
// run in which that was.
func TestMigrantLatencies(t *testing.T) {
	at := time.Now()
	m := &migrant{ticks: []tick{{at: at}}}
	const n = latencyPiece + 100 // more than one piece
	for i := range n {
		due := at.Add(time.Duration(i) * time.Millisecond)
		m.took(due, due.Add(time.Duration(i)*time.Microsecond))
	}
	first, second := span{at, at.Add(100 * time.Millisecond)}, span{at.Add((n - 100) * time.Millisecond), at.Add(time.Hour)}
	for _, c := range []struct {
		spans []span
		want  float64
	}{{[]span{first}, 98}, {[]span{second}, n - 2}, {[]span{first, second}, n - 3}, {[]span{{at.Add(-time.Hour), at}}, 0}} {
		if got := m.p99(c.spans); got != c.want {
			t.Errorf("%v: %g, want %g", c.spans, got, c.want)
		}
	}
}

// The requests that a pause prevents have latencies, too.
func TestMigrantDrops(t *testing.T) {
	at := time.Now()
	m := &migrant{spec: &MigrateSpec{Depth: 1, Rate: 1000}, ticks: []tick{{at: at}}}
	now := at.Add(100 * time.Millisecond)
	if next := m.next(at, now); !next.Equal(now.Add(-catchUp)) {
		t.Errorf("the next request is due %v before now", now.Sub(next))
	}
	// Those that were due 1 to 94 ms after the first are dropped, 99 to 6 ms late.
	if got := len(m.latencies[0]); got != 94 {
		t.Errorf("%d requests are dropped", got)
	}
	if got := m.p99([]span{{at, now}}); got != 99_000 {
		t.Errorf("99th percentile of %g us", got)
	}
	m.latencies = nil
	if next := m.next(at, at.Add(catchUp)); !next.Equal(at.Add(time.Millisecond)) || m.latencies != nil {
		t.Errorf("%v, %v", next.Sub(at), m.latencies)
	}
}

// Each figure of a row is a median by itself.
func TestMigrateMedians(t *testing.T) {
	row := medians([]MigrateRow{
		{Op: Read, Seconds: 3, Before: Load{Mops: 1, CPU: 0.5}, DuringOverBeside: 9},
		{Op: Read, Seconds: 1, Before: Load{Mops: 2, CPU: 0.7}, DuringOverBeside: 8},
		{Op: Read, Seconds: 2, Before: Load{Mops: 9, CPU: 0.6}, DuringOverBeside: 1},
	})
	want := MigrateRow{Op: Read, Rounds: 3, Seconds: 2, Before: Load{Mops: 2, CPU: 0.6}, DuringOverBeside: 8}
	if !reflect.DeepEqual(row, want) {
		t.Errorf("%+v, want %+v", row, want)
	}
	if row = medians([]MigrateRow{{Seconds: 1}, {Seconds: 4}}); row.Seconds != 2.5 {
		t.Errorf("%+v", row)
	}
}
