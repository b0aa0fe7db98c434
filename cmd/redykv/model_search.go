package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/model"
)

// modelSearchFlags are the flags of model search.
type modelSearchFlags struct {
	query   model.Query
	latency time.Duration
	record  units.Size
	net     string
	op      string
}

func newModelSearchCmd() *cobra.Command {
	f := modelSearchFlags{record: 8}
	cmd := &cobra.Command{
		Use:   "search [FILE]",
		Short: "Find the cheapest configuration that meets an SLO",
		Long: `Searches a model for the configuration that is predicted to meet an SLO with the fewest
server threads, then the fewest client threads, then the smallest batches and queues;
for each distance in the model. Without a file it searches the models that are part of
the program.`,
		Example: "  redykv model search model.json --latency 20us --mops 5 --record 64",
		Args:    usageArgs(cobra.MaximumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.latency, "latency", 0, "highest mean latency (default: no bound)")
	flags.Float64Var(&f.query.Mops, "mops", 0, "lowest throughput, in million operations a second (default: no bound)")
	flags.Var(&f.record, "record", "record size")
	flags.StringVar(&f.op, "op", model.Both.String(), "operations that the SLO covers: both, reads or writes")
	flags.StringVar(&f.query.Transport, "transport", "shm", "transport of the model")
	flags.StringVar(&f.net, "net", "none", "model of the network between client and server")
	flags.IntVar(&f.query.ClientCores, "cores", 0, "maximum number of client threads (default: as measured)")
	flags.IntVar(&f.query.QueueDepth, "queue-depth", 0, "maximum number of batches in flight on a connection (default: as measured)")
	return cmd
}

func (f *modelSearchFlags) run(cmd *cobra.Command, args []string) error {
	network, err := fabric.ParseNetwork(f.net)
	if err != nil {
		return usagef("--net: %w", err)
	}
	ops := slices.IndexFunc([]model.Ops{model.Both, model.Reads, model.Writes}, func(o model.Ops) bool { return o.String() == f.op })
	if ops < 0 {
		return usagef("--op %q: want both, reads or writes", f.op)
	}
	f.query.Ops = model.Ops(ops)
	if !(f.query.Mops >= 0) || f.latency < 0 || f.record < 1 || f.query.ClientCores < 0 || f.query.QueueDepth < 0 {
		return usagef("--latency %v --mops %v --record %d --cores %d --queue-depth %d: want 0 or more, and a record size of 1 or more",
			f.latency, f.query.Mops, f.record, f.query.ClientCores, f.query.QueueDepth)
	}
	models, err := loadModels(args)
	if err != nil {
		return err
	}
	library, err := model.NewLibrary(models...)
	if err != nil {
		return err
	}
	if len(args) > 0 && !cmd.Flags().Changed("transport") {
		f.query.Transport = models[0].Provenance.Transport
	}
	f.query.LatencyUs = float64(f.latency) / float64(time.Microsecond)
	f.query.RecordSize = int(f.record)
	f.query.Network = func(distance int) string { return network.At(distance).String() }
	began := time.Now()
	found, err := library.Search(f.query)
	if errors.Is(err, model.ErrNoModel) && len(args) > 0 {
		for _, m := range models[0].Measurements {
			if !m.Complete() {
				err = fmt.Errorf("%w; of records of %d bytes %s has %d of %d configurations: continue with redykv model build --resume --out %s",
					err, m.RecordSize, args[0], len(m.Points), m.Size(), args[0])
			}
		}
	}
	if err != nil {
		return err
	}
	return writeFound(cmd.OutOrStdout(), found, time.Since(began))
}

// foundRow is a configuration and the distances for which it was found.
type foundRow struct {
	model.Found
	from, to int
}

// writeFound prints the configurations. Equal ones of adjacent distances share a line.
func writeFound(out io.Writer, found map[int]model.Found, took time.Duration) error {
	var rows []foundRow
	for distance := 1; distance <= model.MaxDistance; distance++ {
		f, ok := found[distance]
		if !ok {
			continue
		}
		if n := len(rows); n > 0 && rows[n-1].to == distance-1 && rows[n-1].Found == f {
			rows[n-1].to = distance
			continue
		}
		rows = append(rows, foundRow{f, distance, distance})
	}
	err := bench.WriteTable(out, []bench.Column[foundRow]{
		{Name: "distance", Text: func(r *foundRow) string {
			if r.from == r.to {
				return strconv.Itoa(r.from)
			}
			return fmt.Sprintf("%d-%d", r.from, r.to)
		}},
		{Name: "c,s,b,q", Text: func(r *foundRow) string { return r.Config.String() }},
		{Name: "predicted us", Text: func(r *foundRow) string { return fmt.Sprintf("%.4g", r.Predicted.LatencyUs) }},
		{Name: "predicted Mop/s", Text: func(r *foundRow) string { return fmt.Sprintf("%.4g", r.Predicted.Mops) }},
		{Name: "looked at", Text: func(r *foundRow) string { return strconv.FormatInt(r.Leaves, 10) }},
	}, rows)
	fmt.Fprintf(out, "searched in %v\n", took.Round(time.Microsecond))
	return err
}
