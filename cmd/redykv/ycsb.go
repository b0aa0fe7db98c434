package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"
)

func newYCSBCmd() *cobra.Command {
	cmd := newGroup("ycsb", "Measure stores under the workloads of YCSB",
		newCompareCmd(), newCoreCmd(corePhases[0]), newCoreCmd(corePhases[1]), newSuiteCmd())
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		// Log only failures of a cache's manager and server.
		slog.SetLogLoggerLevel(slog.LevelWarn)
	}
	return cmd
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = errors.New("interrupted")

// plainly returns errInterrupted if ctx has ended, and err otherwise.
func plainly(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
