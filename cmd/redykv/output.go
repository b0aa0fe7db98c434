package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ycsb"
)

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = errors.New("interrupted")

// orInterrupted returns errInterrupted if ctx has ended, and err otherwise.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// measurement is the result of a bench: a table to read, and its rows as JSON lines.
type measurement interface {
	WriteTable(out io.Writer) error
	WriteJSON(out io.Writer) error
}

// measuredRows are a measurement that is nothing but rows.
type measuredRows[R any] struct {
	head    string // what the figures are; a line above the table
	columns []bench.Column[R]
	rows    []R
}

func (m measuredRows[R]) WriteTable(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%s\n\n", m.head); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return bench.WriteTable(out, m.columns, m.rows)
}
func (m measuredRows[R]) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, m.rows) }

// ofRounds returns the head of a table of figures over that many rounds.
func ofRounds(rounds int, figures string) string {
	return fmt.Sprintf("rounds: %d, alternately; %s", rounds, figures)
}

// runMeasurement measures, prints the table, and writes the rows to the file jsonPath, unless
// that is empty.
func runMeasurement(cmd *cobra.Command, jsonPath string, measure func(ycsb.Progress) (measurement, error)) error {
	out, err := openOutput(jsonPath)
	if err != nil {
		return err
	}
	defer out.discard()
	m, err := measure(newProgress(cmd.ErrOrStderr()))
	if err != nil {
		return orInterrupted(cmd.Context(), err)
	}
	if err := m.WriteTable(cmd.OutOrStdout()); err != nil {
		return err
	}
	return out.commit(m.WriteJSON)
}

// outputFile is a file that is written as a whole or not at all. It is opened before the work
// begins, so that a path that cannot be written fails at once. nil writes nothing.
type outputFile struct {
	path string
	file *os.File
	temp string // name of file until commit; empty for a device
}

// openOutput makes the temporary file. The file at path stays until commit. A path that is no
// regular file, such as a device, is written directly. Without a path it returns nil.
func openOutput(path string) (*outputFile, error) {
	if path == "" {
		return nil, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return nil, fmt.Errorf("output %s is a directory", path)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
		return &outputFile{path: path, file: f}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil { // the usual mode
		return nil, fmt.Errorf("output %s: %w", path, errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	return &outputFile{path: path, file: f, temp: f.Name()}, nil
}

// writeOutput writes the file at path as a whole or not at all.
func writeOutput(path string, write func(io.Writer) error) error {
	out, err := openOutput(path)
	if err != nil {
		return err
	}
	defer out.discard()
	return out.commit(write)
}

// commit writes the content and renames the file. It always closes the file.
func (o *outputFile) commit(write func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	err := errors.Join(write(o.file), o.file.Close())
	if err != nil || o.temp == "" {
		return err
	}
	if err := os.Rename(o.temp, o.path); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	o.temp = ""
	return nil
}

// discard removes a file that was not committed. After commit it does nothing.
func (o *outputFile) discard() {
	if o == nil {
		return
	}
	_ = o.file.Close() // commit may have closed it
	if o.temp != "" {
		_ = os.Remove(o.temp)
	}
}
