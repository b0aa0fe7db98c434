package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
	"github.com/redykv/redykv/ycsb/goycsb"
)

func newSuiteCmd() *cobra.Command {
	var spec goycsb.SuiteSpec
	memory := units.Size(256 << 20)
	var dir, jsonPath string
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Compare stores under YCSB's core workloads",
		Long: `Loads each of YCSB's core workloads into several stores and runs it on them alternately,
with go-ycsb's client and measurement. Figures are those of
the round with the median throughput; the ratio is the median of the rounds' ratios.

  redykv   this store, with its log in files
  pebble, badger, bbolt
           other embedded stores; neither they nor redykv sync their writes
  map      a Go map with a lock; each read copies a row: with one thread about the
           least work that a store in memory can do
  empty    no store: the cost of go-ycsb itself, which is the upper limit

Workloads choose records as YCSB defines, among those that were loaded. Column failed
counts operations that failed in any round; if there are some, the exit code is 1.`,
		Example: "  redykv ycsb suite --workloads workloada,workloadc --stores redykv,pebble --threads 2",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			spec.Memory = int64(memory)
			if err := spec.Check(); err != nil {
				return usageError{err}
			}
			work, err := makeWorkDir(dir, "redykv-suite-*")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, work.remove()) }()
			spec.Dir = work.dir.Path
			var rows []goycsb.SuiteRow
			if err := runMeasurement(cmd, jsonPath, func(p ycsb.Progress) (measurement, error) {
				rows, err = goycsb.Suite(cmd.Context(), spec, p)
				return measuredRows[goycsb.SuiteRow]{ofRounds(spec.Rounds, "figures of the round with the median throughput, ratios the median of the rounds' ratios"), suiteColumns(spec.Stores[0]), rows}, err
			}); err != nil {
				return err
			}
			return suiteFailures(rows)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&spec.Workloads, "workloads", goycsb.Workloads(), "workloads: "+strings.Join(goycsb.Workloads(), ", "))
	flags.StringSliceVar(&spec.Stores, "stores", []string{goycsb.StoreRedykv, "pebble", goycsb.StoreEmpty}, "stores: "+strings.Join(goycsb.SuiteStores(), ", "))
	flags.Int64Var(&spec.Records, "records", 100_000, "records to load")
	flags.Int64Var(&spec.Fields, "fields", 10, "fields per record")
	flags.Int64Var(&spec.FieldLength, "field-length", 100, "bytes per field")
	flags.Int64Var(&spec.Operations, "operations", 100_000, "operations per round")
	flags.IntVar(&spec.Threads, "threads", 1, "threads")
	flags.IntVar(&spec.Rounds, "rounds", 3, "rounds of each workload on each store")
	flags.Var(&memory, "memory", "memory of the store's log; another store's cache has as much, and what redykv's index takes")
	flags.StringVar(&dir, "dir", "", "directory on the SSD for files, which are removed afterwards (default: the directory for temporary files)")
	flags.StringVar(&jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	return cmd
}

// suiteFailures returns an error for the first store whose operations failed.
func suiteFailures(rows []goycsb.SuiteRow) error {
	for _, r := range rows {
		if r.Failed > 0 {
			return fmt.Errorf("%s: %d operations of %s failed", r.Workload, r.Failed, r.Store)
		}
	}
	return nil
}

// suiteColumns returns the columns of the table, with the ratio of the throughput of the first
// store to that of each.
func suiteColumns(firstStore string) []bench.Column[goycsb.SuiteRow] {
	type row = goycsb.SuiteRow
	return []bench.Column[row]{
		bench.Format("workload", "%s", func(r *row) any { return r.Workload }),
		bench.Format("store", "%s", func(r *row) any { return r.Store }),
		bench.Format("ops/s", "%.0f", func(r *row) any { return r.Ops }),
		bench.Format("least", "%.0f", func(r *row) any { return r.Least }),
		bench.Format("most", "%.0f", func(r *row) any { return r.Most }),
		bench.Format(firstStore+" is", "%.2fx", func(r *row) any { return r.FirstIs }),
		bench.Format("p50 us", "%.0f", func(r *row) any { return r.P50 }),
		bench.Format("p99 us", "%.0f", func(r *row) any { return r.P99 }),
		bench.Format("p99.9 us", "%.0f", func(r *row) any { return r.P999 }),
		bench.Format("max us", "%.0f", func(r *row) any { return r.Max }),
		bench.Format("failed", "%d", func(r *row) any { return r.Failed }),
	}
}
