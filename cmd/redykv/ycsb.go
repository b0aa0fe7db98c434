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
		// What a cache's manager and server do in the usual course is not
		// for the eyes of who measures; what goes wrong is.
		slog.SetLogLoggerLevel(slog.LevelWarn)
	}
	return cmd
}

// errInterrupted is what a signal makes of a command.
var errInterrupted = errors.New("interrupted")

// plainly says in one word that the command was interrupted; other errors stay
// as they are.
func plainly(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
