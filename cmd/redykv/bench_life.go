package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
)

// lifeReady begins the line with which a store's process prints its result.
const lifeReady = "life result "

// lifeFlags are the flags of a benchmark that kills the processes of its stores. With --life the
// program is such a process.
type lifeFlags struct {
	life string
	log  logFlags
}

func (f *lifeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.life, "life", "", "what the process of a store does, as JSON")
	_ = flags.MarkHidden("life") // it exists
	f.log.add(flags)
}

// start starts a process of the benchmark of that name with a life. It is ready with its result.
func (f *lifeFlags) start(ctx context.Context, cmd *cobra.Command, life any) (*bench.Child, error) {
	text, err := json.Marshal(life)
	if err != nil {
		return nil, err
	}
	return bench.StartChild(ctx, cmd.ErrOrStderr(), lifeReady, "bench", cmd.Name(), "--life", string(text), "--log-level", f.log.level.String())
}

// parse sets life, a pointer, from the flag.
func (f *lifeFlags) parse(life any) error {
	if err := json.Unmarshal([]byte(f.life), life); err != nil {
		return usagef("--life: %v", err)
	}
	return nil
}

// reportLife prints the result of a process.
func reportLife(cmd *cobra.Command, result any) error {
	text, err := json.Marshal(result)
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", lifeReady, text)
	}
	return err
}
