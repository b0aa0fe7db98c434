package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	modelbench "github.com/redykv/redykv/internal/bench/model"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

func newModelCmd() *cobra.Command {
	return newGroup("model", "Build, show and search performance models of transports",
		newModelBuildCmd(), newModelShowCmd(), newModelSearchCmd(), newModelListCmd(), newModelCalibrateCmd())
}

// modelBuildFlags are the flags of model build.
type modelBuildFlags struct {
	spec         modelbench.BuildSpec
	idle         string
	records      []string
	capacity     units.Size
	connect, out string
	resume       bool
	log          logFlags
}

func newModelBuildCmd() *cobra.Command {
	f := modelBuildFlags{capacity: 256 << 20, log: logFlags{level: slog.LevelWarn}}
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Measure a transport, so that a manager can choose configurations for SLOs",
		Long: `Measures a cache in one configuration after another and writes the results to a file:
a model, in which a manager finds the cheapest configuration that meets an SLO.

The measured values of client threads (c), server threads (s), requests in a batch
(b) and batches in flight on a connection (q) are powers of two and the bounds, with
as many requests in flight as fit. Where a larger value of a parameter gains nothing,
still larger ones are not measured. Reads and writes take turns in slices; a
measurement is the mean of all slices after a warm-up. A configuration that seems to
gain nothing is measured three times, and has the median.

Every configuration is written to the file as soon as it is measured: --resume
continues an interrupted build.

A manager runs in this process and starts the cache server as a second process (over
mem: in this one), unless --connect names a manager. Over tcp, client and server run on
different processors (--apart): otherwise the kernel's placement would decide the
result. The machine should be otherwise idle.`,
		Example: `  redykv model build --transport shm --net rdma --records 8,64,1KiB --out model.json
  redykv model build --transport tcp --distances 1,3 --out model.json --resume --connect http://manager:7070`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Transport, "transport", "shm", "transport: "+strings.Join(transport.Names(), ", "))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network between client and server: "+fabric.ModelUsage+"; or one for each distance like 1:2.9us,100Gbit;3:4us,100Gbit")
	flags.IntSliceVar(&f.spec.Distances, "distances", []int{1}, "distances between client and server, in switches")
	flags.StringSliceVar(&f.records, "records", []string{"8", "64", "1KiB"}, "record sizes")
	flags.IntVar(&f.spec.ClientCores, "cores", max(1, runtime.NumCPU()/2), "maximum number of client threads; default: half of this machine's processors, since the application needs the others")
	flags.IntVar(&f.spec.Threads, "threads", 0, "maximum number of client and server threads together, 0: no limit (default: this machine's processors; no limit with --connect)")
	flags.IntVar(&f.spec.QueueDepth, "queue-depth", 16, "maximum number of batches in flight on a connection: the limit of the network card")
	flags.DurationVar(&f.spec.PerPoint, "duration-per-point", time.Second, "time for each configuration: all slices of its reads and writes")
	flags.IntVar(&f.spec.Slices, "slices", modelbench.DefaultSlices, "slices in which reads and writes of a configuration take turns; all count")
	flags.StringVar(&f.idle, "idle", "", "what an idle thread does: "+bench.Names(fabricbench.Idles)+" (default: wait over tcp, otherwise poll)")
	flags.BoolVar(&f.spec.Apart, "apart", false, "run client and server on different halves of this machine's processors, like two machines (default: over tcp or with --idle wait, if possible)")
	flags.Var(&f.capacity, "capacity", "size of the measured cache")
	flags.StringVar(&f.connect, "connect", "", "`URL` of a manager to allocate the cache from (default: one in this process)")
	flags.StringVar(&f.out, "out", "", "`file` to write the model to")
	flags.BoolVar(&f.resume, "resume", false, "continue the build of an existing file")
	f.log.add(flags)
	return cmd
}

