package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ycsb"
)

// sparseReady begins the line by which a process with servers announces the URLs of their manager and
// of plain copies.
const sparseReady = "sparse servers ready: "

// sparseFlags are the flags of bench cache --sparse.
type sparseFlags struct {
	on, apart                          bool
	serve                              string
	servers, threads, sessions, rounds int
	region                             units.Size
	lease                              time.Duration
}

func (f *sparseFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "sparse", false, "measure a large cache of which almost nothing is written")
	flags.IntVar(&f.servers, "servers", 256, "with --sparse: servers")
	flags.IntVar(&f.threads, "client-threads", cachebench.SparseThreads, "with --sparse: client threads of the callback API")
	flags.IntVar(&f.sessions, "sessions", cachebench.SparseSessions, "with --sparse: sessions")
	flags.IntVar(&f.rounds, "rounds", cachebench.SparseRounds, "with --sparse: moves of a region")
	flags.DurationVar(&f.lease, "lease", cachebench.SparseLease, "with --sparse: lease of the cache")
	flags.Var(&f.region, "region", "with --sparse: size of a region (default: 1GiB, or less for few regions)")
	flags.BoolVar(&f.apart, "apart", true, "with --sparse: the servers of the moving region have half of the processors, all else the rest")
	flags.StringVar(&f.serve, "serve-sparse", "", "run servers of --sparse until standard input ends: moving, or the manager's `URL` for the others")
	_ = flags.MarkHidden("serve-sparse") // it exists
}

// sparseOnly are the flags that need --sparse, and sparseUses those that it has in common with
// the other measurement.
var (
	sparseOnly = []string{"servers", "client-threads", "sessions", "rounds", "region", "lease", "apart"}
	sparseUses = append([]string{"sparse", "serve-sparse", "transport", "capacity", "json", "log-level"}, sparseOnly...)
)

// check refuses flags of the other measurement.
func (f *sparseFlags) check(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		switch on := f.on || f.serve != ""; {
		case on && !slices.Contains(sparseUses, flag.Name):
			err = cmp.Or(err, fmt.Errorf("--%s has no meaning with --sparse", flag.Name))
		case !on && slices.Contains(sparseOnly, flag.Name):
			err = cmp.Or(err, fmt.Errorf("--%s: only with --sparse", flag.Name))
		}
	})
	return err
}

// spec converts the flags.
func (f *benchCacheFlags) sparseSpec(cmd *cobra.Command) (s cachebench.SparseSpec, err error) {
	if !slices.Contains(transport.Names(), f.spec.Transport) {
		return s, fmt.Errorf("unknown transport %q: want one of %s", f.spec.Transport, strings.Join(transport.Names(), ", "))
	}
	s = cachebench.SparseSpec{
		Transport: f.spec.Transport, Capacity: int64(f.capacity), RegionSize: int64(f.sparse.region), Servers: f.sparse.servers,
		Threads: f.sparse.threads, Sessions: f.sparse.sessions, Rounds: f.sparse.rounds, Lease: f.sparse.lease, Log: f.log.logger(cmd),
	}
	for s.RegionSize = cmp.Or(s.RegionSize, redytier.DefaultRegionSize); f.sparse.region == 0 && s.RegionSize > redytier.MinRegionSize && s.Regions() < 4*s.Servers; {
		s.RegionSize /= 2
	}
	if f.spec.Transport == mem.Name && f.sparse.apart && cmd.Flags().Changed("apart") {
		return s, errors.New("--apart: servers over mem are in this process, and cannot have processors of their own")
	}
	return s, s.Check()
}

// moving is --serve-sparse of the manager and the servers between which a region moves.
const moving = "moving"

