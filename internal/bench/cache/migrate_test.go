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

// Some regions move, each from its own VM, under an offered load. The rate of all others stays
// the same.
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
	spec.Moving, spec.Rate, spec.Ops, spec.Rounds, spec.Depth = 2, 5000, []Op{Read}, 1, 1
	offered := 4 * spec.Rate / 1e6
	showing(t, m, spec, func(rows []MigrateRow) string {
		for i, r := range rows {
			if r.Moving != 2 {
				t.Fatalf("%+v", r)
			}
			if r.Before.Mops <= 0 || r.Before.Mops > 1.3*offered {
				return fmt.Sprintf("row %d: %g Mop/s of %g offered", i, r.Before.Mops, offered)
			}
		}
		if rows[1].During.Mops > 0.8*offered {
			return "row 1: two of four regions are not held"
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
		"too short":        func(s *MigrateSpec) { s.Lasts = time.Millisecond },
	} {
		s := migrateSpec()
		if spoil(&s); s.Check() == nil {
			t.Errorf("%s: %+v passes", what, s)
		}
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
