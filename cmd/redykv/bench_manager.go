package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	managerbench "github.com/redykv/redykv/internal/bench/manager"
	"github.com/redykv/redykv/internal/selfsigned"
	"github.com/redykv/redykv/ycsb"
)

// managerReady begins the line with which a manager prints its address.
const managerReady = "manager ready at "

// benchManagerFlags are the flags of bench manager.
type benchManagerFlags struct {
	spec     managerbench.Spec
	catalog  string
	delay    time.Duration
	lease    time.Duration
	tls      bool
	tokens   bool
	jsonPath string
}

func newBenchManagerCmd() *cobra.Command {
	f := benchManagerFlags{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Measure a manager with thousands of servers and clients",
		Long: `Starts redykv manager as a process of its own, and plays cache servers and clients
over loopback, each with a connection of its own. Every --heartbeat each server sends a
heartbeat, and the lease of each cache is renewed. The phases are:

  register  all servers register
  beats     servers, later also caches, do nothing but beat
  allocate  half of the caches, of one region of 1 MiB each, are allocated by callers that
            call again at once
  paced     the other half is allocated at --rate
  churn     further caches are allocated and deallocated
  rack      one VM in five, at most 500, used ones first, ends at once: they refuse connections
            and stop beating, and each VM is reclaimed without notice, as by a platform.
            Measured until the last cache with memory there was told of its loss.
  restart   the manager is killed and started again
  takeover  the manager is killed while another one stands by (etcd)

CPUs and memory are those of the manager's process (Linux). Where a process may have too
few connections for one of each server and client, they share some (--connections).`,
		Example: "  redykv bench manager --vms 1000 --caches 2000 --catalog pebble --delay 5ms --tls --tokens",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.spec.VMs, "vms", 10_000, "cache servers")
	flags.IntVar(&f.spec.Caches, "caches", 20_000, "caches to allocate")
	flags.IntVar(&f.spec.Clients, "clients", 0, "clients that the caches belong to (default: half as many as caches)")
	flags.IntVar(&f.spec.Connections, "connections", 0, "connections that carry the beats (default: one for each server and client, at most 15000)")
	flags.IntVar(&f.spec.Callers, "callers", 64, "goroutines that call at once")
	flags.Float64Var(&f.spec.Rate, "rate", 400, "allocations a second of the phase paced")
	flags.StringVar(&f.catalog, "catalog", "memory", "the manager's catalog: memory, pebble in a temporary directory, etcd (started from PATH for the measurement), or a `URL` as of redykv manager --catalog")
	flags.DurationVar(&f.delay, "delay", 0, "additional time of each write to the catalog, such as 5ms for a slow disk")
	flags.DurationVar(&f.spec.Heartbeat, "heartbeat", 5*time.Second, "interval of a server's heartbeats, and of the renewals of a cache's lease")
	flags.DurationVar(&f.lease, "lease", 30*time.Second, "lease of the caches")
	flags.DurationVar(&f.spec.Duration, "duration", 10*time.Second, "time of each phase that has no end of its own")
	flags.BoolVar(&f.spec.Prices, "prices", false, "each server has a price of its own")
	flags.BoolVar(&f.spec.Watches, "watches", false, "each cache is watched from its allocation on, as its client does")
	flags.BoolVar(&f.tls, "tls", false, "connections to the manager are encrypted")
	flags.BoolVar(&f.tokens, "tokens", false, "each connection has a token of its own")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	return cmd
}

// mostConnections is the default maximum of --connections.
const mostConnections = 15_000

// defaults sets the flags that depend on others.
func (f *benchManagerFlags) defaults() {
	s := &f.spec
	if s.Clients == 0 {
		s.Clients = (s.Caches + 1) / 2
	}
	if s.Connections == 0 {
		s.Connections = min(s.VMs+s.Clients, mostConnections)
	}
}

