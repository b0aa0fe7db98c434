package main

import (
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
	flags.StringVar(&f.menu, "menu", "", "`FILE` of the VM types that the local allocator sells, or example for one that comes with the program (default: VMs of any size, for nothing)")
	flags.StringVar(&f.region, "cloud-region", "", "region of the menu for requests that name none (default: the menu's first)")
	flags.Uint64Var(&f.seed, "market-seed", 0, "what happens by chance on the menu's market is the same for the same seed (default: a random one)")
	flags.Float64Var(&f.speed, "market-speed", 1, "how many times as fast as time prices change and VMs are reclaimed and fail; notices stay as they are")
	flags.StringSliceVar(&f.warm, "warm", nil, "VMs kept ready as targets of migrations, as `TYPE=N`")
	flags.DurationVar(&f.moves, "moves-every", 30*time.Second, "how often it is considered whether caches move to cheaper VMs, beside each time that prices change; 0: never")
	flags.Float64Var(&f.minSaving, "min-saving", 0.1, "least share of its price that a cache has to save by a move")
	flags.DurationVar(&f.dwell, "dwell", 10*time.Minute, "how long a cache stays where it is, whatever it could save")
}

// options checks the flags and sets the options.
func (f menuFlags) options(opts *manager.Options, local *allocator.LocalOptions, log *slog.Logger) error {
	switch {
	case f.menu == "" && (f.region != "" || f.seed != 0 || f.speed != 1 || len(f.warm) > 0):
		return usagef("--cloud-region, --market-seed, --market-speed and --warm go with --menu")
	case f.menu != "" && opts.VMMemory != 0:
		return usagef("--vm-memory: the VMs of a --menu have their own sizes")
	case !(f.speed > 0 && f.speed <= 1e6):
		return usagef("--market-speed %v: want more than 0, up to 1000000", f.speed)
	case !(f.minSaving > 0 && f.minSaving <= 1):
		return usagef("--min-saving %v: want more than 0, up to 1", f.minSaving)
	case f.dwell <= 0 || f.moves < 0:
		return usagef("--dwell %v --moves-every %v: want more than 0s, and no less than 0s", f.dwell, f.moves)
	}
	opts.Economy = manager.Economy{Every: f.moves, MinSaving: f.minSaving, Dwell: f.dwell}
	if f.moves == 0 {
		opts.Economy.Every = -1
	}
	if f.menu == "" {
		return nil
	}
	m := menu.Example()
	if f.menu != "example" {
		var err error
		if m, err = menu.Load(f.menu); err != nil {
			return err
		}
	}
	if f.region != "" && !slices.Contains(m.Regions(), f.region) {
		return usageError{fmt.Errorf("--cloud-region: %w", &menu.RegionError{Asked: f.region, Known: m.Regions()})}
	}
	for _, text := range f.warm {
		p, err := warmPool(text)
		if err != nil {
			return err
		}
		opts.Warm = append(opts.Warm, p)
	}
	seed := f.seed
	if seed == 0 {
		seed = rand.Uint64()
	}
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
