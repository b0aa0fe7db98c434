package kv_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/inspect"
	"github.com/redykv/redykv/ssdtier"
)

// The environment of a child process, which the test kills: busyDir is its directory,
// busyStack its devices, and busySeed the order of its operations.
const (
	busyDir   = "REDYKV_TEST_BUSY_DIR"
	busyStack = "REDYKV_TEST_BUSY_STACK"
	busySeed  = "REDYKV_TEST_BUSY_SEED"
	busyKeys  = 3000
)

// busyStacks are a directory, one behind a memory that loses its contents, and one behind
// another directory that commits before it.
var busyStacks = map[string]func(ssd func(name string) device.Device) device.Device{
	"ssd": func(ssd func(string) device.Device) device.Device { return ssd("last") },
	"behind memory": func(ssd func(string) device.Device) device.Device {
		return device.NewTiered(device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 100_000}), ssd("last"))
	},
	"behind the commit point": func(ssd func(string) device.Device) device.Device {
		return device.NewTieredWith(device.TieredOptions{CommitPoint: 1}, ssd("first"), ssd("last"))
	},
}

// openBusy opens a store with little memory and small segments.
func openBusy(t *testing.T, dir, stack string) *kv.Store {
	t.Helper()
	dev := busyStacks[stack](func(name string) device.Device {
		ssd, err := ssdtier.OpenWith(filepath.Join(dir, name), ssdtier.Options{SegmentSize: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return ssd
	})
	opts := options(busyKeys)
	opts.Memory, opts.Device = 64<<10, dev
	st, err := kv.Open(opts)
	if err != nil {
		t.Fatal(errors.Join(err, dev.Close()))
	}
	return st
}

// TestKilledAnywhere kills a process at random moments while it writes, flushes, commits,
// makes checkpoints of all kinds, and compacts and truncates its log. The recovered state
// contains all committed operations and agrees exactly with the commit point, and no file is
// damaged.
func TestKilledAnywhere(t *testing.T) {
	if dir := os.Getenv(busyDir); dir != "" {
		beBusy(t, dir, os.Getenv(busyStack))
		return
	}
	for stack := range busyStacks {
		t.Run(stack, func(t *testing.T) { testKilledAnywhere(t, stack) })
	}
}

func testKilledAnywhere(t *testing.T, stack string) {
	r := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	interrupted := make(map[string]int)
	for round := range 10 {
		said, durable := killBusy(t, dir, stack, r)
		interrupted[said]++
		directories, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(directories) == 0 {
			t.Fatal("no directory of a tier:", err)
		}
		flushed := flushedTo(t, directories)
		for _, directory := range directories {
			report, err := ssdtier.Inspect(directory)
			if err != nil {
				t.Fatal(err)
			}
			report.NeededTo(flushed)
			if len(directories) > 1 && filepath.Base(directory) == "last" {
				report.Problems = slices.DeleteFunc(report.Problems, notYetCopied)
			}
			if !report.OK() {
				testrun.Wrong(t, "round %d, killed after %q:\n%v", round, said, report)
			}
		}
		st := openBusy(t, dir, stack)
		p, ok := st.CommitPoint("writer")
		if p.Until < durable || len(p.Excluding) > 0 { // it is 0 if the session committed before its first operation
			testrun.Wrong(t, "round %d, killed after %q: commit point %+v, %v after one of %d", round, said, p, ok, durable)
		}
		for k := range uint64(busyKeys) {
			got, err := st.Read(context.Background(), binary.LittleEndian.AppendUint64(nil, k), nil)
			want := newest(k, p.Until)
			if want == 0 && errors.Is(err, kv.ErrNotFound) {
				continue
			}
			if err != nil || binary.LittleEndian.Uint64(got) != want {
				testrun.Wrong(t, "round %d, killed after %q: key %d: %x, %v, want %d; commit point %+v\n%v",
					round, said, k, got, err, want, p, st.Recovery())
			}
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("killed after the process said:", interrupted)
}

// flushedTo returns the address up to which the tiers must have the log, as the manifest says that one
// of them has.
func flushedTo(t *testing.T, directories []string) (flushed int64) {
	t.Helper()
	for _, directory := range directories {
		r, err := ssdtier.NewReader(directory)
		if err != nil {
			t.Fatal(err)
		}
		flushed = max(flushed, inspect.Store(r, inspect.Options{}).Log.Flushed)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return flushed
}

// notYetCopied reports whether a problem is a gap that a tier behind the commit point may have:
// it gets blocks in any order, and may be synced meanwhile. The tiers before it have them.
func notYetCopied(f ssdtier.Finding) bool {
	return strings.HasPrefix(f.What, "no checksum, but later blocks have one")
}

// newest returns the last operation up to until that wrote a key, 0 if there is none.
func newest(key, until uint64) uint64 {
	if key > until {
		return 0
	}
	return until - (until-key)%busyKeys
}

// killBusy starts a process and kills it. It returns the last line that the process printed,
// and the last operation that it reported as durable.
func killBusy(t *testing.T, dir, stack string, r *rand.Rand) (said string, durable uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAnywhere$")
	cmd.Env = append(os.Environ(), busyDir+"="+dir, busyStack+"="+stack, busySeed+"="+strconv.FormatUint(r.Uint64(), 10))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := r.IntN(40); n >= 0; n-- {
		if !lines.Scan() {
			t.Fatalf("the process ended by itself after %q: %v", said, cmd.Wait())
		}
		said = lines.Text()
		_, _ = fmt.Sscanf(said, "durable %d", &durable) // other lines announce operations
	}
	time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond)))) // any moment of the next operation
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		said = lines.Text()
		_, _ = fmt.Sscanf(said, "durable %d", &durable)
	}
	_ = cmd.Wait() // an error is expected
	return said, durable
}

