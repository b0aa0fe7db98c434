package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb/goycsb"
)

func newSuiteCmd() *cobra.Command {
	spec := goycsb.SuiteSpec{}
	memory := units.Size(256 << 20)
	var dir, jsonPath string
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Run YCSB's core workloads on several stores, in one table",
		Long: `Load each of YCSB's core workloads into several stores and run it on them alternately,
with go-ycsb's client and measurement. Figures are of the median round.

  redykv   this store, its log on files
  pebble, badger, bbolt
           other embedded stores; neither they nor redykv sync their writes
  map      a Go map with a lock; each read copies a row: with one thread about the
           least that a store in memory does
  empty    no store: the cost of go-ycsb itself, which is the upper limit

The workloads choose records as YCSB defines. go-ycsb's generator chooses some records
that do not exist; failed counts those.`,
		Example: "  redykv ycsb suite --workloads workloada,workloadc --stores redykv,pebble --threads 2",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			spec.Memory = int64(memory)
			if err := spec.Check(); err != nil {
				return usageError{err}
			}
			var out *outputFile
			if jsonPath != "" {
				if out, err = openOutput(jsonPath); err != nil {
					return err
				}
				defer out.discard()
			}
			work, err := makeWorkDir(dir, "redykv-suite-*")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, work.remove()) }()
			spec.Dir = work.dir.Path
			rows, err := goycsb.Suite(cmd.Context(), spec, newProgress(cmd.ErrOrStderr()))
			if err != nil {
				return plainly(cmd.Context(), err)
			}
			if err := writeSuite(cmd.OutOrStdout(), rows); err != nil || out == nil {
				return err
			}
			return out.commit(func(w io.Writer) error { return bench.WriteJSON(w, rows) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&spec.Workloads, "workloads", goycsb.Workloads(), "workloads: "+strings.Join(goycsb.Workloads(), ", "))
	flags.StringSliceVar(&spec.Stores, "stores", []string{goycsb.StoreRedykv, "pebble", goycsb.StoreEmpty}, "stores: "+strings.Join(goycsb.SuiteStores(), ", "))
	flags.Int64Var(&spec.Records, "records", 100_000, "records to load")
	flags.Int64Var(&spec.Fields, "fields", 10, "fields of a record")
	flags.Int64Var(&spec.FieldLength, "field-length", 100, "bytes of a field")
	flags.Int64Var(&spec.Operations, "operations", 100_000, "operations of each round")
	flags.IntVar(&spec.Threads, "threads", 1, "threads")
	flags.IntVar(&spec.Rounds, "rounds", 3, "rounds of each workload on each store")
	flags.Var(&memory, "memory", "log kept in memory, or cache of another store")
	flags.StringVar(&dir, "dir", "", "directory on the SSD for files, which are removed afterwards; empty: the directory of temporary files")
	flags.StringVar(&jsonPath, "json", "", "file for the results as JSON lines")
	return cmd
}

// writeSuite prints the table, with the ratio of each store's throughput to the first's.
func writeSuite(w io.Writer, rows []goycsb.SuiteRow) error {
	type row = goycsb.SuiteRow
	column := func(name, format string, value func(r *row) any) bench.Column[row] {
		return bench.Column[row]{Name: name, Text: func(r *row) string { return fmt.Sprintf(format, value(r)) }}
	}
	return bench.WriteTable(w, []bench.Column[row]{
		column("workload", "%s", func(r *row) any { return r.Workload }),
		column("store", "%s", func(r *row) any { return r.Store }),
		column("ops/s", "%.0f", func(r *row) any { return r.Ops }),
		column("least", "%.0f", func(r *row) any { return r.Least }),
		column("most", "%.0f", func(r *row) any { return r.Most }),
		column(rows[0].Store+" is", "%.2fx", func(r *row) any { return first(rows, r.Workload).Ops / r.Ops }),
		column("p50 us", "%.0f", func(r *row) any { return r.P50 }),
		column("p99 us", "%.0f", func(r *row) any { return r.P99 }),
		column("p99.9 us", "%.0f", func(r *row) any { return r.P999 }),
		column("max us", "%.0f", func(r *row) any { return r.Max }),
		column("failed", "%d", func(r *row) any { return r.Failed }),
	}, rows)
}

// first returns a workload's first row.
func first(rows []goycsb.SuiteRow, workload string) *goycsb.SuiteRow {
	for i := range rows {
		if rows[i].Workload == workload {
			return &rows[i]
		}
	}
	return &rows[0]
}
