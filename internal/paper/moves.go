package paper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ycsb"
)

// sevenRegions is the number of regions in the cache of figures 15 and 16.
const sevenRegions = 7

// Moves is a trial in which some of a cache's seven regions move to other VMs under load
// (7.4). Each region has its own VM, so that one, two or four VMs can be left.
type Moves struct {
	Name   string
	Op     cachebench.Op
	Size   int     // bytes of a request
	Rate   float64 // requests per second to each region
	Moving []int
	Ways   []Way
}

// Way is a way to move regions.
type Way struct {
	Series    string
	Migration redytier.Migration
	Idle      bool // the cache is not used; Scale.IdleCopyRate limits the copying
	// Closed measures the same move once more under a closed loop, for half of the time. Its
	// series is closedSeries.
	Closed bool
}

// closedDepth is the number of requests that a closed loop keeps pending in each region.
const closedDepth = 4

// closedSeries is the series of a way under a closed loop.
func closedSeries(way string) string { return way + ", closed loop" }

func (t Moves) trialName() string { return t.Name }

func (t Moves) plan(b *Bench) (*plan, error) {
	loads := 0 // of a turn, in halves of b.Load
	for _, w := range t.Ways {
		loads += 8
		if w.Closed {
			loads += 4
		}
	}
	var turns []turn
	for round := 1; round <= b.Rounds; round++ {
		turns = append(turns, turn{
			name: fmt.Sprintf("round %d", round), series: t.series(),
			lasts: time.Duration(loads*len(t.Moving)) * b.Load / 2,
			measure: func(ctx context.Context, _ ycsb.Progress) (all []Measurement, err error) {
				for _, moving := range t.Moving {
					some, err := t.measure(ctx, b, moving, round)
					if err != nil {
						return nil, err
					}
					all = append(all, some...)
				}
				return all, nil
			},
		})
	}
	// Regions that move occupy two VMs during the move.
	return &plan{turns: turns, need: need{memory: (sevenRegions + int64(slices.Max(t.Moving))) * b.Region}}, nil
}

func (t Moves) series() []string {
	var names []string
	for _, w := range t.Ways {
		names = append(names, w.Series)
		if w.Closed {
			names = append(names, closedSeries(w.Series))
		}
	}
	return names
}

// oneRegionVMs returns a menu of VMs that each hold one region.
func oneRegionVMs(region int64) *menu.Menu {
	return &menu.Menu{Version: menu.Version, Types: []menu.Type{{
		Name: "one-region", Memory: menu.Size(region), Cores: 1, Sold: []menu.Sold{{CloudRegion: "here", Distance: 1, Price: 1}},
	}}}
}

func (t Moves) measure(ctx context.Context, b *Bench, moving, round int) (_ []Measurement, err error) {
	mgr, err := b.manager(ctx, cachebench.Servers{Menu: oneRegionVMs(b.Region)}, manager.EmbedOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if endErr := mgr.Close(); err == nil {
			err = endErr
		}
	}()
	var all []Measurement
	for _, w := range t.Ways {
		spec := cachebench.MigrateSpec{
			Transport: b.Transport, Net: b.Net, Capacity: sevenRegions * b.Region, RegionSize: b.Region, Size: t.Size,
			Depth: 1, Rate: t.Rate, Ops: []cachebench.Op{t.Op}, Moving: moving, Rounds: 1, Lasts: b.Load,
		}
		if w.Closed {
			spec.Closed = closedDepth
		}
		w.Migration.BytesPerSecond = b.CopyRate
		if w.Idle {
			spec.Ops = []cachebench.Op{cachebench.Idle}
			w.Migration.BytesPerSecond = b.IdleCopyRate
		}
		spec.Migrations = []redytier.Migration{w.Migration}
		rows, err := cachebench.RunMigrations(ctx, mgr, spec, b.Log)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			all = append(all, t.measurement(b, w, &rows[i], moving, round))
		}
	}
	return all, nil
}

func rate(bytes int64) string {
	if bytes == 0 {
		return "as fast as it goes"
	}
	return "at " + units.Size(bytes).String() + " a second"
}

func (t Moves) measurement(b *Bench, w Way, row *cachebench.MigrateRow, moving, round int) Measurement {
	m := Measurement{
		Series: w.Series, X: float64(moving), Round: round, Transport: row.Transport, Net: row.Net,
		Values: map[string]float64{
			"move_s": row.Seconds, "gigabyte_s": row.Seconds / float64(moving) * gigabyte / float64(b.Region),
		},
	}
	if w.Idle {
		return m
	}
	maps.Copy(m.Values, map[string]float64{
		"before_mops": row.Before.Mops, "during_mops": row.During.Mops, "beside_mops": row.Beside.Mops, "after_mops": row.After.Mops,
		"during_of_before": row.DuringOverBefore, "during_of_beside": row.DuringOverBeside, "beside_of_before": row.BesideOverBefore,
		"drop_percent": 100 * (1 - row.DuringOverBefore), "drop_beside_percent": 100 * (1 - row.DuringOverBeside), "cpu_before": row.Before.CPU, "cpu_during": row.During.CPU,
	})
	load := fmt.Sprintf("%g a second offered to each region", row.Rate)
	if row.Rate == 0 {
		m.Series = closedSeries(w.Series)
		load = fmt.Sprintf("%d of them pending in each region", row.Depth)
	}
	m.Setting = fmt.Sprintf("%d regions of %v, %d of them move, %s; %s held; %ss of %v, %s",
		row.Regions, units.Size(b.Region), moving, rate(b.CopyRate), row.Pause, row.Op, units.Size(row.Size), load)
	for part, l := range map[string]cachebench.Load{"before": row.Before, "during": row.During, "beside": row.Beside, "after": row.After} {
		if l.P99Us > 0 {
			m.Values["p99_"+part+"_us"] = l.P99Us
		}
	}
	if row.Before.Mops > 0 {
		for i, mops := range row.Series {
			m.Points = append(m.Points, [2]float64{float64(i-row.MovesAt) * cachebench.SeriesEvery.Seconds(), mops / row.Before.Mops})
		}
	}
	return m
}
