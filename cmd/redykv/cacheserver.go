package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
	"github.com/redykv/redykv/server"
)

type cacheServerFlags struct {
	memory       units.Size
	sparse       bool
	cores        uint32
	distance     uint32
	transport    string
	listen       string
	fabricListen string
	manager      string
	access       accessFlags
	vmID         string
	price        float64
	pinning      server.Pinning
	untilStdin   bool
	notice       time.Duration
	silence      time.Duration
	tls          tlsFlags
	log          logFlags
}

// cacheServerReady begins the line that says that the server is ready.
const cacheServerReady = "cache server ready: "

func newCacheServerCmd() *cobra.Command {
	f := cacheServerFlags{log: logFlags{level: slog.LevelInfo}}
	cmd := &cobra.Command{
		Use:   "cacheserver",
		Short: "Run a cache server, which lends this machine's memory to caches",
		Long: `Runs a cache server until it is interrupted, and keeps it registered with a
manager. It prints a line when it is ready. Memory is allocated when a cache gets
it, and released with the cache.

When it is interrupted, it announces to its manager that it leaves, and runs on
until the caches have moved away, for --notice at most. A second interrupt ends it
at once.

Clients use the addresses it listens on: name an interface that they can reach.
With --cores 0 it serves one-sided access only.`,
		Example: `  redykv cacheserver --memory 8GiB --cores 1 --transport tcp \
    --listen 10.0.0.2:7071 --fabric-listen 10.0.0.2:7072 --manager http://10.0.0.1:7070`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runCacheServer(cmd, f) },
	}
	flags := cmd.Flags()
	flags.Var(&f.memory, "memory", "memory to lend (required)")
	flags.BoolVar(&f.sparse, "sparse", false, "take memory of the machine only for what caches write, in small pages; --memory may then be more than the machine has")
	flags.Uint32Var(&f.cores, "cores", 0, "maximum number of server threads, of all caches together")
	flags.Uint32Var(&f.distance, "distance", 0, "distance to clients, in switches; 0: unknown")
	flags.StringVar(&f.transport, "transport", "tcp", "transport to clients: "+strings.Join(transport.BetweenProcesses(), ", "))
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "address to serve the control API on")
	flags.StringVar(&f.fabricListen, "fabric-listen", "", "address to serve the transport on (default: 127.0.0.1:0 for tcp, that of an RDMA device for verbs)")
	flags.StringVar(&f.manager, "manager", "", "`URL` of the manager to register with, or those of several, separated by commas (required)")
	flags.StringVar(&f.vmID, "vm-id", "", "id to register with; must be unique (default: a random one)")
	flags.Float64Var(&f.price, "price", 0, "price of all memory in dollars an hour; a cache pays for its part")
	flags.Var(&f.pinning, "pinning", "whether each server thread is pinned to a processor of the NUMA node that the server was started on: "+affinity.Modes()+"; auto: on machines with several nodes and at least four processors")
	flags.BoolVar(&f.untilStdin, "until-stdin-ends", false, "exit when standard input ends, which it does when the parent process has ended")
	flags.DurationVar(&f.notice, "notice", 30*time.Second, "maximum time to wait for caches to move away after an interrupt")
	flags.DurationVar(&f.silence, "client-timeout", 3*time.Second, "time without a message over tcp after which a client's connections are closed")
	f.tls.add(flags)
	f.access.add(flags)
	f.log.add(flags)
	return cmd
}

// options checks the flags.
func (f cacheServerFlags) options(log *slog.Logger) (node.Options, error) {
	opts := node.Options{
		ID: f.vmID, Memory: uint64(f.memory), Sparse: f.sparse, Cores: f.cores, Distance: f.distance, Transport: f.transport, Price: plan.Dollars(f.price),
		Listen: f.listen, FabricListen: f.fabricListen, Pinning: f.pinning, ClientTimeout: f.silence, Logger: log,
	}
	switch {
	case f.memory == 0:
		return opts, usagef("--memory is missing: name the memory to lend, such as 8GiB")
	case f.cores > math.MaxUint8:
		return opts, usagef("--cores %d: want 0 to %d", f.cores, math.MaxUint8)
	case !slices.Contains(transport.BetweenProcesses(), f.transport):
		return opts, usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.tls != (tlsFlags{}) && f.transport != "tcp":
		return opts, usagef("--tls-cert: transport %s is not encrypted, only tcp is", f.transport)
	case !(f.price >= 0 && f.price <= plan.MaxPrice.Dollars()):
		return opts, usagef("--price %v: want 0 to %v", f.price, plan.MaxPrice.Dollars())
	case f.silence <= 0:
		return opts, usagef("--client-timeout %v: want more than 0s", f.silence)
	case f.notice < 0 || f.notice > node.MaxNotice:
		return opts, usagef("--notice %v: want 0 to %v", f.notice, node.MaxNotice)
	}
	err := cmp.Or(checkListen("--listen", f.listen), checkURLs("--manager", f.manager))
	if f.transport != "shm" {
		err = cmp.Or(err, checkOptional("--fabric-listen", f.fabricListen))
	}
	if err != nil {
		return opts, err
	}
	if opts.FabricTLS, err = f.tls.config(); err != nil {
		return opts, err
	}
	if f.manager == "" {
		return opts, usagef("--manager is missing: name the URL of the manager to register with")
	}
	opts.ControlTLS = opts.FabricTLS
	opts.ID = cmp.Or(opts.ID, "server-"+rand.Text())
	return opts, nil
}

func runCacheServer(cmd *cobra.Command, f cacheServerFlags) (err error) {
	outliveReaders()
	opts, err := f.options(f.log.logger(cmd))
	if err != nil {
		return err
	}
	mgr, err := f.access.dial(f.manager)
	if err != nil {
		return err
	}
	// An interrupt makes the server leave. It serves until it has left.
	serving, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer stop()
	if f.untilStdin {
		go func() {
			// When the parent process ends, so does the input.
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			stop()
		}()
	}
	node, err := node.Start(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	ready := func() { fmt.Fprintf(cmd.OutOrStdout(), "%s%v\n", cacheServerReady, node) }
	defer context.AfterFunc(cmd.Context(), func() {
		node.Leave(serving, mgr, f.notice)
		stop()
	})()
	return node.Announce(serving, mgr, ready)
}
