package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/kv/inspect"
	"github.com/redykv/redykv/ssdtier"
)

type inspectFlags struct {
	json     bool
	records  bool
	from, to int64
}

func newInspectCmd() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Check a store's files, or print its records",
		Long: `Reads the files of a store that no program has open, and changes nothing. It
verifies the checksum of every block, prints the store's manifest with the commit and
the checkpoints that it can be recovered to, and checks the log and the copies of the
index: every record must be valid, the link to its predecessor must lead to a record,
and every entry of the index to a record of its hash.

Each problem is printed with the file or the part of the log, and with what can be
done about it; the exit code is then 1. A store that is in use cannot be inspected.

With --records it prints the records instead, oldest first: all those in the log from
--from to --to, including overwritten ones. Keys and values are quoted, or in base64
with --json.`,
		Example: `  redykv inspect data
  redykv inspect data --records --from 4096 --to 8192`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.from < 0 || f.to < 0 || f.to != 0 && f.to < f.from {
				return usagef("--from %d --to %d: want log addresses, the first not above the second", f.from, f.to)
			}
			if !f.records && (f.from != 0 || f.to != 0) {
				return usagef("--from and --to require --records")
			}
			return untilInterrupted(cmd.Context(), func() error { return f.run(cmd.OutOrStdout(), args[0]) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON; with --records, one line per record")
	flags.BoolVar(&f.records, "records", false, "print the records of the log")
	flags.Int64Var(&f.from, "from", 0, "with --records: log address of the first record")
	flags.Int64Var(&f.to, "to", 0, "with --records: log address to stop at (default: the end of the log)")
	return cmd
}

// inspected is the JSON output.
type inspected struct {
	OK    bool            `json:"ok"`
	Files *ssdtier.Report `json:"files"`
	// Store is null if the files cannot be inspected; Error has the reason.
	Store *inspect.Report `json:"store"`
	Error string          `json:"error,omitempty"`
}

// untilInterrupted returns do's error, or another one if ctx ends first. The process ends next, so do may
// still run, and changes nothing.
func untilInterrupted(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}

func (f *inspectFlags) run(out io.Writer, dir string) error {
	files, err := ssdtier.Inspect(dir)
	if err != nil {
		return err
	}
	found := inspected{Files: files}
	var failed error // printing error
	opts := inspect.Options{From: f.from, To: f.to}
	if f.records {
		opts.Record = func(r inspect.Record) {
			if failed == nil {
				failed = f.record(out, r)
			}
		}
	}
	found.Store, err = inspectStore(dir, opts)
	if err == nil && found.Store.Log.Flushed > 0 { // the manifest could be read
		files.NeededTo(found.Store.Log.Flushed)
	}
	problems := len(files.Problems)
	if err != nil {
		found.Error = err.Error()
		problems = max(problems, 1)
	} else {
		problems += len(found.Store.Problems)
	}
	found.OK = problems == 0
	if failed == nil && !f.records {
		failed = f.report(out, &found)
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("the store in %s cannot be inspected: %w", dir, err)
	case problems > 0:
		return fmt.Errorf("%s: problems found: %d", dir, problems)
	}
	return nil
}

func inspectStore(dir string, opts inspect.Options) (*inspect.Report, error) {
	r, err := ssdtier.NewReader(dir)
	if err != nil {
		return nil, err
	}
	store := inspect.Store(r, opts)
	return store, r.Close()
}

func (f *inspectFlags) record(out io.Writer, r inspect.Record) error {
	if f.json {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintln(out, r)
	return err
}

func (f *inspectFlags) report(out io.Writer, found *inspected) error {
	if f.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(found)
	}
	_, err := fmt.Fprint(out, found.Files)
	if err == nil && found.Store != nil {
		_, err = fmt.Fprintf(out, "\n%v", found.Store)
	}
	if err == nil && len(found.Files.Problems) > 0 {
		_, err = fmt.Fprintln(out, "\nthe files above are damaged: their content cannot be read, and opening the store may fail;\n--records prints the records that can still be read")
	}
	return err
}