// parse sets the spec from the flags.
func (f *modelBuildFlags) parse(cmd *cobra.Command) (err error) {
	s := &f.spec
	if s.Idle, err = parseCacheFlags(s.Transport, s.Net, f.connect, f.idle); err != nil {
		return err
	}
	if f.out == "" {
		return errors.New("--out is missing: name a file for the model")
	}
	if s.RecordSizes, err = units.ParseSizes(f.records); err != nil {
		return fmt.Errorf("--records: %w", err)
	}
	s.Capacity = int64(f.capacity)
	if f.connect == "" && !cmd.Flags().Changed("threads") {
		s.Threads = runtime.NumCPU()
	}
	switch {
	case !cmd.Flags().Changed("apart"):
		s.Apart = f.connect == "" && modelbench.DefaultApart(s.Transport, s.Idle, s.ClientCores)
	case s.Apart && f.connect != "":
		return errors.New("--apart: not possible with --connect, whose servers are already running")
	case s.Apart && s.Transport == mem.Name:
		return errors.New("--apart: transport mem works within one process only")
	}
	return s.Check()
}

// parseCacheFlags checks the flags shared by commands that measure caches, and returns the
// behaviour of idle threads.
func parseCacheFlags(name, net, connect, idle string) (fabricbench.Idle, error) {
	if _, err := fabric.ParseNetwork(net); err != nil {
		return "", fmt.Errorf("--net: %w", err)
	}
	switch {
	case !slices.Contains(transport.Names(), name):
		return "", fmt.Errorf("--transport %q: want one of %s", name, strings.Join(transport.Names(), ", "))
	case name == mem.Name && connect != "":
		return "", errors.New("--connect: transport mem works within one process only")
	case idle == "":
		return fabricbench.DefaultIdle(name), checkURL("--connect", connect)
	case !slices.Contains(fabricbench.Idles, fabricbench.Idle(idle)):
		return "", fmt.Errorf("--idle %q: want one of %v", idle, fabricbench.Idles)
	}
	return fabricbench.Idle(idle), checkURL("--connect", connect)
}

