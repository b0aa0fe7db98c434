package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/units"
)

// EventListener is told what a store does beside its operations. What is nil is
// not called. Each runs on the goroutine that does the work, which is named
// beside it, some before Open has returned; several may run at once. They must be
// quick, for that work waits. Of the store they may call Metrics, Checkpoints,
// NextCommit and LastCommit, which wait for no such work; TierChanged, which may run
// within an operation, may not call those either. No other call of the store, of a session
// or of the device may be made: it may wait for the work that waits for the listener, for
// ever, and that is not found out. Who wants more done tells another goroutine, and does
// not wait for it.
type EventListener struct {
	// Flushed and Evicted run on the log's flusher, for which writers wait when
	// memory is full.
	Flushed func(FlushInfo)
	Evicted func(EvictInfo)

	// FlushWait runs on the log's flusher when writing the log fails for a reason that
	// may pass, and once more when it has succeeded again. The store's Logger is told as
	// well.
	FlushWait func(FlushWaitInfo)

	// Recovered runs on Open's goroutine, at its end.
	Recovered func(RecoveryInfo)

	// CheckpointBegin and CheckpointEnd run on Checkpoint's goroutine, or on that
	// of automatic checkpoints. The end follows on every beginning.
	CheckpointBegin func(CheckpointBeginInfo)
	CheckpointEnd   func(CheckpointEndInfo)

	// MemoryResized runs on SetMemory's goroutine.
	MemoryResized func(MemoryInfo)

	// CompactionBegin and CompactionEnd run on Compact's goroutine, or on that of
	// automatic compaction. The end follows on every beginning.
	CompactionBegin func(CompactionBeginInfo)
	CompactionEnd   func(CompactionEndInfo)

	// Truncated runs on the goroutine that opens, compacts, makes a checkpoint or
	// removes one.
	Truncated func(TruncateInfo)

	// IndexGrowthBegin and IndexGrowthEnd run on GrowIndex's goroutine, or on that
	// which grows the index by itself.
	IndexGrowthBegin func(GrowthInfo)
	IndexGrowthEnd   func(GrowthInfo)

	// TierChanged is for the device, which is made before the store: give it as
	// [device.TieredOptions].OnEvent. The goroutine is one that uses the device.
	TierChanged func(device.TierEvent)

	// BackgroundError runs on the goroutine that failed: the store goes on as far
	// as it can. The store's Logger is told as well.
	BackgroundError func(BackgroundErrorInfo)
}

// FlushInfo is one write of the log, or a part of it, that is on the device.
type FlushInfo struct {
	From, Until int64 // addresses
	Duration    time.Duration
}

func (i FlushInfo) String() string {
	return fmt.Sprintf("flushed %v of log from %d until %d in %v", units.Size(i.Until-i.From), i.From, i.Until, i.Duration)
}

// FlushWaitInfo is a failure to write the log that may pass: the device had no space, or
// the process was short of descriptors or memory. The log is written again after a while.
// Without space, writers and commits fail meanwhile; otherwise they wait, for
// [device.RetryTime] at most.
type FlushWaitInfo struct {
	Err      error         // why writing failed; nil: it has succeeded again…
	Duration time.Duration // …so long after it failed
}

func (i FlushWaitInfo) String() string {
	if i.Err == nil {
		return fmt.Sprintf("the log can be written again after %v", i.Duration)
	}
	return "writing the log is tried again" + failure(i.Err)
}

// EvictInfo is a part of the log that is on the device only, from now on.
type EvictInfo struct{ From, Until int64 } // addresses

func (i EvictInfo) String() string {
	return fmt.Sprintf("evicted %v of log from %d until %d", units.Size(i.Until-i.From), i.From, i.Until)
}

// RecoveryInfo is how a store was opened.
type RecoveryInfo struct{ RecoveryReport }

