package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
)

// eventLog records a line for each event, after the name of its function.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

// listener returns an EventListener with all functions set, by reflection.
func (l *eventLog) listener() EventListener {
	var all EventListener
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lines = append(l.lines, fmt.Sprintf("%s: %v", name, args[0].Interface()))
			return nil
		}))
	}
	return all
}

// of returns the lines of the named functions.
func (l *eventLog) of(names ...string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		for _, name := range names {
			if strings.HasPrefix(line, name+":") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// call calls every function of a listener with an empty info.
func call(l EventListener) {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		v.Field(i).Call([]reflect.Value{reflect.New(v.Field(i).Type().In(0)).Elem()})
	}
}

// TestListenersAreWhole checks that every function that handles all events handles each of
// them, and that each event prints one line.
func TestListenersAreWhole(t *testing.T) {
	events := reflect.TypeFor[EventListener]().NumField()
	call(Tee(EventListener{}))

	var first, second eventLog
	call(Tee(EventListener{}, first.listener(), EventListener{}, second.listener()))
	for _, l := range []*eventLog{&first, &second} {
		if len(l.lines) != events {
			t.Errorf("%d of %d events reached a listener", len(l.lines), events)
		}
		for _, line := range l.lines {
			if strings.Contains(line, "\n") || strings.Contains(line, "{") {
				t.Errorf("not one line for people: %q", line)
			}
		}
	}

	var b bytes.Buffer
	logged := LogEvents(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if logged.FlushWait != nil || logged.Recovering != nil || logged.TierChanged != nil || logged.BackgroundError != nil {
		t.Error("the logger would be told twice")
	}
	const others = 4 // that LogEvents leaves out
	logged.FlushWait, logged.Recovering = func(FlushWaitInfo) {}, func(RecoveringInfo) {}
	logged.TierChanged, logged.BackgroundError = func(device.TierEvent) {}, func(BackgroundErrorInfo) {}
	call(logged)
	if lines := strings.Count(b.String(), "\n"); lines != events-others {
		t.Errorf("%d lines for %d events:\n%s", lines, events-others, b.String())
	}
	b.Reset()
	logged.CompactionEnd(CompactionEndInfo{Err: device.ErrFault})
	if !strings.Contains(b.String(), "level=ERROR") || !strings.Contains(b.String(), device.ErrFault.Error()) {
		t.Error(b.String())
	}
}

// TestCanceledIsNoError checks that work ended by the caller is not logged as an error.
func TestCanceledIsNoError(t *testing.T) {
	var b bytes.Buffer
	LogEvents(slog.New(slog.NewTextHandler(&b, nil))).CheckpointEnd(CheckpointEndInfo{Err: fmt.Errorf("kv: %w", context.Canceled)})
	if !strings.Contains(b.String(), "level=INFO") || !strings.Contains(b.String(), "canceled") {
		t.Error(b.String())
	}
}

// TestDeadlineIsNoError checks the same for a deadline of the caller. A timeout of the device
// is an error.
func TestDeadlineIsNoError(t *testing.T) {
	var b bytes.Buffer
	opts := small(device.NewMemory(), 8, 8)
	opts.Events = LogEvents(slog.New(slog.NewTextHandler(&b, nil)))
	st := open(t, opts)
	defer closeAll(t, st)
	for n := range uint64(1000) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, do := range map[string]func() error{
		"compaction": func() error {
			_, err := st.Compact(past, CompactOptions{})
			return err
		},
		"checkpoint": func() error {
			_, err := st.Checkpoint(past, CheckpointOptions{})
			return err
		},
	} {
		b.Reset()
		if err := do(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(b.String(), "level=ERROR") || !strings.Contains(b.String(), context.DeadlineExceeded.Error()) {
			t.Errorf("%s: %s", name, b.String())
		}
	}
	b.Reset()
	opts.Events.CheckpointEnd(CheckpointEndInfo{Err: fmt.Errorf("reading: %w", context.DeadlineExceeded)})
	if !strings.Contains(b.String(), "level=ERROR") {
		t.Error(b.String())
	}
}

// TestEvents causes each event.
func TestEvents(t *testing.T) {
	var l eventLog
	opts := small(device.NewMemory(), 8, 8)
	opts.MaxMemory, opts.ReadCache, opts.Memory = 1<<20, 0.5, 128<<10
	opts.Events, opts.FixedIndex = l.listener(), true
	st := open(t, opts)
	for n := range uint64(10_000) {
		if err := st.Upsert(context.Background(), key8(n%5000), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.SetMemory(context.Background(), 256<<10); err != nil {
		t.Fatal(err)
	}
	if err := st.GrowIndex(context.Background()); err != nil {
		t.Fatal(err)
	}
	info, err := st.Compact(context.Background(), CompactOptions{Bytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	buckets := st.index.Load().Mask() + 1
	closeAll(t, st)

	if got := l.of("Flushed", "Evicted"); len(got) < 50 {
		t.Errorf("flushes and evictions: %q", got)
	}
	for _, want := range []struct{ name, line string }{
		{"MemoryResized", "memory resized from 128KiB to 256KiB in "},
		{"IndexGrowthBegin", fmt.Sprintf("the index grows from %d buckets to %d", buckets/2, buckets)},
		{"IndexGrowthEnd", fmt.Sprintf("the index has grown from %d buckets to %d in ", buckets/2, buckets)},
		{"CompactionBegin", fmt.Sprintf("compacting 63.94KiB of log from 64 until %d, method auto", info.Until)},
		{"CompactionEnd", fmt.Sprintf("compacted the log from 64 until %d: %d of %d records copied", info.Until, info.Copied, info.Records)},
		{"Truncated", fmt.Sprintf("truncated the log below %d", info.Until)},
	} {
		if got := l.of(want.name); len(got) != 1 || !strings.HasPrefix(got[0], want.name+": "+want.line) {
			t.Errorf("%q, want %q", got, want.line)
		}
	}
	if got := l.of("BackgroundError", "TierChanged"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestCheckpointEvents makes checkpoints, one of which fails, and opens the store again.
// Metrics agree with the events.
func TestCheckpointEvents(t *testing.T) {
	memory := device.NewMemory()
	dev := device.NewFaulty(memory, device.FaultyOptions{})
	opts := small(dev, 8, 8)
	st := open(t, opts)
	if m := st.Metrics(); !m.Checkpoints.Last.IsZero() || m.Checkpoints.Kept != 0 {
		t.Errorf("%+v", m)
	}
	closeAll(t, st)

	var l eventLog
	opts.Events = l.listener()
	memory = memory.Reopen()
	dev = device.NewFaulty(memory, device.FaultyOptions{})
	opts.Device = dev
	st = open(t, opts)
	for n := range uint64(100) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	info, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Snapshot, Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := st.Checkpoint(canceled, CheckpointOptions{}); err == nil {
		t.Fatal("a checkpoint was made though nobody waited for it")
	}
	m := st.Metrics()
	closeAll(t, st)

	if m.Checkpoints.Made != 1 || m.Checkpoints.Failed != 1 || m.Checkpoints.Kept != 1 || m.Checkpoints.Bytes != info.Bytes || info.Bytes == 0 ||
		!m.Checkpoints.Last.Equal(info.Time) || m.Checkpoints.LastBytes != info.Bytes || m.Checkpoints.LastDuration <= 0 || m.Commits.Made != 1 || m.Commits.Failed != 0 {
		t.Errorf("%v\n%v", m, info)
	}
	for name, want := range map[string][]string{
		"Recovered":       {"recovered commit: log from 64 until 64, 0 records read in "},
		"CheckpointBegin": {`making checkpoint "mine", snapshot`, "making a checkpoint, fold-over"},
		"CheckpointEnd":   {"made " + info.String() + " in ", "no checkpoint after "},
	} {
		got := l.of(name)
		if len(got) != len(want) {
			t.Errorf("%q, want %q", got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], name+": "+want[i]) {
				t.Errorf("%q, want %q", got[i], want[i])
			}
		}
	}
}

// TestEventsOfSickDevices fails a tier, and then the last one.
func TestEventsOfSickDevices(t *testing.T) {
	var l eventLog
	events := l.listener()
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 1})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 5})
	opts := small(device.NewTieredWith(device.TieredOptions{
		Names: []string{"fast", "slow"}, OnEvent: events.TierChanged, RetryAfter: time.Hour,
	}, first, last), 8, 8)
	opts.Events = events
	st := open(t, opts)
	var err error
	for n := uint64(0); err == nil; n++ {
		err = st.Upsert(context.Background(), key8(n), key8(n))
	}
	if !errors.Is(err, device.ErrFault) {
		t.Fatal(err)
	}
	_ = st.Close() // it cannot commit
	if got := l.of("TierChanged"); len(got) == 0 || !strings.Contains(got[0], "tier 0, fast, failed: ") {
		t.Errorf("%q", got)
	}
	got := l.of("BackgroundError")
	if len(got) != 1 || !strings.HasPrefix(got[0], "BackgroundError: writing the log: hlog: ") {
		t.Errorf("%q", got)
	}
}

// The store reports its own events, and its device those of the tiers.
func ExampleEventListener() {
	var mu sync.Mutex
	count := make(map[string]int)
	events := EventListener{
		Flushed:     func(FlushInfo) { mu.Lock(); count["flushed"]++; mu.Unlock() },
		TierChanged: func(e device.TierEvent) { fmt.Println(e) },
	}
	dev := device.NewTieredWith(device.TieredOptions{OnEvent: events.TierChanged}, device.NewMemory(), device.NewMemory())
	st, err := Open(Options{Device: dev, Events: Tee(events, LogEvents(slog.Default()))})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = st.Upsert(context.Background(), []byte("key"), []byte("value"))
	if err = errors.Join(err, st.Close()); err != nil { // it commits
		fmt.Println(err)
	}
	fmt.Println(count["flushed"] > 0)
	// Output: true
}
