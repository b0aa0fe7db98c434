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

var coreHelp = `

A workload is a file of properties, or one of
` + strings.Join(goycsb.Workloads(), ", ") + `.
Properties are those of go-ycsb (recordcount, operationcount, threadcount,
maxexecutiontime, fieldlength, requestdistribution, ...), and these:

  ` + goycsb.PropDir + `     directory of the store's files (default ` + goycsb.DefaultDir + `)
  ` + goycsb.PropDevice + `  ssd, or redy for a Redy cache over the SSD (default ssd)
  ` + goycsb.PropMemory + `  log kept in local memory, a size (default 256MiB)
  ` + goycsb.PropCache + `   Redy's remote memory, a size (default 1GiB)
  ` + goycsb.PropNet + `     model of the network to Redy (default rdma)
  ` + goycsb.PropScan + `    keep the keys in order in memory, about 100 bytes each, so that
                 scans work (default: true if the workload scans)

As in YCSB, load inserts insertcount records from insertstart on, recordcount of them
without insertcount; run uses those from insertstart to recordcount. If operations fail,
such as reads of records that were not loaded, the exit code is 1.

load and run work on the same directory, one after the other. A workload that
scans needs records that were loaded by one that scans, or with ` + goycsb.PropScan + `=true.

With workload=` + goycsb.WorkloadNative + ` go-ycsb's client runs this project's own driver: many
operations are pending in each thread, every value is checked, and every 31st operation
is timed, in nanoseconds. Values have fieldcount times fieldlength bytes; records are
chosen uniform or zipfian; there are no scans and no batches. It loads its own records.`

// newCoreCmd returns a command that runs go-ycsb's client.
func newCoreCmd(phase goycsb.Phase, short string) *cobra.Command {
	var (
		files, assignments        []string
		table                     string
		threads, target, interval int
	)
	cmd := &cobra.Command{
		Use:   string(phase) + " -P workload [-p property=value]...",
		Short: short,
		Long:  short + "." + coreHelp,
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
			err = goycsb.Execute(cmd.Context(), p, phase)
			if errors.Is(err, goycsb.ErrProperties) {
				return usageError{err}
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", phase, err)
			}
			return orInterrupted(cmd.Context(), err)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&files, "property_file", "P", nil, "workload file, or name of a core workload; later ones override earlier ones")
	flags.StringArrayVarP(&assignments, "prop", "p", nil, "property=value; overrides workloads")
	flags.StringVar(&table, "table", prop.TableNameDefault, "name of the table (property table)")
	flags.IntVar(&threads, "threads", 1, "threads (property threadcount)")
	flags.IntVar(&target, "target", 0, "operations a second to attempt; 0: as many as possible (property target)")
	flags.IntVar(&interval, "interval", 10, "seconds between two printed measurements (property measurement.interval)")
	return cmd
}