// beBusy writes n to key n%busyKeys by operation number n, and prints what it begins and up to
// which operation its writes are durable, until it is killed.
func beBusy(t *testing.T, dir, stack string) {
	seed, err := strconv.ParseUint(os.Getenv(busySeed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 7))
	st := openBusy(t, dir, stack)
	s, err := st.NewNamedSession("writer")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	checkpoint := func(kind kv.CheckpointKind) func() error {
		return func() error {
			_, err := st.Checkpoint(ctx, kv.CheckpointOptions{Kind: kind})
			return err
		}
	}
	compact := func(method kv.CompactMethod) func() error {
		return func() error {
			_, err := st.Compact(ctx, kv.CompactOptions{Method: method})
			return err
		}
	}
	steps := []struct {
		name    string
		durable bool // afterwards all earlier writes are durable
		do      func() error
	}{
		{"to write", false, func() error { return write(s, 1+r.IntN(4000)) }},
		{"to commit", true, func() error { return st.Commit(ctx) }},
		{"a snapshot", true, checkpoint(kv.Snapshot)},
		{"an incremental checkpoint", true, checkpoint(kv.Incremental)},
		{"a fold-over checkpoint", true, checkpoint(kv.FoldOver)},
		{"to compact by lookup", false, compact(kv.CompactByLookup)},
		{"to compact by scan", false, compact(kv.CompactByScan)},
	}
	for {
		step := steps[0]
		if r.IntN(2) == 0 {
			step = steps[r.IntN(len(steps))]
		}
		written := s.Serial()
		say("begins %s\n", step.name)
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if step.durable {
			say("durable %d\n", written)
		}
	}
}

// write executes the next n operations.
func write(s *kv.Session, n int) error {
	for range n {
		n := s.Serial() + 1
		key := binary.LittleEndian.AppendUint64(nil, n%busyKeys)
		if err := s.Upsert(key, binary.LittleEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	return nil
}

// say prints without buffering.
func say(format string, args ...any) {
	_, _ = io.WriteString(os.Stdout, fmt.Sprintf(format, args...)) // the output of a killed process is not read
}
