package redytier

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/node"
)

// serveVM makes a test binary that an allocator.Local started a cache server until its
// standard input ends; otherwise it returns at once.
func serveVM() {
	if len(os.Args) < 2 || os.Args[1] != "cacheserver" {
		return
	}
	if err := cacheServer(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func cacheServer(args []string) error {
	opts := node.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	flags := flag.NewFlagSet("cacheserver", flag.ContinueOnError)
	url := flags.String("manager", "", "")
	flags.StringVar(&opts.ID, "vm-id", "", "")
	flags.StringVar(&opts.Transport, "transport", "", "")
	flags.Uint64Var(&opts.Memory, "memory", 0, "")
	cores := flags.Uint("cores", 0, "")
	flags.String("log-level", "", "")
	flags.Bool("until-stdin-ends", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	opts.Cores = uint32(*cores)
	mgr, err := access.DialWith(*url, access.FromEnv())
	if err != nil {
		return err
	}
	node, err := node.Start(opts)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // at any end, the server is not needed any more
	}()
	return errors.Join(node.Announce(ctx, mgr, nil), node.Close())
}

// ForVMs runs a test with VMs in this process and, if all tests run and the transport allows it, with VMs in
// their own processes. The test closes them.
func ForVMs(t *testing.T, name, over string, test func(t *testing.T, vms VMs)) {
	quiet := slog.New(slog.DiscardHandler)
	t.Run(name, func(t *testing.T) {
		a, err := allocator.NewInProcess(allocator.InProcessOptions{Transport: over, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		test(t, a)
	})
	if !testrun.All() || !slices.Contains(transport.BetweenProcesses(), over) {
		return
	}
	t.Run(name+",processes", func(t *testing.T) {
		a, err := allocator.NewLocal(allocator.LocalOptions{Transport: over, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		test(t, a)
	})
}
