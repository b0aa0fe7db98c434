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

// EventListener has a function for each kind of event of a store; nil functions are not
// called. A function runs on the goroutine of the event, named at the field, and may run
// before Open has returned. Several functions may run at once. The goroutine waits for the
// function, so the function must be quick.
//
// A function may call the store's Metrics, Checkpoints, NextCommit and LastCommit, which do
// not wait for such goroutines; TierChanged, which may run within an operation, may not call
// those either. Any other call of the store, of a session or of the device may deadlock, and
// the store does not detect that. A function that needs such a call passes it to another
// goroutine and does not wait for it.
type EventListener struct {
	// Flushed and Evicted run on the log's flusher. When memory is full, writers wait for it.
	Flushed func(FlushInfo)
	Evicted func(EvictInfo)

	// FlushWait runs on the log's flusher when a write of the log fails for a reason that
	// may pass, and again when a write succeeds. The store's Logger logs it as well.
	FlushWait func(FlushWaitInfo)

	// Recovering runs on goroutines of Open, one at a time, after each part that was read of the
	// copy of the index and of the log that fits in memory, which are one thing, and then of the log
	// that is replayed.
	// Snapshots, and the rehearsal of Options.Recover, are not counted. The store's Logger logs it
	// every few seconds.
	Recovering func(RecoveringInfo)

	// Recovered runs on Open's goroutine, at its end.
	Recovered func(RecoveryInfo)

	// CheckpointBegin and CheckpointEnd run on Checkpoint's goroutine, or on that of automatic
	// checkpoints. Every begin has an end.
	CheckpointBegin func(CheckpointBeginInfo)
	CheckpointEnd   func(CheckpointEndInfo)

	// MemoryResized runs on SetMemory's goroutine.
	MemoryResized func(MemoryInfo)

	// CompactionBegin and CompactionEnd run on Compact's goroutine, or on that of automatic
	// compaction. Every begin has an end.
	CompactionBegin func(CompactionBeginInfo)
	CompactionEnd   func(CompactionEndInfo)

	// Truncated runs on the goroutine that opens, compacts, or makes or removes a checkpoint, or in the
	// background after a commit.
	Truncated func(TruncateInfo)

	// IndexGrowthBegin and IndexGrowthEnd run on GrowIndex's goroutine, or on the one that
	// grows a crowded index.
	IndexGrowthBegin func(GrowthInfo)
	IndexGrowthEnd   func(GrowthInfo)

	// TierChanged is called by the device, not by the store: pass it as
	// [device.TieredOptions].OnEvent. It runs on a goroutine that uses the device.
	TierChanged func(device.TierEvent)

	// BackgroundError runs on the goroutine that failed. The store continues as far as
	// possible. The store's Logger logs the error as well.
	BackgroundError func(BackgroundErrorInfo)
}

// FlushInfo describes one completed write of the log to the device.
type FlushInfo struct {
	From, Until int64 // addresses
	Duration    time.Duration
}

func (i FlushInfo) String() string {
	return fmt.Sprintf("flushed %v of log from %d until %d in %v", units.Size(i.Until-i.From), i.From, i.Until, i.Duration)
}

// FlushWaitInfo describes a failed write of the log that will be retried: the device had no
// space, or the process had no descriptors or no memory. Without space, writers and commits
// fail meanwhile; otherwise they wait, for up to [device.RetryTime].
type FlushWaitInfo struct {
	Err      error         // why the write failed; nil after a success
	Duration time.Duration // if Err is nil: time since the failure
}

func (i FlushWaitInfo) String() string {
	if i.Err == nil {
		return fmt.Sprintf("the log can be written again after %v", i.Duration)
	}
	return "writing the log is tried again" + failure(i.Err)
}

// EvictInfo describes a part of the log that was removed from memory.
type EvictInfo struct{ From, Until int64 } // addresses

func (i EvictInfo) String() string {
	return fmt.Sprintf("evicted %v of log from %d until %d", units.Size(i.Until-i.From), i.From, i.Until)
}

// RecoveringInfo describes how far the opening of a store is.
type RecoveringInfo struct {
	What        string // snapshots; "log that fits in memory", with the copy of the index before it if there is one; "log"
	Read, Bytes int64  // so far, and in all: of the index without overflow buckets
}

func (i RecoveringInfo) String() string {
	return fmt.Sprintf("opening: %v of %v of the %s read", units.Size(i.Read), units.Size(i.Bytes), i.What)
}

// RecoveryInfo describes how a store was opened.
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

