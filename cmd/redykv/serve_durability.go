package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// durabilityFlags are the flags for durability, checkpoints and compaction of the served store.
type durabilityFlags struct {
	promise     resp.Durability
	checkpoints kv.CheckpointPolicy
	compaction  kv.AutoCompaction
	every, size units.Size
}

func newDurabilityFlags() durabilityFlags {
	return durabilityFlags{
		promise:     resp.DurabilityEverySecond,
		checkpoints: kv.CheckpointPolicy{Kind: kv.Index, Keep: kv.DefaultKeep},
		compaction:  kv.AutoCompaction{DeadShare: kv.DefaultCompactDead, Share: kv.DefaultCompactShare},
		every:       4 << 30,
	}
}

func (f *durabilityFlags) add(flags *pflag.FlagSet) {
	flags.TextVar(&f.promise, "durability", f.promise, "what a reply to a write promises after a crash: none, everysec, always")
	flags.TextVar(&f.checkpoints.Kind, "checkpoint-kind", f.checkpoints.Kind, "kind of checkpoints: index, a copy of the index for opening fast; fold-over, snapshot, incremental: can be recovered to as well")
	flags.Var(&f.every, "checkpoint-every-bytes", "growth of the log after which a checkpoint is taken; 0: off")
	flags.DurationVar(&f.checkpoints.Every, "checkpoint-every", 0, "time after which a checkpoint is taken; 0: off")
	flags.IntVar(&f.checkpoints.Keep, "checkpoint-keep", f.checkpoints.Keep, "checkpoints to keep, in addition to named ones")
	flags.Float64Var(&f.compaction.DeadShare, "compact-dead", f.compaction.DeadShare, "share of overwritten and deleted records from which the log is compacted, 0 to less than 1; 0: off")
	flags.Var(&f.size, "compact-size", "size from which the log is compacted, whatever its content; 0: off")
	flags.Float64Var(&f.compaction.Share, "compact-share", f.compaction.Share, "share of a processor that compaction may use; it uses more, the further the log is beyond --compact-dead or --compact-size")
}

// policy returns the policy of checkpoints: none for a store in memory, or if both intervals are 0.
func (f *durabilityFlags) policy(storage string) kv.CheckpointPolicy {
	if storage == storageMemory || f.checkpoints.Every == 0 && f.checkpoints.EveryBytes == 0 {
		return kv.CheckpointPolicy{}
	}
	return f.checkpoints
}

// compactionPolicy returns the policy of compaction: none if both bounds are 0.
func (f *durabilityFlags) compactionPolicy() kv.AutoCompaction {
	if f.compaction.DeadShare == 0 && f.compaction.LogSize == 0 {
		return kv.AutoCompaction{}
	}
	return f.compaction
}

func (f *durabilityFlags) check() error {
	f.checkpoints.EveryBytes, f.compaction.LogSize = int64(f.every), int64(f.size)
	switch {
	case f.checkpoints.Every < 0 || f.checkpoints.Every > 0 && f.checkpoints.Every < time.Second:
		return usagef("--checkpoint-every %v: want 1s or more, or 0", f.checkpoints.Every)
	case f.checkpoints.Keep < 1:
		return usagef("--checkpoint-keep %d: want at least 1", f.checkpoints.Keep)
	case !(f.compaction.DeadShare >= 0 && f.compaction.DeadShare < 1):
		return usagef("--compact-dead %g: want 0 to less than 1", f.compaction.DeadShare)
	case !(f.compaction.Share > 0 && f.compaction.Share <= 1):
		return usagef("--compact-share %g: want more than 0, up to 1", f.compaction.Share)
	}
	return nil
}

// close closes the store. Without a promise it keeps what a full device has of the log, for which the last
// commit may be long ago or none; the error is that of the commit.
func (f *durabilityFlags) close(store *kv.Store, log *slog.Logger) error {
	if f.promise == resp.DurabilityNone && errors.Is(store.Commit(context.Background()), device.ErrNoSpace) {
		if lost, err := store.CommitWritten(context.Background()); err != nil {
			log.Error("what was written since the last commit is lost", "err", err)
		} else {
			log.Error("the device has no space for the end of the log, which is lost", "bytes", lost)
		}
	}
	return store.Close()
}
