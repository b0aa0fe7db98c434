package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/redytier/proxy"
	"github.com/redykv/redykv/redytier/proxy/prom"
)

// cacheProxyFlags are the flags of cache proxy.
type cacheProxyFlags struct {
	listen    string
	manager   managerFlag
	transport string
	machine   string
	memory    units.Size
	caches    int
	requests  int
	timeout   time.Duration
	create    time.Duration
	metrics   string
	guard     guardFlags
	tls       tlsFlags
	log       logFlags
}

func newCacheProxyCmd() *cobra.Command {
	f := cacheProxyFlags{memory: proxy.DefaultMemory, log: logFlags{level: slog.LevelInfo}}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Serve Redy caches by HTTP, for programs in any language",
		Long: `Creates, reads, writes and deletes Redy caches for callers of an HTTP API, until it is
interrupted. It prints a line when it is ready. docs/proxy.md describes the API.

The caches belong to the proxy: when it is interrupted, it waits a moment for requests,
and deletes them. If the manager does not answer then, it names the caches that are
left, and exits with 1; their memory is returned when their leases end, as it is when
the proxy is killed.

An address that other machines can reach requires --api-cert and --tokens, or
--insecure. Callers then send a token with the role client in the header
"Authorization: Bearer TOKEN"; each may use all caches of the proxy.`,
		Example: `  redykv cache proxy --manager http://127.0.0.1:7070
  curl -d '{"capacity": 1048576}' -H 'Content-Type: application/json' http://127.0.0.1:7080/v1/caches
  curl -X PUT --data-binary hello -H 'Content-Range: bytes 0-4/*' http://127.0.0.1:7080/v1/caches/ID/bytes
  curl -r 0-4 http://127.0.0.1:7080/v1/caches/ID/bytes`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7080", "address to listen on")
	f.manager.add(flags)
	flags.StringVar(&f.transport, "transport", "", "transport of caches that request none: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default: the manager's)")
	flags.StringVar(&f.machine, "machine", "", "`name` of this machine at the manager's allocator, such as the node of Kubernetes: memory is taken near it")
	flags.Var(&f.memory, "memory", "maximum memory for bytes on their way between callers and caches")
	flags.IntVar(&f.caches, "max-caches", proxy.DefaultMaxCaches, "caches that may exist at a time")
	flags.IntVar(&f.requests, "max-requests", proxy.DefaultMaxRequests, "requests that are served at a time; others are refused")
	flags.DurationVar(&f.timeout, "timeout", proxy.DefaultTimeout, "maximum time of 256 KiB at the cache, and at the caller")
	flags.DurationVar(&f.create, "create-timeout", proxy.DefaultCreateTimeout, "maximum time to wait for the VMs of a new cache")
	flags.StringVar(&f.metrics, "metrics", "", "HTTP address for operators: /metrics for Prometheus, /debug/pprof/ (default: off)")
	f.guard.add(flags)
	f.tls.add(flags)
	f.log.add(flags)
	return cmd
}

// check returns an error for bad flags.
func (f *cacheProxyFlags) check() error {
	if err := cmp.Or(checkListen("--listen", f.listen), checkOptional("--metrics", f.metrics), f.guard.check(f.listen)); err != nil {
		return err
	}
	switch {
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.caches < 1 || f.requests < 1:
		return usagef("--max-caches %d --max-requests %d: want 1 or more of each", f.caches, f.requests)
	case f.memory < proxy.MinMemory:
		return usagef("--memory %v: want %v or more", f.memory, units.Size(proxy.MinMemory))
	case f.timeout <= 0 || f.create <= 0:
		return usagef("--timeout %v --create-timeout %v: want more than 0s of each", f.timeout, f.create)
	}
	return checkMemory("--memory", f.memory)
}

func (f *cacheProxyFlags) options(log *slog.Logger) (opts proxy.Options, err error) {
	opts = proxy.Options{
		Base:   redytier.Config{Transport: f.transport, Machine: f.machine, Logger: log},
		Memory: int64(f.memory), MaxCaches: f.caches, MaxRequests: f.requests, Timeout: f.timeout, CreateTimeout: f.create, Logger: log,
	}
	if opts.Base.FabricTLS, err = f.tls.config(); err != nil {
		return opts, err
	}
	if opts.Tokens, err = f.guard.tokenSet(log); err != nil {
		return opts, err
	}
	opts.TLS, err = f.guard.encryption()
	return opts, err
}

// run serves until the command's context ends, and then deletes the caches.
func (f *cacheProxyFlags) run(cmd *cobra.Command) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	outliveReaders()
	log := f.log.logger(cmd)
	opts, err := f.options(log)
	if err != nil {
		return err
	}
	mgr, err := f.manager.client()
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", f.listen)
	if err != nil {
		return err
	}
	metrics, err := listenHTTP(cmd.Context(), f.metrics, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer metrics.close()
	p, err := proxy.New(mgr, opts)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), closeTimeout)
		defer cancel()
		err = errors.Join(err, p.Close(ctx))
	}()
	scheme := "http"
	if opts.TLS != nil {
		scheme = "https"
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	fmt.Fprintf(cmd.OutOrStdout(), "proxy ready at %s://%s%s\n", scheme, ln.Addr(), serveMetrics(metrics, newRegistry(prom.NewCollector(p))))
	select {
	case err := <-served:
		return err
	case <-cmd.Context().Done():
		return nil
	}
}