func (f *benchManagerFlags) run(cmd *cobra.Command) (err error) {
	f.defaults()
	s := &f.spec
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	url := f.catalog
	switch f.catalog {
	case "memory":
		url = "memory:"
	case "pebble":
		dir, err := os.MkdirTemp("", "redykv-bench-manager-")
		if err != nil {
			return fmt.Errorf("directory of the catalog: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "pebble:" + dir
	case "etcd":
		address, stop, err := startEtcd(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		url = "etcd://" + address + "/bench"
	}
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		return usagef("--catalog %q: want memory, pebble, etcd or a URL", f.catalog)
	}
	s.Catalog, s.Durable, s.Standby = scheme, scheme != "memory", strings.HasPrefix(scheme, "etcd")
	if f.delay > 0 {
		s.Catalog += fmt.Sprintf(" + %v", f.delay)
		mark := "?"
		if strings.Contains(url, "?") {
			mark = "&"
		}
		url += mark + "delay=" + f.delay.String()
	}
	var more []string
	if f.tls {
		s.Catalog += " + tls"
		dir, err := os.MkdirTemp("", "redykv-bench-manager-")
		if err != nil {
			return fmt.Errorf("directory of the certificate: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		c, err := selfsigned.New()
		if err != nil {
			return err
		}
		cert, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
		if err := c.Write(cert, key); err != nil {
			return err
		}
		s.TLS = &tls.Config{RootCAs: c.Authority, MinVersion: tls.VersionTLS12}
		more = append(more, "--api-cert", cert, "--api-key", key)
	}
	if f.tokens {
		s.Catalog += " + tokens"
		file, err := os.CreateTemp("", "redykv-bench-manager-*.tokens")
		if err != nil {
			return fmt.Errorf("tokens: %w", err)
		}
		defer func() { _ = os.Remove(file.Name()) }()
		text := s.MakeTokens()
		if _, err := file.WriteString(text); err != nil {
			return errors.Join(fmt.Errorf("tokens: %w", err), file.Close())
		}
		if err := file.Close(); err != nil {
			return fmt.Errorf("tokens: %w", err)
		}
		more = append(more, "--tokens", file.Name())
	}
	if s.Prices {
		s.Catalog += " + prices"
	}
	if s.Watches {
		s.Catalog += " + watches"
	}
	s.Start = func(ctx context.Context, listen string) (*bench.Child, error) {
		return bench.StartChild(ctx, cmd.ErrOrStderr(), managerReady, append([]string{
			"manager", "--until-stdin-ends", "--calibrate=false", "--allocator", "static",
			"--transport", "tcp", "--listen", listen, "--catalog", url, "--lease", f.lease.String(), "--heartbeat", s.Heartbeat.String(),
			"--silence", max(5*s.Heartbeat, time.Minute).String(), // no server is lost but by the phase rack
			"--log-level", "error",
		}, more...)...)
	}
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return managerbench.Run(cmd.Context(), *s, p)
	})
}

// startEtcd starts an etcd with an empty directory. Managers wait until it serves. stop ends
// it and removes the directory.
func startEtcd(ctx context.Context) (address string, stop func() error, err error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return "", nil, fmt.Errorf("--catalog etcd: %w: install it, or name a running one by its URL", err)
	}
	dir, err := os.MkdirTemp("", "redykv-bench-manager-")
	if err != nil {
		return "", nil, fmt.Errorf("directory of etcd: %w", err)
	}
	var addresses [2]string // of clients and of other members
	for i := range addresses {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, errors.Join(fmt.Errorf("address of etcd: %w", err), os.RemoveAll(dir))
		}
		addresses[i] = ln.Addr().String()
		defer func() { _ = ln.Close() }() // both at once, so that they differ
	}
	clients, members := "http://"+addresses[0], "http://"+addresses[1]
	etcd := exec.Command(program, "--data-dir", dir, "--log-level", "fatal", "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", members, "--initial-advertise-peer-urls", members, "--initial-cluster", "default="+members)
	etcd.Stderr = os.Stderr
	if err := etcd.Start(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("start etcd: %w", err), os.RemoveAll(dir))
	}
	return addresses[0], func() error {
		_ = etcd.Process.Kill() // it may have ended
		_ = etcd.Wait()         // it was killed
		return os.RemoveAll(dir)
	}, nil
}
