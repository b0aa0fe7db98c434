package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/bench"
	modelbench "github.com/redykv/redykv/internal/bench/model"
	"github.com/redykv/redykv/internal/console"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/prom"
	"github.com/redykv/redykv/server"
)

// closeTimeout bounds the wait for pending calls when a command ends.
const closeTimeout = 2 * time.Second

// calibrates is the default of manager --calibrate. Tests of this package change it, as a calibration
// has a cache that their scripts do not expect.
var calibrates = true

type managerFlags struct {
	listen    string
	advertise string
	managers  string
	allocator string
	transport string
	memory    units.Size
	rate      units.Size
	vmMemory  units.Size
	heartbeat time.Duration
	silence   time.Duration
	lease     time.Duration
	grace     time.Duration
	maxLinger time.Duration
	enforce   bool
	state     string
	catalog   string
	moved     bool
	metrics   string
	pinning   server.Pinning
	cpus      affinity.CPUs
	tls       tlsFlags
	menu      menuFlags
	guard     guardFlags
	kube      kubeFlags
	models    []string
	margin    float64
	calibrate bool
	sloWatch  string
	slo       string  // margin or strict
	foreign   float64 // margin of models of other machines
	changes   int
	log       logFlags
	// untilStdin ends the manager with its standard input, for a process that starts one.
	untilStdin bool
}

