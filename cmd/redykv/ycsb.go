package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/ycsb/goycsb"
)

func newYCSBCmd() *cobra.Command {
	cmd := newGroup("ycsb", "Measure stores under the workloads of YCSB", newCompareCmd(),
		newCoreCmd(goycsb.PhaseLoad, "Insert the records of a YCSB workload"),
		newCoreCmd(goycsb.PhaseRun, "Run the operations of a YCSB workload on the loaded records"), newSuiteCmd(), newCompareStoreCmd())
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		// Log only failures of a cache's manager and server.
		slog.SetLogLoggerLevel(slog.LevelWarn)
	}
	return cmd
}
