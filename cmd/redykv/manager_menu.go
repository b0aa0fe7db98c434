package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// menuFlags are the flags for the VMs on the allocator's menu, and for moving caches between
// them.
type menuFlags struct {
	menu      string
	region    string
	seed      uint64
	speed     float64
	warm      []string
	minSaving float64
	dwell     time.Duration
	moves     time.Duration
}

func (f *menuFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.menu, "menu", "", "`FILE` with the VM types that the local allocator offers, or example for a built-in menu (default: VMs of any size, free of charge)")
	flags.StringVar(&f.region, "cloud-region", "", "region of the menu for caches that request none (default: the menu's first)")
	flags.Uint64Var(&f.seed, "market-seed", 0, "seed of the random events of the menu's market (default: a random one)")
	flags.Float64Var(&f.speed, "market-speed", 1, "factor by which prices change, and VMs are reclaimed and fail, faster than in real time; notices are not shortened")
	flags.StringSliceVar(&f.warm, "warm", nil, "VMs to keep ready as targets of moves, as `TYPE=N` or TYPE:spot=N")
	flags.DurationVar(&f.moves, "moves-every", 30*time.Second, "how often to check whether caches should move to cheaper VMs, in addition to each change of prices; 0: never")
	flags.Float64Var(&f.minSaving, "min-saving", 0.1, "minimum share of its price that a cache must save by a move")
	flags.DurationVar(&f.dwell, "dwell", 10*time.Minute, "minimum time between two moves of a cache to save money")
}

// options checks the flags and sets the options.
func (f menuFlags) options(opts *manager.Options, local *allocator.LocalOptions, log *slog.Logger) error {
	switch {
	case f.menu == "" && (f.region != "" || f.seed != 0 || f.speed != 1 || len(f.warm) > 0):
		return usagef("--cloud-region, --market-seed, --market-speed and --warm require --menu")
	case f.menu != "" && opts.VMMemory != 0:
		return usagef("--vm-memory: not possible with --menu, whose VMs have their own sizes")
	case !(f.speed > 0 && f.speed <= 1e6):
		return usagef("--market-speed %v: want more than 0, up to 1000000", f.speed)
	case !(f.minSaving > 0 && f.minSaving <= 1):
		return usagef("--min-saving %v: want more than 0, up to 1", f.minSaving)
	case f.dwell <= 0 || f.moves < 0:
		return usagef("--dwell %v --moves-every %v: want a dwell of more than 0s, and an interval of 0s or more", f.dwell, f.moves)
	}
	// An interval of 0 would mean the default.
	opts.Economy = manager.Economy{Every: cmp.Or(f.moves, -1), MinSaving: f.minSaving, Dwell: f.dwell}
	if f.menu == "" {
		return nil
	}
	m := menu.Example()
	var err error
	if f.menu != "example" {
		if m, err = menu.Load(f.menu); err != nil {
			return err
		}
	}
	if f.region != "" && !slices.Contains(m.Regions(), f.region) {
		return usageError{fmt.Errorf("--cloud-region: %w", &menu.RegionError{Asked: f.region, Known: m.Regions()})}
	}
	if opts.Warm, err = parseAll(f.warm, warmPool); err != nil {
		return err
	}
	seed := cmp.Or(f.seed, rand.Uint64())
	log.Info("the menu's market opens", "seed", seed, "types", len(m.Types), "cloud_regions", strings.Join(m.Regions(), " "))
	local.Menu, local.Market = &m, menu.Options{CloudRegion: f.region, Seed: seed, Clock: clock.Fast(f.speed)}
	return nil
}

// warmPool parses TYPE=N or TYPE:spot=N.
func warmPool(text string) (manager.WarmPool, error) {
	name, number, _ := strings.Cut(text, "=")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 1000 || name == "" {
		return manager.WarmPool{}, usagef("--warm %q: want TYPE=N, or TYPE:spot=N, with 1 to 1000 VMs", text)
	}
	name, spot := strings.CutSuffix(name, ":spot")
	return manager.WarmPool{Type: name, Spot: spot, Count: n}, nil
}
