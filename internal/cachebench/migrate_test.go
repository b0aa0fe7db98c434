package cachebench

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/redytier"
)

func migrateSpec() MigrateSpec {
	// Slow enough that the migration is seen.
	return MigrateSpec{
		Transport: "mem", Net: "none", Capacity: 4 * MinCapacity, RegionSize: MinCapacity, Size: 64, Depth: 2, Ops: []Op{Idle, Read, Write}, Rounds: 2, Lasts: 4 * leastLoad,
		Migrations: []redytier.Migration{{BytesPerSecond: 32 << 20}, {BytesPerSecond: 32 << 20, PauseReads: true, PauseAll: true}},
	}
}

// A cache moves idle and under load. Requests to what does not move go on, unless
// everything is held.
func TestMigrations(t *testing.T) {
	spec := migrateSpec()
	rows, err := RunMigrations(t.Context(), embed(t), spec, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows {
		want := []Op{Idle, Read, Write}[i%3]
		least := float64(spec.Capacity) / float64(spec.Migrations[0].BytesPerSecond) / 2
		if r.Op != want || r.Regions != 4 || r.Seconds < least || r.OfCopy <= 0 {
			t.Errorf("%+v", r)
		}
		if r.Rounds != spec.Rounds {
			t.Errorf("%+v", r)
		}
		if r.Op == Idle {
			continue
		}
		if r.Before.Mops <= 0 || r.After.Mops <= 0 || r.Beside.Mops <= 0 || r.BesideOverBefore <= 0 || len(r.Series) == 0 || r.MovesAt == 0 || r.MovesAt >= len(r.Series) {
			t.Errorf("%+v", r)
		}
		if held := i >= 3; !held && r.During.Mops <= 0 || held && r.DuringOverBefore > 0.9 {
			t.Errorf("%+v", r)
		}
	}
}

// Some of the regions move, each from a VM of its own, under an offered load: what is
// not held keeps its rate.
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
	var rows []MigrateRow
	for try := 1; ; try++ {
		if rows, err = RunMigrations(t.Context(), m, spec, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if rows[0].Before.Mops > 0 && rows[1].Before.Mops > 0 {
			break
		}
		if try == 5 { // a process that does not run for that long sees nothing of its load
			t.Fatalf("%+v", rows)
		}
	}
	for _, r := range rows {
		// The offered rate is an upper bound whatever the machine does.
		if r.Moving != 2 || r.Before.Mops > 1.3*4*spec.Rate/1e6 {
			t.Errorf("%+v", r)
		}
	}
	if held := rows[1]; held.During.Mops > 0.8*4*spec.Rate/1e6 {
		t.Errorf("%+v: two of four regions are held", held)
	}
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

// A row's figures are medians, each for itself.
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
