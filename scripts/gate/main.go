// Command gate runs the tests as a landing does, and says which failures are faults.
//
//	go run ./scripts/gate                      all packages
//	go run ./scripts/gate ./kv ./redytier      some
//
// It links each package's test binary once, and runs the binaries (packages.go): those of all
// packages, and then of some of them under the race detector. Three run at a time, of which at most
// one keeps all processors busy. Seeds are fixed. Each binary runs in network, mount and process
// namespaces of its own if the caller is root, so that no port, mount or orphaned process of one
// package reaches another.
//
// A test that fails runs again, alone. If it then passes twice in a row within four runs it is a
// flake, which the summary names, and which does not fail the gate; more than five flakes do. Data
// races and verdicts of wrong data (testrun.Wrong) are faults whenever they appear, and are not
// repeated. A flake belongs into scripts/gate/flakes, and is to be mended.
//
// With -soak it runs the packages over and over, as scripts/soak does: in a random order, all under the
// race detector, with new seeds and long budgets (testrun.Soak). Nothing is repeated then: each failure
// is one.
//
// The last lines are the summary: stages, slowest packages and tests, flakes, failures with their last lines
// and the command that repeats them, and "N passed, N failed, N skipped". The status is 0 if
// nothing failed. Run it in the repository's root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	g := gate{started: time.Now(), out: os.Stdout}
	flag.BoolVar(&g.race, "race", true, "run packages under the race detector, too")
	flag.DurationVar(&g.limit, "limit", 10*time.Minute, "the longest time of one package; two times as long for heavy ones, three times under the race detector")
	flag.DurationVar(&g.budget, "budget", 75*time.Minute, "no test is repeated when so much time has passed since -since")
	flag.DurationVar(&g.soak, "soak", 0, "run as a soak for so long: other seeds each time, long budgets, everything under the race detector, over and over")
	since := flag.Int64("since", 0, "the `time` at which the whole run began, in seconds since 1970; 0: now")
	stages := flag.String("stages", "", "a `file` with a line \"NAME SECONDS\" for each stage before this one, for the summary")
	flag.StringVar(&g.script, "script", "", "a `file` that is run in the last stage, and repeated as a test is")
	flag.Parse()
	if *since != 0 {
		g.started = time.Unix(*since, 0)
	}
	passed, err := g.run(ctx, *stages, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}
