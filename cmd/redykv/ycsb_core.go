package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pingcap/go-ycsb/pkg/prop"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/ycsb/goycsb"
)

// corePhase is a command that runs go-ycsb's client.
type corePhase struct {
	phase goycsb.Phase
	short string
}

var corePhases = [2]corePhase{
	{goycsb.PhaseLoad, "Insert the records of a YCSB workload"},
	{goycsb.PhaseRun, "Run the operations of a YCSB workload on the records loaded before"},
}

var coreHelp = `

A workload is a file of properties, or one of
` + strings.Join(goycsb.Workloads(), ", ") + `.
Properties have the names that go-ycsb gives them (recordcount, operationcount,
threadcount, maxexecutiontime, fieldlength, requestdistribution, ...), and these:

  ` + goycsb.PropDir + `     directory of the store's files (default ` + goycsb.DefaultDir + `)
  ` + goycsb.PropDevice + `  ssd, or redy for a Redy cache over the SSD (default ssd)
  ` + goycsb.PropMemory + `  log kept in local memory, a size (default 256MiB)
  ` + goycsb.PropCache + `   Redy's remote memory, a size (default 1GiB)
  ` + goycsb.PropNet + `     network that Redy's transport pretends to be (default rdma)
  ` + goycsb.PropScan + `    keep the order of keys in memory, about 100 bytes for each, so
                 that scans work (default: whether the workload scans)

load and run work on the same directory, one after the other. A workload that
scans needs records that were loaded by one that scans, or with ` + goycsb.PropScan + `=true.

With workload=` + goycsb.WorkloadNative + ` go-ycsb's client drives operations of this project's own: many
of them under way in each thread, every value checked, the time of every 32nd taken in
nanoseconds. Values are one piece of fieldcount times fieldlength bytes; records are drawn
uniform or zipfian; there are no scans and no batches. It loads its own records.`

func newCoreCmd(of corePhase) *cobra.Command {
	var (
		files, assignments        []string
		table                     string
		threads, target, interval int
	)
	cmd := &cobra.Command{
		Use:   string(of.phase) + " -P workload [-p property=value]...",
		Short: of.short,
		Long:  of.short + "." + coreHelp,
		Example: "  redykv ycsb load -P workloada -p recordcount=1000000\n" +
			"  redykv ycsb run -P workloada -p recordcount=1000000 -p operationcount=1000000 -p threadcount=2",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			if flags.Changed("table") {
				assignments = append(assignments, prop.TableName+"="+table)
			}
			for _, number := range []struct {
				flag, property string
				value          int
			}{
				{"threads", prop.ThreadCount, threads},
				{"target", prop.Target, target},
				{"interval", prop.LogInterval, interval},
			} {
				if flags.Changed(number.flag) {
					assignments = append(assignments, number.property+"="+strconv.Itoa(number.value))
				}
			}
			p, err := goycsb.Properties(files, assignments)
			if err != nil {
				return usageError{err}
			}
			err = goycsb.Execute(cmd.Context(), p, of.phase)
			if errors.Is(err, goycsb.ErrProperties) {
				return usageError{err}
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", of.phase, err)
			}
			return plainly(cmd.Context(), err)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&files, "property_file", "P", nil, "workload file or core workload; later ones go over earlier ones")
	flags.StringArrayVarP(&assignments, "prop", "p", nil, "property=value; goes over workloads")
	flags.StringVar(&table, "table", prop.TableNameDefault, "name of the table")
	flags.IntVar(&threads, "threads", 1, "threads (property threadcount)")
	flags.IntVar(&target, "target", 0, "operations per second to attempt; 0: as many as possible (property target)")
	flags.IntVar(&interval, "interval", 10, "seconds between measurements printed (property measurement.interval)")
	return cmd
}
