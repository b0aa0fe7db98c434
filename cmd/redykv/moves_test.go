package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
)

// cmdMoves makes a cache leave its server, and then lose it, during writes and reads.
func cmdMoves(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "moves TRANSPORT")
	cmdStart(ts, false, []string{"MOVES", `manager ready at (http://.*)$`, "redykv", "manager", "--listen", "127.0.0.1:0", "--transport", args[0], "--memory", "64MiB"})
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
	defer cancel()
	events := make(chan redytier.Event, 64)
	cache, err := redytier.Create(ctx, access.Dial(ts.Getenv("MOVES")), redytier.Config{
		Capacity: 4 << 20, RegionSize: 1 << 20, OnEvent: func(e redytier.Event) { events <- e },
	})
	ts.Check(err)
	err = moves(ctx, ts, cache, events)
	ts.Check(cache.Delete(context.WithoutCancel(ctx)))
	ts.Check(err)
	cmdEnd(ts, false, []string{"MOVES"})
}

func moves(ctx context.Context, ts *testscript.TestScript, cache *redytier.Cache, events <-chan redytier.Event) error {
	vm := cache.Regions()[0].VM
	reclaim := command(ts, []string{"redykv", "manager", "reclaim", "--manager", ts.Getenv("MOVES"), "--vm", vm, "--notice", "1h"})
	for left := false; !left; {
		if err := fill(ctx, cache); err != nil { // repeatedly, during the move
			return err
		}
		if reclaim.Process == nil {
			if err := run(reclaim); err != nil {
				return err
			}
		}
		for len(events) > 0 {
			e := <-events
			left = left || e.Kind == redytier.VMLeft && e.VM == vm
		}
	}
	if now := cache.Regions()[0].VM; now == vm {
		return fmt.Errorf("the cache is still on %s", vm)
	}
	cmdKillVM(ts, false, []string{cache.Regions()[0].VM})
	for back := false; !back; {
		select {
		case e := <-events:
			back = e.Kind == redytier.Restored && e.DataLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fill(ctx, cache)
}

func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, out.String())
	}
	return nil
}