func (i RecoveryInfo) String() string {
	if i.New {
		return "made a store"
	}
	s := fmt.Sprintf("recovered %s: log from %d until %d, %d records read in %v", i.From, i.Begin, i.Tail, i.Records, i.Time)
	if n := len(i.Warnings); n > 0 {
		s += fmt.Sprintf(", %d warnings: %s", n, strings.Join(i.Warnings, "; "))
	}
	return s
}

// CheckpointBeginInfo is a checkpoint that begins.
type CheckpointBeginInfo struct {
	Kind CheckpointKind
	Name string // "" if it is given one at the end
}

func (i CheckpointBeginInfo) String() string {
	if i.Name == "" {
		return fmt.Sprintf("making a checkpoint, %v", i.Kind)
	}
	return fmt.Sprintf("making checkpoint %q, %v", i.Name, i.Kind)
}

// CheckpointEndInfo is a checkpoint that was made, or, of its kind and name, was
// not.
type CheckpointEndInfo struct {
	CheckpointInfo
	Duration time.Duration
	Err      error
}

func (i CheckpointEndInfo) String() string {
	if i.Err != nil {
		return fmt.Sprintf("no checkpoint after %v", i.Duration) + failure(i.Err)
	}
	return fmt.Sprintf("made %v in %v", i.CheckpointInfo, i.Duration)
}

// MemoryInfo is a change of the bytes that log and read cache may use.
type MemoryInfo struct {
	Before, After int64
	Duration      time.Duration
}

func (i MemoryInfo) String() string {
	return fmt.Sprintf("memory resized from %v to %v in %v", units.Size(i.Before), units.Size(i.After), i.Duration)
}

// CompactionBeginInfo is a compaction that begins: of the log between two
// addresses.
type CompactionBeginInfo struct {
	From, Until int64
	Method      CompactMethod
}

func (i CompactionBeginInfo) String() string {
	return fmt.Sprintf("compacting %v of log from %d until %d, method %v", units.Size(i.Until-i.From), i.From, i.Until, i.Method)
}

// CompactionEndInfo is what a compaction did, and why it ended early.
type CompactionEndInfo struct {
	CompactionInfo
	Err error
}

func (i CompactionEndInfo) String() string {
	return fmt.Sprintf("compacted the log from %d until %d: %d of %d records copied, %v reclaimed in %v",
		i.From, i.Until, i.Copied, i.Records, units.Size(max(i.Reclaimed(), 0)), i.Duration) + failure(i.Err)
}

// TruncateInfo is the lowest address of the log, what is below being given back
// to the device.
type TruncateInfo struct{ Begin int64 }

func (i TruncateInfo) String() string { return fmt.Sprintf("truncated the log below %d", i.Begin) }

// GrowthInfo is a growth of the index.
type GrowthInfo struct {
	Before, After int64         // buckets
	Duration      time.Duration // 0 at the beginning
}

func (i GrowthInfo) String() string {
	if i.Duration == 0 {
		return fmt.Sprintf("the index grows from %d buckets to %d", i.Before, i.After)
	}
	return fmt.Sprintf("the index has grown from %d buckets to %d in %v", i.Before, i.After, i.Duration)
}

// BackgroundErrorInfo is what went wrong where no caller waits for it.
type BackgroundErrorInfo struct {
	What string // was being done
	Err  error
}

func (i BackgroundErrorInfo) String() string { return i.What + failure(i.Err) }