// runSparse measures, or runs servers for a process that does.
func (f *benchCacheFlags) runSparse(cmd *cobra.Command) error {
	spec, err := f.sparseSpec(cmd)
	if err := cmp.Or(f.sparse.check(cmd.Flags()), err); err != nil {
		return usageError{err}
	}
	if f.sparse.serve != "" {
		url := f.sparse.serve
		if url == moving {
			url = ""
		}
		return cachebench.ServeSparse(bench.UntilEnd(cmd.Context(), cmd.InOrStdin()), spec, url, func(manager, copies string) {
			fmt.Fprintln(cmd.OutOrStdout(), sparseReady+manager+" "+copies)
		})
	}
	return runMeasurement(cmd, f.jsonPath, func(ycsb.Progress) (_ measurement, err error) {
		var servers cachebench.SparseServers
		var stop func() error
		if spec.Transport == mem.Name {
			servers, stop, err = startSparseHere(cmd, spec)
		} else {
			servers, stop, err = startSparse(cmd, spec, f.sparse.apart)
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err != nil {
			return nil, err
		}
		row, err := cachebench.RunSparse(cmd.Context(), spec, servers)
		if err != nil {
			return nil, err
		}
		return measuredRows[cachebench.SparseRow]{"times of sessions and moves: medians; publish: the mean of all publications; others: medians of the moves' ratios; the rest: measured once", cachebench.SparseColumns(), []cachebench.SparseRow{*row}}, nil
	})
}

// cleanups are functions that end what was started.
type cleanups []func() error

// run calls them, the last first.
func (c *cleanups) run() (err error) {
	for _, f := range slices.Backward(*c) {
		err = errors.Join(err, f())
	}
	return err
}

// startSparse starts two processes with servers, and returns a function that ends them: one with
// the manager and the two servers between which a region moves, and one with the others. If they
// are to be apart, the first process has half of the processors, and the second one and this one
// have the rest until the end.
func startSparse(cmd *cobra.Command, s cachebench.SparseSpec, apart bool) (servers cachebench.SparseServers, stop func() error, err error) {
	var started cleanups
	var mine, theirs []int
	if apart {
		if mine, theirs, err = affinity.Halves(); err != nil {
			return servers, started.run, fmt.Errorf("%w: measure with --apart=false", err)
		}
	}
	start := func(serve string, cpus []int) error {
		if apart {
			undo, err := affinity.ConfineThread(cpus)
			if err != nil {
				return err
			}
			defer undo()
		}
		child, err := bench.StartChild(cmd.Context(), cmd.ErrOrStderr(), sparseReady, "bench", "cache", "--serve-sparse", serve, "--transport", s.Transport,
			"--capacity", units.Size(s.Capacity).String(), "--region", units.Size(s.RegionSize).String(),
			"--servers", strconv.Itoa(s.Servers), "--sessions", strconv.Itoa(s.Sessions), "--lease", s.Lease.String())
		if err == nil {
			servers.PIDs, started = append(servers.PIDs, child.PID()), append(started, child.Close)
			if serve == moving {
				servers.URL, servers.CopyURL, _ = strings.Cut(child.Ready, " ")
			}
		}
		return err
	}
	if err := start(moving, theirs); err != nil {
		return servers, started.run, err
	}
	if err := start(servers.URL, mine); err != nil {
		return servers, started.run, err
	}
	if servers.Apart = apart; apart {
		unconfine, err := affinity.Confine(mine)
		if err != nil {
			return servers, started.run, err
		}
		started = append(started, unconfine)
	}
	return servers, started.run, nil
}

// startSparseHere starts the servers in this process.
func startSparseHere(cmd *cobra.Command, s cachebench.SparseSpec) (servers cachebench.SparseServers, stop func() error, err error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	var running errgroup.Group
	stop = func() error { cancel(); return running.Wait() }
	for range 2 {
		ready, ended := make(chan string, 1), make(chan struct{})
		url := servers.URL
		running.Go(func() error {
			defer close(ended)
			return cachebench.ServeSparse(ctx, s, url, func(manager, _ string) { ready <- manager })
		})
		select {
		case servers.URL = <-ready:
		case <-ended:
			return servers, stop, errors.New("the servers have ended") // stop has the reason
		}
	}
	return servers, stop, nil
}