func newManagerCmd() *cobra.Command {
	f := managerFlags{log: logFlags{level: slog.LevelInfo}}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the manager, which allocates remote memory to caches",
		Long: `Runs the manager until it is interrupted. It serves Connect, gRPC and JSON at one
address, and prints a line when it is ready. A page on which to watch it is at
/console/ there; where tokens are needed, it asks for an operator's.

Memory comes from cache servers that were started with this manager's address
(redykv cacheserver --manager URL). If they do not have enough for a cache, the
local allocator starts cache servers on this machine; these end with the cache or
with the manager.

With --menu the local allocator offers VMs as a cloud does: of certain types, at
prices that change, including spot VMs that may be reclaimed. Caches get the
cheapest VMs that meet their needs, and move when others become cheaper.

With --allocator kubernetes it starts cache servers as pods, as the file of
--kubernetes says. redykv manager check finds what would keep them from starting.

The manager keeps its records in a directory, by default one for each --listen
address, below $XDG_STATE_HOME or ~/.local/state; a port of 0 is another one each
time, so the records are in memory then. A manager that is restarted at the same
address continues where the last one ended, and caches keep their memory meanwhile.
With a --state directory the cache servers of the local allocator keep running, too.
At another address it refuses to start, as clients and servers would not find it.

With --catalog etcd://HOST:2379,HOST:2379/PREFIX the records are in etcd, and
several managers can use them: one leads, the others stand by. Servers and clients
are given all their addresses.

An address that other machines can reach requires --api-cert and --tokens. Callers
then need a token: redykv's commands take it from $` + access.TokenEnv + ` or
--manager-token.`,
		Example: `  redykv manager --allocator local --transport shm
  curl -d '{"capacity": 1073741824}' -H 'Content-Type: application/json' \
    http://127.0.0.1:7070/redykv.manager.v1.ManagerService/Allocate`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runManager(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7070", "address to listen on")
	flags.StringVar(&f.advertise, "advertise", "", "`URL` at which launched servers reach this manager (default: the listen address)")
	flags.StringVar(&f.managers, "managers", "", "`URLs` of all managers of the --catalog, separated by commas, that launched servers call (default: --advertise)")
	flags.StringVar(&f.allocator, "allocator", "local", "what starts cache servers when registered ones do not suffice: local, kubernetes for pods, or static for nothing")
	flags.StringVar(&f.transport, "transport", "", "transport of caches that request none: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default: shm; tcp with --allocator static)")
	flags.Var(&f.memory, "memory", "maximum memory that all local servers lend together (default: the machine's)")
	flags.Var(&f.vmMemory, "vm-memory", "maximum memory of one local server; larger caches get several (default: no limit)")
	flags.Var(&f.rate, "migration-rate", "bytes a second at which caches leave a reclaimed VM, for clients that have measured no moves, until three others have; decides which spot VMs a cache may get (default: from a short measurement, if the menu has spot VMs)")
	flags.Var(&f.pinning, "pinning", "whether each thread of local servers is pinned to a processor: "+affinity.Modes())
	flags.Var(&f.cpus, "cpus", "processors that local servers run on, such as 1 or 4-7,12; Linux only (default: those of the manager)")
	flags.DurationVar(&f.heartbeat, "heartbeat", 5*time.Second, "interval at which servers report to the manager")
	flags.Lookup("heartbeat").DefValue = "5s, or a fifth of --silence if that is less"
	flags.DurationVar(&f.silence, "silence", 0, "time without a heartbeat after which a server is suspected, or removed if it has no cache (default: 5 heartbeats)")
	flags.DurationVar(&f.lease, "lease", 30*time.Second, "time after which a cache is deallocated if its client does not renew it; 0: never, not even one whose client has ended before the answer")
	flags.DurationVar(&f.grace, "renewal-grace", manager.DefaultRenewalGrace, "time for which a cache is kept while its client's renewals are refused for their token; 0: none")
	flags.DurationVar(&f.maxLinger, "max-linger", manager.DefaultMaxLinger, "maximum time for which a cache is kept, and paid for, after its lease has ended, if its client asked for that (--cache-linger of redykv serve); 0: none")
	flags.BoolVar(&f.enforce, "enforce-duration", false, "deallocate caches when the duration that their clients requested ends (default: keep them)")
	flags.StringVar(&f.state, "state", "", "`DIRECTORY` for the manager's records, with which local servers outlive it (default: $XDG_STATE_HOME/redykv/manager/HOST-PORT, and local servers end with it)")
	flags.StringVar(&f.catalog, "catalog", "", "`URL` of the manager's records instead of --state: etcd://[USER:PASSWORD@]HOST:2379,…/PREFIX, pebble:DIRECTORY, or memory:")
	flags.BoolVar(&f.moved, "moved", false, "use records whose manager was at another address: servers and clients that call the old address are lost (default: refuse)")
	f.tls.add(flags)
	flags.StringVar(&f.metrics, "metrics", "", "HTTP address for operators: /metrics for Prometheus, /debug/pprof/ (default: off)")
	f.menu.add(flags)
	f.guard.add(flags)
	f.kube.add(flags)
	flags.StringArrayVar(&f.models, "model", nil, "`file` of a performance model (redykv model build) to search before those that are part of the program; may be given several times")
	flags.Float64Var(&f.margin, "slo-margin", manager.DefaultSLOMargin, "how much better than an SLO the prediction must be, as a share of its bounds: what other load and a model's errors may take (redykv slo check measures it)")
	flags.StringVar(&f.slo, "slo", "margin", "what an SLO gets for which there is no model of this kind of machine, nor a calibration: margin for a configuration with more margin (--uncalibrated-margin), strict for a refusal")
	flags.Float64Var(&f.foreign, "uncalibrated-margin", manager.DefaultUncalibratedMargin, "--slo-margin for predictions by models of other machines; the larger one counts")
	flags.BoolVar(&f.calibrate, "calibrate", calibrates, "when servers come of a kind of machine without a --model, measure one that is idle for at most 20s, while this machine is idle, and scale the nearest model by that")
	flags.StringVar(&f.sloWatch, "slo-watch", manager.Correct.String(), "what is done with what clients measure: on to correct models and change caches whose SLO is broken, observe to tell only, off for nothing")
	flags.IntVar(&f.changes, "slo-changes", manager.DefaultSLOChanges, "maximum number of changes an hour that a cache is asked to make for its SLO")
	flags.BoolVar(&f.untilStdin, "until-stdin-ends", false, "exit when standard input ends")
	f.log.add(flags)
	cmd.AddCommand(newReclaimCmd(), newMarketCmd(), newManagerCheckCmd())
	return cmd
}

// options checks the flags and makes the allocator.
func (f managerFlags) options(log *slog.Logger) (manager.Options, error) {
	opts := manager.Options{
		Transport: f.transport, VMMemory: uint64(f.vmMemory), URL: f.advertise, Managers: f.managers, MigrationRate: float64(f.rate),
		Heartbeat: f.heartbeat, Silence: f.silence, Lease: cmp.Or(f.lease, -1), RenewalGrace: cmp.Or(f.grace, -1), MaxLinger: cmp.Or(f.maxLinger, -1), // 0 would mean the default
		EnforceDuration: f.enforce, State: f.state, Catalog: f.catalog, Moved: f.moved, SLOMargin: cmp.Or(f.margin, -1), UncalibratedMargin: cmp.Or(f.foreign, -1), SLOStrict: f.slo == "strict", SLOChanges: f.changes, Logger: log,
	}
	if f.calibrate {
		opts.Calibrate = modelbench.Calibrate
	}
	var err error
	if opts.SLOWatch, err = manager.ParseSLOWatch(f.sloWatch); err != nil {
		return opts, usagef("--slo-watch %w", err)
	}
	switch {
	case !slices.Contains([]string{"local", "static", "kubernetes"}, f.allocator):
		return opts, usagef("--allocator %q: want local, static or kubernetes", f.allocator)
	case (f.allocator == "kubernetes") != (f.kube.config != ""):
		return opts, usagef("--allocator kubernetes and --kubernetes require each other")
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return opts, usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.allocator != "local" && (f.memory != 0 || f.vmMemory != 0):
		return opts, usagef("--memory and --vm-memory require --allocator local: registered servers have their own --memory")
	case f.allocator != "local" && f.pinning != server.PinAuto:
		return opts, usagef("--pinning requires --allocator local: registered servers have their own --pinning")
	case f.allocator != "local" && len(f.cpus) > 0:
		return opts, usagef("--cpus requires --allocator local: registered servers run where they were started")
	case f.allocator != "local" && f.menu.menu != "":
		return opts, usagef("--menu requires --allocator local: registered servers have their own --price")
	case f.tls != (tlsFlags{}) && f.allocator == "local" && f.transport != "tcp":
		return opts, usagef("--tls-cert requires --transport tcp with --allocator local")
	case f.state != "" && f.catalog != "":
		return opts, usagef("--state and --catalog: want one of them")
	case f.moved && !f.inDirectory():
		return opts, usagef("--moved requires records in a directory")
	case f.slo != "margin" && f.slo != "strict":
		return opts, usagef("--slo %q: want margin or strict", f.slo)
	case f.changes < 1:
		return opts, usagef("--slo-changes %d: want 1 or more; --slo-watch=observe changes nothing", f.changes)
	case f.rate < 0:
		return opts, usagef("--migration-rate %v: want 0 or more bytes a second", f.rate)
	case f.heartbeat < time.Millisecond || f.silence != 0 && f.silence < f.heartbeat:
		return opts, usagef("--heartbeat %v --silence %v: want a heartbeat of 1ms or more, and a silence that is not shorter", f.heartbeat, f.silence)
	case f.maxLinger < 0 || f.maxLinger > manager.MostLinger:
		return opts, usagef("--max-linger %v: want 0 for none, to %v", f.maxLinger, manager.MostLinger)
	case f.grace < 0:
		return opts, usagef("--renewal-grace %v: want 0 for none, or more", f.grace)
	case f.lease < 0 || f.lease > 0 && f.lease < time.Millisecond:
		return opts, usagef("--lease %v: want 0 for never, or 1ms or more", f.lease)
	}
	if err := cmp.Or(checkMargin("--slo-margin", f.margin), checkMargin("--uncalibrated-margin", f.foreign), checkListen("--listen", f.listen), checkOptional("--metrics", f.metrics),
		checkURL("--advertise", f.advertise), checkURLs("--managers", f.managers), f.guard.check(f.listen)); err != nil {
		return opts, err
	}
	if f.catalog != "" {
		if err := catalog.Check(f.catalog, catalog.FromEnv()); err != nil {
			return opts, usageError{err}
		}
	}
	if err := f.guard.apply(&opts, f.allocator == "local", log); err != nil {
		return opts, err
	}
	local := allocator.LocalOptions{Transport: f.transport, Memory: uint64(f.memory), State: f.state, Pinning: f.pinning, CPUs: f.cpus, Logger: log}
	if err := f.menu.options(&opts, &local, log); err != nil {
		return opts, err
	}
	if opts.Models, err = parseAll(f.models, model.Load); err != nil {
		return opts, err
	}
	if opts.ServerTLS, err = f.tls.config(); err != nil || f.allocator == "static" {
		return opts, err
	}
	if f.allocator == "kubernetes" {
		opts.Allocator, err = f.kube.open(f.transport, log)
		return opts, err
	}
	if err := checkTransport(f.transport); err != nil {
		return opts, err
	}
	if local.Command, err = f.tls.command(); err != nil {
		return opts, err
	}
	opts.Allocator, err = allocator.NewLocal(local)
	return opts, err
}

// checkTransport returns an error for a transport that the servers on this machine cannot use.
// Without this check, the first cache would fail.
func checkTransport(name string) error {
	if name == "" {
		return nil
	}
	p, err := transport.Open(name)
	if err != nil {
		return err
	}
	return p.Close()
}

// runManager serves until the command's context ends, and then closes the manager.
func runManager(cmd *cobra.Command, f managerFlags) (err error) {
	outliveReaders()
	if f.untilStdin {
		cmd.SetContext(bench.UntilEnd(cmd.Context(), cmd.InOrStdin()))
	}
	go boundGarbage(cmd.Context())
	if !cmd.Flags().Changed("heartbeat") && f.silence > 0 {
		f.heartbeat = min(f.heartbeat, max(f.silence/5, time.Millisecond))
	}
	opts, err := f.options(f.log.logger(cmd))
	if err != nil {
		return err
	}
	registry := newRegistry()
	var opened atomic.Pointer[manager.Manager]
	status := func() string {
		switch m := opened.Load(); {
		case m == nil:
			return "the manager is being opened"
		case !m.Metrics().Leads:
			return "another manager leads, or none"
		}
		return console.Ready
	}
	details := func() any {
		if m := opened.Load(); m != nil {
			return map[string]any{"caches": m.SLOs()}
		}
		return nil
	}
	page := console.New(console.Options{Kind: "manager", Version: version(), Metrics: registry, Status: status, Details: details, Logger: opts.Logger})
	defer page.Close()
	opts.Pages = page.Handle
	m, ln, err := f.open(cmd.Context(), &opts)
	if err != nil {
		return err
	}
	registry.MustRegister(prom.NewCollector(m))
	opened.Store(m)
	if opts.State != "" {
		opts.Logger.Info("records are kept", "directory", opts.State)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeTimeout)
		defer cancel()
		page.Close() // else its connections would be waited for
		err = errors.Join(err, m.Close(ctx))
	}()
	metrics, err := listenHTTP(cmd.Context(), f.metrics, opts.Logger)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer metrics.close()
	scheme := "http"
	if opts.TLS != nil {
		scheme = "https"
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	select {
	case <-m.Serving():
		fmt.Fprintf(cmd.OutOrStdout(), "manager ready at %s://%s%s\n", scheme, ln.Addr(), serveMetrics(metrics, registry))
	case err := <-served:
		if errors.Is(err, manager.ErrStateAddress) {
			err = fmt.Errorf("%w; --moved starts nevertheless", err)
		}
		return err
	}
	select {
	case err := <-served:
		return err
	case <-cmd.Context().Done():
		return nil
	}
}