func (f *modelBuildFlags) run(cmd *cobra.Command) (err error) {
	if err := f.parse(cmd); err != nil {
		return usageError{err}
	}
	m, err := f.open()
	if err != nil {
		return err
	}
	if f.connect == "" {
		if err := checkMemory("--capacity", f.capacity); err != nil {
			return err
		}
	}
	f.spec.Log, f.spec.Pending = f.log.logger(cmd), newPending(cmd.ErrOrStderr())
	mgr, end, err := startCacheManager(cmd, f.connect, cachebench.Servers{Transport: f.spec.Transport, Apart: f.spec.Apart}, manager.EmbedOptions{Logger: f.spec.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	save := func() error { return m.Save(f.out) }
	if err := modelbench.Build(cmd.Context(), mgr, m, f.spec, save, newProgress(cmd.ErrOrStderr())); err != nil {
		return orInterrupted(cmd.Context(), err)
	}
	return printModel(cmd.OutOrStdout(), m)
}

// open makes a new model, or loads the file's model to continue it. It overwrites no other
// file: a model takes long to measure.
func (f *modelBuildFlags) open() (*model.Model, error) {
	switch _, err := os.Stat(f.out); {
	case errors.Is(err, fs.ErrNotExist):
		m := model.New(f.spec.Provenance())
		return m, m.Save(f.out) // fails early if the path cannot be written
	case err == nil && !f.resume:
		return nil, usagef("--out %s: the file exists: continue with --resume, or name another", f.out)
	}
	return model.Load(f.out)
}

// startCacheManager returns the manager at the URL connect, or starts one with opts in this
// process, which end stops.
func startCacheManager(cmd *cobra.Command, connect string, servers cachebench.Servers, opts manager.EmbedOptions) (mgr redytier.Manager, end func() error, err error) {
	if connect != "" {
		mgr, err := accessFlags{}.dial(connect)
		return mgr, func() error { return nil }, err
	}
	m, err := cachebench.StartManager(cmd.Context(), servers, opts)
	if err != nil {
		return nil, nil, err
	}
	return m, m.Close, nil
}

func newModelShowCmd() *cobra.Command {
	var points bool
	var plot string
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show a performance model and the machine it was measured on",
		Long: `Shows where a model was measured, and for each record size and distance: the bounds,
how many configurations were measured and how many were not needed, and the lowest
latency and highest throughput that both reads and writes reach. Without a file it
shows the models that are part of the program.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			models, err := loadModels(args)
			if err != nil {
				return err
			}
			if plot != "" && len(args) == 0 {
				return usagef("--plot: name the file of the model to plot")
			}
			out := cmd.OutOrStdout()
			for i, m := range models {
				if i > 0 {
					fmt.Fprintln(out)
				}
				err := printModel(out, m)
				if err == nil && points {
					err = modelbench.WritePoints(out, m)
				}
				if err != nil {
					return err
				}
			}
			if plot == "" {
				return nil
			}
			return plotModel(models[0], plot)
		},
	}
	cmd.Flags().BoolVar(&points, "points", false, "print every configuration that was measured")
	cmd.Flags().StringVar(&plot, "plot", "", "`file` to write a plot of the model to (SVG)")
	return cmd
}

// loadModels loads the model in a file, or the embedded models.
func loadModels(args []string) ([]*model.Model, error) {
	if len(args) == 0 {
		return model.Shipped(), nil
	}
	m, err := model.Load(args[0])
	return []*model.Model{m}, err
}

func printModel(out io.Writer, m *model.Model) error {
	p := m.Provenance
	fmt.Fprintf(out, "transport: %s, network model: %s\n", p.Transport, p.Network)
	fmt.Fprintf(out, "machine: %v\n", p.Host)
	if p.Apart {
		fmt.Fprintln(out, "clients and servers ran on different processors of it")
	}
	fmt.Fprintf(out, "measured: from %s on, by revision %s\n", p.Date.Format(time.DateTime), p.Revision)
	fmt.Fprintf(out, "figures: %s\n\n", modelbench.Statistic)
	return modelbench.WriteSummary(out, m)
}

func plotModel(m *model.Model, path string) error {
	svg, err := modelbench.Plot(m)
	if err != nil {
		return err
	}
	return writeOutput(path, func(w io.Writer) error {
		_, err := w.Write(svg)
		return err
	})
}

func newModelListCmd() *cobra.Command {
	return newAnswerCmd("list", "List the models that a running manager searches, and where they were measured", cobra.NoArgs,
		func(ctx context.Context, m access.Client, _ []string) (*connect.Response[managerv1.ListModelsResponse], error) {
			return m.ListModels(ctx, connect.NewRequest(&managerv1.ListModelsRequest{}))
		},
		func(w io.Writer, r *managerv1.ListModelsResponse) error { return printModels(w, r.GetModels()) })
}

func newModelCalibrateCmd() *cobra.Command {
	req := new(managerv1.CalibrateRequest)
	cmd := newAnswerCmd("calibrate", "Measure the idle servers of a running manager, and scale the nearest model by that", cobra.NoArgs,
		func(ctx context.Context, m access.Client, _ []string) (*connect.Response[managerv1.CalibrateResponse], error) {
			return m.Calibrate(ctx, connect.NewRequest(req))
		},
		func(w io.Writer, r *managerv1.CalibrateResponse) error { return printModels(w, r.GetModels()) })
	cmd.Long = `Measures a server of each kind of machine on which no cache has memory, 20 seconds at
most, and scales the nearest model for that kind by what it found. A manager does that by
itself, once and while its machine is idle, where it has no model; this measures at once
and again, as after a change of the machines. If it fails, the models stay as they are.`
	cmd.Flags().StringVar(&req.Transport, "transport", "", "transport: "+strings.Join(transport.Names(), ", ")+" (default: that of the manager's VMs)")
	cmd.Flags().StringVar(&req.Network, "net", "none", "model of the network between clients and servers: "+fabric.ModelUsage)
	return cmd
}

// originText says how the figures of a model came about.
func originText(m *managerv1.Model) string {
	return strings.ToLower(strings.TrimPrefix(m.GetOrigin().String(), "ORIGIN_"))
}

// printModels prints models, how their figures came about, and how old they are.
func printModels(w io.Writer, models []*managerv1.Model) error {
	return table(w, "MODEL\tORIGIN\tAGE\tMEASURED\tSCALED", func(t *tabwriter.Writer) {
		for _, m := range models {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.GetName(), originText(m), ageText(m.GetMeasuredUnixMs()), m.GetProvenance(), cmp.Or(m.GetNote(), "-"))
		}
	})
}
