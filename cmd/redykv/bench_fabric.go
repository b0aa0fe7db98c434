package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/ycsb"
)

// benchFabricReady begins the line with which the server prints its address.
const benchFabricReady = "fabric ready at "

// benchFabricFlags are the flags of bench fabric.
type benchFabricFlags struct {
	spec       fabricbench.Spec
	net        string
	idle       string
	ops, sizes []string
	memory     units.Size
	connect    string
	listen     bool
	untilStdin bool
	jsonPath   string
}

func newBenchFabricCmd() *cobra.Command {
	f := benchFabricFlags{memory: 256 << 20}
	cmd := &cobra.Command{
		Use:   "fabric [--listen [ADDR]]",
		Short: "Measure a transport alone",
		Long: `Reads and writes memory of another process at random addresses, like ib_read_lat,
ib_write_lat and ib_read_bw over RDMA verbs, through one queue pair, owned by one
goroutine: each operation with each size and each number in flight, alternately.

  read, write  one-sided
  mixed        one read for each write; mixed:95 is 95 % reads
  message      a write that notifies the server, which answers with another one

The server is started as a second process (over mem: in this one). With --connect it
is one that was started with --listen, usually on another machine; some transports need
an address to listen on, such as 10.0.0.2:7073.

The mean latency is the number in flight over the throughput; percentiles are of a
sample, so that reading the clock takes at most 2 % of the time. allocs/op counts
allocations of this process.`,
		Example: `  redykv bench fabric --transport shm --size 8,64,4KiB --depth 1,16
  redykv bench fabric --transport tcp --listen 10.0.0.2:7073
  redykv bench fabric --transport tcp --connect 10.0.0.2:7073`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.net, "net", "none", "model of the network between client and server: "+fabric.ModelUsage)
	flags.StringSliceVar(&f.ops, "op", []string{"read", "write"}, "operations: "+bench.Names(fabricbench.Ops)+", or mixed:95 for 95 % reads")
	flags.StringSliceVar(&f.sizes, "size", []string{"8", "64", "1KiB", "4KiB"}, "sizes of operations")
	flags.IntSliceVar(&f.spec.Depths, "depth", []int{1, 16}, "operations in flight")
	flags.StringVar(&f.idle, "idle", "", "what client and server do while idle: "+bench.Names(fabricbench.Idles)+" (default: wait over tcp, otherwise poll)")
	flags.DurationVar(&f.spec.Duration, "duration", time.Second, "time of each measurement, all slices together")
	flags.Var(&f.memory, "memory", "memory that the server lends to each client")
	flags.StringVar(&f.connect, "connect", "", "`address` of a server started with --listen")
	flags.BoolVar(&f.listen, "listen", false, "run as the server, at the given address if any, until interrupted")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	flags.BoolVar(&f.untilStdin, "until-stdin-ends", false, "with --listen: exit when standard input ends")
	return cmd
}

// parse sets the spec from the flags.
func (f *benchFabricFlags) parse(cmd *cobra.Command, args []string) (err error) {
	s := &f.spec
	switch {
	case !slices.Contains(transport.Names(), s.Transport):
		return fmt.Errorf("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	case len(args) > 0 && !f.listen:
		return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	case f.listen && f.connect != "":
		return errors.New("--listen and --connect exclude each other")
	case (f.listen || f.connect != "") && s.Transport == mem.Name:
		return errors.New("--listen and --connect: transport mem works within one process only")
	case f.memory < fabricbench.MinMemory:
		return fmt.Errorf("--memory %v: want at least %v", f.memory, units.Size(fabricbench.MinMemory))
	}
	if s.Model, err = fabric.ParseModel(f.net); err != nil {
		return err
	}
	for _, name := range f.ops {
		s.Ops = append(s.Ops, fabricbench.Op(name))
	}
	if s.Sizes, err = units.ParseSizes(f.sizes); err != nil {
		return err
	}
	if s.Idle = fabricbench.Idle(f.idle); f.idle == "" {
		s.Idle = fabricbench.DefaultIdle(s.Transport)
	}
	return s.Check()
}

func (f *benchFabricFlags) run(cmd *cobra.Command, args []string) (err error) {
	if err := f.parse(cmd, args); err != nil {
		return usageError{err}
	}
	p, err := transport.Open(f.spec.Transport)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if f.connect == "" {
		if err := checkMemory("--memory", f.memory); err != nil {
			return err
		}
	}
	if f.listen {
		return f.serve(cmd, p, args)
	}
	return runMeasurement(cmd, f.jsonPath, func(progress ycsb.Progress) (measurement, error) {
		addr, stop := f.connect, func() error { return nil }
		if addr == "" {
			if addr, stop, err = startFabric(cmd, p, int(f.memory)); err != nil {
				return nil, err
			}
		}
		report, err := fabricbench.Run(cmd.Context(), p, addr, f.spec, progress)
		return report, errors.Join(err, stop())
	})
}

// checkMemory returns an error for a size larger than this machine's memory.
func checkMemory(flag string, size units.Size) error {
	if total := node.MachineMemory(); uint64(size) > total {
		return &api.CapacityError{What: flag + ": memory of this machine", Asked: uint64(size), Available: total}
	}
	return nil
}

// serve runs the server, for a user or for a parent process.
func (f *benchFabricFlags) serve(cmd *cobra.Command, p fabric.Provider, args []string) error {
	ctx := cmd.Context()
	if f.untilStdin {
		ctx = bench.UntilEnd(ctx, cmd.InOrStdin())
	}
	addr := strings.Join(args, "")
	return fabricbench.Serve(ctx, p, addr, int(f.memory), func(addr string) {
		fmt.Fprintln(cmd.OutOrStdout(), benchFabricReady+addr)
	})
}

// startFabric starts a server on a provider's transport. It lends memory bytes to each peer.
// stop ends it.
func startFabric(cmd *cobra.Command, p fabric.Provider, memory int) (addr string, stop func() error, err error) {
	if p.Name() == mem.Name {
		return fabricbench.ServeHere(cmd.Context(), p, memory)
	}
	child, err := bench.StartChild(cmd.Context(), cmd.ErrOrStderr(), benchFabricReady, "bench", "fabric", "--listen",
		"--until-stdin-ends", "--transport", p.Name(), "--memory", strconv.Itoa(memory))
	if err != nil {
		return "", nil, err
	}
	return child.Ready, child.Close, nil
}