// CheckpointBeginInfo describes the begin of a checkpoint.
type CheckpointBeginInfo struct {
	Kind CheckpointKind
	Name string // "" if the store names it at the end
}

func (i CheckpointBeginInfo) String() string {
	if i.Name == "" {
		return fmt.Sprintf("making a checkpoint, %v", i.Kind)
	}
	return fmt.Sprintf("making checkpoint %q, %v", i.Name, i.Kind)
}

// CheckpointEndInfo describes a checkpoint that was made. If Err is not nil, the checkpoint
// failed, and only its Kind and Name are set.
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

// MemoryInfo describes a change of the memory of log and read cache.
type MemoryInfo struct {
	Before, After int64
	Duration      time.Duration
}

func (i MemoryInfo) String() string {
	return fmt.Sprintf("memory resized from %v to %v in %v", units.Size(i.Before), units.Size(i.After), i.Duration)
}

// CompactionBeginInfo describes the begin of a compaction of the log between two addresses.
type CompactionBeginInfo struct {
	From, Until int64
	Method      CompactMethod
}

func (i CompactionBeginInfo) String() string {
	return fmt.Sprintf("compacting %v of log from %d until %d, method %v", units.Size(i.Until-i.From), i.From, i.Until, i.Method)
}

// CompactionEndInfo describes a compaction that ended. Err is the reason if it ended early.
type CompactionEndInfo struct {
	CompactionInfo
	Err error
}

func (i CompactionEndInfo) String() string {
	return fmt.Sprintf("compacted the log from %d until %d: %d of %d records copied, %v reclaimed in %v",
		i.From, i.Until, i.Copied, i.Records, units.Size(max(i.Reclaimed(), 0)), i.Duration) + failure(i.Err)
}

// TruncateInfo describes a truncation: the device holds the log from Begin on.
type TruncateInfo struct{ Begin int64 }

func (i TruncateInfo) String() string { return fmt.Sprintf("truncated the log below %d", i.Begin) }

// GrowthInfo describes a growth of the index.
type GrowthInfo struct {
	Before, After int64         // buckets
	Duration      time.Duration // 0 at the begin
}

func (i GrowthInfo) String() string {
	if i.Duration == 0 {
		return fmt.Sprintf("the index grows from %d buckets to %d", i.Before, i.After)
	}
	return fmt.Sprintf("the index has grown from %d buckets to %d in %v", i.Before, i.After, i.Duration)
}

// BackgroundErrorInfo describes an error that no caller receives.
type BackgroundErrorInfo struct {
	What string // what failed
	Err  error
}

func (i BackgroundErrorInfo) String() string { return i.What + failure(i.Err) }

// failure returns the end of a log line for err.
func failure(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// LogEvents returns a listener that logs a line for every event: Flushed and Evicted at level
// debug, failures at level error unless the caller ended the work, the others at level info.
// It leaves out FlushWait, Recovering, TierChanged and BackgroundError, which the store logs itself.
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
	if err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, new(stopped)) { // else the caller ended it
		level = slog.LevelError
	}
	logger.Log(context.Background(), level, info.String())
}

// stopped is the error of work that ended because its caller's context did. It distinguishes
// this from a device's own timeouts, which may also be context.DeadlineExceeded.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// stoppedBy marks an error that was caused by the end of ctx.
func stoppedBy(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return stopped{err}
	}
	return err
}

// Tee returns a listener that calls several listeners, one after the other. With at
// least one argument it has every function, even if no listener has it.
func Tee(listeners ...EventListener) EventListener {
	var all EventListener
	for _, l := range listeners {
		join(&all.Flushed, l.Flushed)
		join(&all.Evicted, l.Evicted)
		join(&all.FlushWait, l.FlushWait)
		join(&all.Recovering, l.Recovering)
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

// join makes *first also call then, and sets it if both are nil.
func join[I any](first *func(I), then func(I)) {
	switch before := *first; {
	case then == nil && before == nil:
		*first = func(I) {}
	case then == nil:
	case before == nil:
		*first = then
	default:
		*first = func(info I) { before(info); then(info) }
	}
}

// logListener returns the listener for the events of the log.
func (st *Store) logListener() hlog.Listener {
	to := &st.opts.Events
	return hlog.Listener{
		Flushed: func(from, until int64, took time.Duration) { to.Flushed(FlushInfo{from, until, took}) },
		Evicted: func(from, until int64) { to.Evicted(EvictInfo{from, until}) },
		Failed:  func(err error) { st.failed("writing the log", err) },
		Waits:   func(err error, took time.Duration) { to.FlushWait(FlushWaitInfo{err, took}) },
	}
}