// failure is how the line of an event ends.
func failure(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// LogEvents tells a logger of every event, by its line: Flushed and Evicted at
// level debug, what failed, unless its caller ended it, at level error, the rest at level
// info. It leaves out FlushWait, TierChanged and BackgroundError, which the store logs
// itself.
func LogEvents(logger *slog.Logger) EventListener {
	return EventListener{
		Flushed:          logAt[FlushInfo](logger, slog.LevelDebug),
		Evicted:          logAt[EvictInfo](logger, slog.LevelDebug),
		Recovered:        logAt[RecoveryInfo](logger, slog.LevelInfo),
		CheckpointBegin:  logAt[CheckpointBeginInfo](logger, slog.LevelInfo),
		CheckpointEnd:    func(i CheckpointEndInfo) { logEnd(logger, i, i.Err) },
		MemoryResized:    logAt[MemoryInfo](logger, slog.LevelInfo),
		CompactionBegin:  logAt[CompactionBeginInfo](logger, slog.LevelInfo),
		CompactionEnd:    func(i CompactionEndInfo) { logEnd(logger, i, i.Err) },
		Truncated:        logAt[TruncateInfo](logger, slog.LevelInfo),
		IndexGrowthBegin: logAt[GrowthInfo](logger, slog.LevelInfo),
		IndexGrowthEnd:   logAt[GrowthInfo](logger, slog.LevelInfo),
	}
}

func logAt[I fmt.Stringer](logger *slog.Logger, level slog.Level) func(I) {
	return func(info I) {
		if logger.Enabled(context.Background(), level) {
			logger.Log(context.Background(), level, info.String())
		}
	}
}

func logEnd(logger *slog.Logger, info fmt.Stringer, err error) {
	level := slog.LevelInfo
	if err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, new(stopped)) { // else somebody wanted it to end
		level = slog.LevelError
	}
	logger.Log(context.Background(), level, info.String())
}

// stopped is an error of what ended because its caller's context did. A device's own
// timeouts, which may be context.DeadlineExceeded as well, are none.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// stoppedBy marks an error that there is because ctx ended.
func stoppedBy(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return stopped{err}
	}
	return err
}

// Tee tells several listeners, one after the other.
func Tee(listeners ...EventListener) EventListener {
	var all EventListener
	for _, l := range listeners {
		join(&all.Flushed, l.Flushed)
		join(&all.Evicted, l.Evicted)
		join(&all.FlushWait, l.FlushWait)
		join(&all.Recovered, l.Recovered)
		join(&all.CheckpointBegin, l.CheckpointBegin)
		join(&all.CheckpointEnd, l.CheckpointEnd)
		join(&all.MemoryResized, l.MemoryResized)
		join(&all.CompactionBegin, l.CompactionBegin)
		join(&all.CompactionEnd, l.CompactionEnd)
		join(&all.Truncated, l.Truncated)
		join(&all.IndexGrowthBegin, l.IndexGrowthBegin)
		join(&all.IndexGrowthEnd, l.IndexGrowthEnd)
		join(&all.TierChanged, l.TierChanged)
		join(&all.BackgroundError, l.BackgroundError)
	}
	return all
}

// join makes first call then as well.
func join[I any](first *func(I), then func(I)) {
	switch before := *first; {
	case then == nil:
	case before == nil:
		*first = then
	default:
		*first = func(info I) { before(info); then(info) }
	}
}

// ensureDefaults makes every one callable.
func (l *EventListener) ensureDefaults() {
	fill(&l.Flushed)
	fill(&l.Evicted)
	fill(&l.FlushWait)
	fill(&l.Recovered)
	fill(&l.CheckpointBegin)
	fill(&l.CheckpointEnd)
	fill(&l.MemoryResized)
	fill(&l.CompactionBegin)
	fill(&l.CompactionEnd)
	fill(&l.Truncated)
	fill(&l.IndexGrowthBegin)
	fill(&l.IndexGrowthEnd)
	fill(&l.TierChanged)
	fill(&l.BackgroundError)
}

func fill[I any](f *func(I)) {
	if *f == nil {
		*f = func(I) {}
	}
}

// ofLog is for what the log's flusher tells.
func (st *Store) ofLog() hlog.Listener {
	to := &st.opts.Events
	return hlog.Listener{
		Flushed: func(from, until int64, took time.Duration) { to.Flushed(FlushInfo{from, until, took}) },
		Evicted: func(from, until int64) { to.Evicted(EvictInfo{from, until}) },
		Failed:  func(err error) { st.failed("writing the log", err) },
		Waits:   func(err error, took time.Duration) { to.FlushWait(FlushWaitInfo{err, took}) },
	}
}
