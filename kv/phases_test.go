package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/redykv/redykv/device"
)

// tracedDevice records the operations on the files of a device, and the phases of the
// checkpointer.
type tracedDevice struct {
	*device.Memory
	st  *Store
	out strings.Builder
}

func (d *tracedDevice) trace(what string) {
	if d.st != nil {
		fmt.Fprintf(&d.out, "%-14s %v\n", what, d.st.checkpointer.machine.Phases())
	}
}

func (d *tracedDevice) Sync() error {
	d.trace("sync")
	return d.Memory.Sync()
}

func (d *tracedDevice) WriteMeta(name string, data []byte) error {
	d.trace("write manifest")
	return d.Memory.WriteMeta(name, data)
}

func (d *tracedDevice) CreateObject(name string) (device.ObjectWriter, error) {
	kind, _, _ := strings.Cut(name, "-")
	d.trace("make " + kind)
	return d.Memory.CreateObject(name)
}

func (d *tracedDevice) RemoveObject(name string) error {
	kind, _, _ := strings.Cut(name, "-")
	d.trace("remove " + kind)
	return d.Memory.RemoveObject(name)
}

func (d *tracedDevice) Truncate(begin int64) error {
	d.trace("truncate")
	return d.Memory.Truncate(begin)
}

// TestPhases plays testdata/phases: the operations of commits, checkpoints, compactions, Clear
// and Close on the files of a device, in order and with their phases.
func TestPhases(t *testing.T) {
	disk := &tracedDevice{Memory: device.NewMemory()}
	opts := small(disk, 8, 8)
	opts.Checkpoints.Keep = 1
	st := open(t, opts)
	disk.st = st
	ctx := context.Background()
	checkpoint := func(opts CheckpointOptions) error {
		_, err := st.Checkpoint(ctx, opts)
		return err
	}
	do := map[string]func() error{
		"write":       func() error { fillUp(t, st, 500); return nil },
		"commit":      func() error { return st.Commit(ctx) },
		"fold-over":   func() error { return checkpoint(CheckpointOptions{Kind: FoldOver}) },
		"snapshot":    func() error { return checkpoint(CheckpointOptions{Kind: Snapshot}) },
		"named":       func() error { return checkpoint(CheckpointOptions{Kind: Snapshot, Name: "mine"}) },
		"incremental": func() error { return checkpoint(CheckpointOptions{Kind: Incremental}) },
		"log-only":    func() error { return checkpoint(CheckpointOptions{Kind: FoldOver, LogOnly: true}) },
		"index":       func() error { return checkpoint(CheckpointOptions{Kind: Index}) },
		"remove":      func() error { return st.RemoveCheckpoint(context.Background(), "mine") },
		"clear":       func() error { mustClear(t, st); return nil },
		"compact":     func() error { _, err := st.Compact(ctx, CompactOptions{}); return err },
		"close":       func() error { return st.Close() },
	}
	datadriven.RunTest(t, "testdata/phases", func(t *testing.T, d *datadriven.TestData) string {
		disk.out.Reset()
		f := do[d.Cmd]
		if f == nil {
			d.Fatalf(t, "unknown command")
		}
		if err := f(); err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		st.background.Wait() // what a commit frees
		return disk.out.String()
	})
}
