package main

import (
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

func newCacheServerCmd() *cobra.Command {
	f := cacheServerFlags{log: logFlags{level: slog.LevelInfo}}
	cmd := &cobra.Command{
		Use:   "cacheserver",
		Short: "Lend this machine's memory to caches",
		Long: `Runs a cache server until it is interrupted, and keeps it registered with a
manager. A line on standard output says when it is ready. Memory is taken when
a cache asks for it and given back when the cache goes.

Interrupted, it tells its manager that it is leaving and stays until the caches
have moved away, for --notice at most; interrupted again, it ends at once.

The addresses it listens at are those it tells its clients: name an interface
that they can reach. With --cores 0 it serves one-sided access only.`,
		Example: `  redykv cacheserver --memory 8GiB --cores 1 --transport tcp \
    --listen 10.0.0.2:7071 --fabric-listen 10.0.0.2:7072 --manager http://10.0.0.1:7070`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runCacheServer(cmd, f) },
	}
	flags := cmd.Flags()
	flags.Var(&f.memory, "memory", "most memory to lend (required)")
	flags.Uint32Var(&f.cores, "cores", 0, "most server threads of all caches together")
	flags.Uint32Var(&f.distance, "distance", 0, "switches between this machine and its clients; 0: not known")
	flags.StringVar(&f.transport, "transport", "tcp", "how the memory is reached: "+strings.Join(transport.BetweenProcesses(), ", "))
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "address of the control API")
	flags.StringVar(&f.fabricListen, "fabric-listen", "", "address of the fabric (default for tcp 127.0.0.1:0, for verbs that of an RDMA device)")
	flags.StringVar(&f.manager, "manager", "", "`URL` of the manager to register with (required)")
	flags.StringVar(&f.vmID, "vm-id", "", "id to register with, of this process alone (default: a random one)")
	flags.Float64Var(&f.price, "price", 0, "dollars an hour for all of the memory: caches pay for what they have of it")
	flags.Var(&f.pinning, "pinning", "whether server threads stay on one processor each, on the NUMA node the server was started on: "+affinity.Modes()+"; auto: on machines of several nodes and four processors or more")
	flags.BoolVar(&f.untilStdin, "until-stdin-ends", false, "exit when standard input ends, as it does when the parent process is gone")
	flags.DurationVar(&f.notice, "notice", 30*time.Second, "how long to stay for caches to move away, once interrupted")
	flags.DurationVar(&f.silence, "client-timeout", 3*time.Second, "how long a client may be silent over tcp before its connections are given up")
	f.tls.add(flags)
	f.access.add(flags)
	f.log.add(flags)
	return cmd
}

// options checks the flags.
func (f cacheServerFlags) options(log *slog.Logger) (node.Options, error) {
	opts := node.Options{
		ID: f.vmID, Memory: uint64(f.memory), Cores: f.cores, Distance: f.distance, Transport: f.transport, Price: plan.Dollars(f.price),
		Listen: f.listen, FabricListen: f.fabricListen, Pinning: f.pinning, ClientTimeout: f.silence, Logger: log,
	}
	switch {
	case f.memory == 0:
		return opts, usagef("--memory: want the memory to lend, such as 8GiB")
	case f.cores > math.MaxUint8:
		return opts, usagef("--cores %d: want 0 to %d", f.cores, math.MaxUint8)
	case !slices.Contains(transport.BetweenProcesses(), f.transport):
		return opts, usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.tls != (tlsFlags{}) && f.transport != "tcp":
		return opts, usagef("--transport %s --tls-cert: only tcp is encrypted", f.transport)
	case !(f.price >= 0 && f.price <= plan.MaxPrice.Dollars()):
		return opts, usagef("--price %v: want 0 to %v", f.price, plan.MaxPrice.Dollars())
	case f.silence <= 0:
		return opts, usagef("--client-timeout %v: want more than 0s", f.silence)
	case f.notice < 0 || f.notice > node.MaxNotice:
		return opts, usagef("--notice %v: want 0 to %v", f.notice, node.MaxNotice)
	}
	if err := checkListen("--listen", f.listen); err != nil {
		return opts, err
	}
	if f.fabricListen != "" && f.transport != "shm" {
		if err := checkListen("--fabric-listen", f.fabricListen); err != nil {
			return opts, err
		}
	}
	if err := checkURL("--manager", f.manager); err != nil {
		return opts, err
	}
	var err error
	if opts.FabricTLS, err = f.tls.config(); err != nil {
		return opts, err
	}
	if f.manager == "" {
		return opts, usagef("--manager: want the URL of a manager, which tells caches of this server")
	}
	opts.ControlTLS = opts.FabricTLS
	if opts.ID == "" {
		opts.ID = "server-" + rand.Text()
	}
	return opts, nil
}

func runCacheServer(cmd *cobra.Command, f cacheServerFlags) (err error) {
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
			// The end of the input means that the parent process has ended.
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			stop()
		}()
	}
	node, err := node.Start(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	ready := func() { fmt.Fprintf(cmd.OutOrStdout(), "cache server ready: %v\n", node) }
	defer context.AfterFunc(cmd.Context(), func() {
		node.Leave(serving, mgr, f.notice)
		stop()
	})()
	return node.Announce(serving, mgr, ready)
}
