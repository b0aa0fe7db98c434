// Command redykv runs every part of redykv: servers, workloads, comparisons, the Redy manager
// and its cache servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/units"
)

// errUsage marks a usage error: exit code 2. Any other error is exit code 1.
var errUsage = errors.New("usage")

// usageError is an error in the command line.
type usageError struct{ err error }

func (e usageError) Error() string        { return e.err.Error() }
func (e usageError) Unwrap() error        { return e.err }
func (e usageError) Is(target error) bool { return target == errUsage }

// usagef returns a usage error.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "redykv",
		Short:         "A key-value store on a hybrid log, with remote memory as its first storage tier",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"store", "A store:", []*cobra.Command{newServeCmd(), newTopCmd(), newInspectCmd()}},
		{"redy", "Remote memory:", []*cobra.Command{newManagerCmd(), newCacheServerCmd(), newCacheCmd(), newVMCmd(), newModelCmd(), newSLOCmd()}},
		{"measure", "Measurements (start with redykv ycsb compare):", []*cobra.Command{newAdviseCmd(), newYCSBCmd(), newPaperCmd(), newBenchCmd()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	hideZeroSizes(root)
	return root
}

// version returns the version of the module and the revision from which the program was built, and
// what it was built with and for.
func version() string {
	module := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return fmt.Sprintf("%s, revision %s, %s, %s/%s", module, machine.Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// hideZeroSizes omits the default 0B from help texts: such a flag's text says what 0 means.
func hideZeroSizes(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.DefValue == units.Size(0).String() {
			f.DefValue = ""
		}
	})
	for _, sub := range cmd.Commands() {
		hideZeroSizes(sub)
	}
}

// outliveReaders lets a server go on when the reader of its output or log ends: writes to a pipe without
// a reader fail, instead of ending the process.
func outliveReaders() { signal.Ignore(syscall.SIGPIPE) }

func main() {
	ctx, interrupt := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // first: from then on, another signal ends the process at once
		interrupt()
	}()
	err := newRootCmd().ExecuteContext(ctx)
	signal.Stop(signals)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "redykv:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}
