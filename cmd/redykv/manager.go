package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/prom"
	"github.com/redykv/redykv/server"
)

// closeTimeout bounds the wait for pending calls when a command ends.
const closeTimeout = 2 * time.Second

type managerFlags struct {
	listen    string
	advertise string
	allocator string
	transport string
	memory    units.Size
	rate      units.Size
	vmMemory  units.Size
	heartbeat time.Duration
	silence   time.Duration
	lease     time.Duration
	enforce   bool
	state     string
	moved     bool
	metrics   string
	pinning   server.Pinning
	cpus      affinity.CPUs
	tls       tlsFlags
	menu      menuFlags
	guard     guardFlags
	models    []string
	margin    float64
	log       logFlags
}

func newManagerCmd() *cobra.Command {
	f := managerFlags{log: logFlags{level: slog.LevelInfo}}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Allocate remote memory to caches and watch over the servers that lend it",
		Long: `Runs the manager until it is interrupted. It answers Connect, gRPC and JSON at
one address; a line on standard output says so once it does.

Memory comes from cache servers that were started by hand with this manager's
address (redykv cacheserver --manager URL). Where those do not hold a cache,
the local allocator starts cache servers on this machine; they end with the
cache or with the manager.

With --menu the local allocator sells VMs as a cloud does: of certain types, at
prices that change, some of which may be taken back. Caches get the cheapest
VMs that serve them, and move to others that have become cheaper.

With --state the manager keeps what it knows in a directory, and a manager that
is started again there, at the same address, goes on where the last one ended:
caches keep their memory meanwhile, and the cache servers of the local allocator
go on, too. At another address it refuses to start, as they would not find it.

An address that other machines can reach takes --api-cert and --tokens. Whoever
calls shows a token then: redykv's commands take it from $` + access.TokenEnv + `
or --manager-token.`,
		Example: `  redykv manager --allocator local --transport shm
  curl -d '{"capacity": 1073741824}' -H 'Content-Type: application/json' \
    http://127.0.0.1:7070/redykv.manager.v1.ManagerService/Allocate`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runManager(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7070", "address to answer at")
	flags.StringVar(&f.advertise, "advertise", "", "`URL` by which launched servers reach this manager (default: the listen address)")
	flags.StringVar(&f.allocator, "allocator", "local", "who starts servers where none is registered: local, or static for nobody")
	flags.StringVar(&f.transport, "transport", "", "transport of requests that name none: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default shm; tcp with --allocator static)")
	flags.Var(&f.memory, "memory", "most memory that local servers lend together (default: what the machine has)")
	flags.Var(&f.vmMemory, "vm-memory", "most memory of one local server; larger caches get several (default: no limit)")
	flags.Var(&f.rate, "migration-rate", "bytes a second that leave a VM which is reclaimed, until caches have measured it: by it spot VMs are chosen (default: what a short measurement says, with a menu that has spot VMs)")
	flags.Var(&f.pinning, "pinning", "whether threads of local servers stay on one processor each: "+affinity.Modes())
	flags.Var(&f.cpus, "cpus", "processors that local servers may run on, such as 1 or 4-7,12, so that those of clients can be others; Linux only (default: those of the manager)")
	flags.DurationVar(&f.heartbeat, "heartbeat", time.Second, "how often servers have to call")
	flags.DurationVar(&f.silence, "silence", 0, "how long a server may stay silent before it is suspected, or given up if no cache has anything there (default: 5 heartbeats)")
	flags.DurationVar(&f.lease, "lease", 30*time.Second, "how long a cache lives that its client does not renew; 0: until it is deallocated")
	flags.BoolVar(&f.enforce, "enforce-duration", false, "deallocate caches that are older than their clients said they would become (default: they live on)")
	flags.StringVar(&f.state, "state", "", "`DIRECTORY` in which the manager keeps what it knows (default: none; a restart forgets all caches)")
	flags.BoolVar(&f.moved, "moved", false, "go on with a --state whose manager was at another address: servers and clients that call there and are not heard here are lost (default: refuse)")
	f.tls.add(flags)
	flags.StringVar(&f.metrics, "metrics", "", "address to answer at over HTTP: /metrics for Prometheus (default: nowhere)")
	f.menu.add(flags)
	f.guard.add(flags)
	flags.StringArrayVar(&f.models, "model", nil, "`file` of a performance model to search for configurations, before those that come with the program (redykv model build); may be given several times")
	flags.Float64Var(&f.margin, "slo-margin", manager.DefaultSLOMargin, "how much better than an SLO a configuration has to be predicted, as a part of its bounds")
	f.log.add(flags)
	cmd.AddCommand(newReclaimCmd(), newMarketCmd())
	return cmd
}

// options checks the flags and makes the allocator.
func (f managerFlags) options(log *slog.Logger) (manager.Options, error) {
	opts := manager.Options{
		Transport: f.transport, VMMemory: uint64(f.vmMemory), URL: f.advertise, MigrationRate: float64(f.rate),
		Heartbeat: f.heartbeat, Silence: f.silence, Lease: f.lease, EnforceDuration: f.enforce, State: f.state, Moved: f.moved, SLOMargin: f.margin, Logger: log,
	}
	if f.margin == 0 {
		opts.SLOMargin = -1
	}
	if f.lease == 0 {
		opts.Lease = -1
	}
	switch {
	case f.allocator != "local" && f.allocator != "static":
		return opts, usagef("--allocator %q: want local or static", f.allocator)
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return opts, usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.allocator == "static" && (f.memory != 0 || f.vmMemory != 0):
		return opts, usagef("--memory and --vm-memory are for --allocator local: registered servers state their own memory")
	case f.allocator == "static" && f.pinning != server.PinAuto:
		return opts, usagef("--pinning is for --allocator local: registered servers have a flag of their own")
	case f.allocator == "static" && len(f.cpus) > 0:
		return opts, usagef("--cpus is for --allocator local: registered servers run where they were started")
	case f.allocator == "static" && f.menu.menu != "":
		return opts, usagef("--menu is for --allocator local: registered servers state their own price")
	case f.tls != (tlsFlags{}) && f.allocator == "local" && f.transport != "tcp":
		return opts, usagef("--tls-cert: the servers of --allocator local take --transport tcp for it")
	case f.moved && f.state == "":
		return opts, usagef("--moved goes with --state")
	case f.rate < 0:
		return opts, usagef("--migration-rate %v: want bytes a second", f.rate)
	case f.heartbeat < time.Millisecond || f.silence != 0 && f.silence < f.heartbeat:
		return opts, usagef("--heartbeat %v --silence %v: want a heartbeat of 1ms or more, and a silence not below it", f.heartbeat, f.silence)
	case f.lease < 0 || f.lease > 0 && f.lease < time.Millisecond:
		return opts, usagef("--lease %v: want 0 (none), or 1ms or more", f.lease)
	}
	if err := checkMargin(f.margin); err != nil {
		return opts, err
	}
	if err := checkListen("--listen", f.listen); err != nil {
		return opts, err
	}
	if f.metrics != "" {
		if err := checkListen("--metrics", f.metrics); err != nil {
			return opts, err
		}
	}
	if err := checkURL("--advertise", f.advertise); err != nil {
		return opts, err
	}
	if err := f.guard.check(f.listen); err != nil {
		return opts, err
	}
	if err := f.guard.apply(&opts, f.allocator == "local", log); err != nil {
		return opts, err
	}
	local := allocator.LocalOptions{Transport: f.transport, Memory: uint64(f.memory), State: f.state, Pinning: f.pinning, CPUs: f.cpus, Logger: log}
	if err := f.menu.options(&opts, &local, log); err != nil {
		return opts, err
	}
	for _, path := range f.models {
		m, err := model.Load(path)
		if err != nil {
			return opts, err
		}
		opts.Models = append(opts.Models, m)
	}
	var err error
	if opts.ServerTLS, err = f.tls.config(); err != nil || f.allocator == "static" {
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

func runManager(cmd *cobra.Command, f managerFlags) error {
	opts, err := f.options(f.log.logger(cmd))
	if err != nil {
		return err
	}
	m, err := manager.New(opts)
	if err != nil {
		if opts.Allocator != nil {
			err = errors.Join(err, opts.Allocator.Close())
		}
		return err
	}
	scheme := "http"
	if opts.TLS != nil {
		scheme = "https"
	}
	return serveManager(cmd, m, f, scheme, opts.Logger)
}

// serveManager serves until the command's context ends, and then closes m.
func serveManager(cmd *cobra.Command, m *manager.Manager, f managerFlags, scheme string, log *slog.Logger) (err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeTimeout)
		defer cancel()
		err = errors.Join(err, m.Close(ctx))
	}()
	ln, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", f.listen)
	if err != nil {
		return err
	}
	metrics, err := listenSide(cmd.Context(), f.metrics, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer metrics.close()
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	select {
	case <-m.Serving():
		fmt.Fprintf(cmd.OutOrStdout(), "manager ready at %s://%s%s\n", scheme, ln.Addr(), serveMetrics(metrics, prom.NewCollector(m)))
	case err := <-served:
		if errors.Is(err, manager.ErrStateAddress) {
			err = fmt.Errorf("%w; --moved goes on all the same", err)
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
