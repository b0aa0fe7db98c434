package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// keepingFlags are the flags for durability, checkpoints and compaction of the served store.
type keepingFlags struct {
	durability  resp.Durability
	checkpoints kv.CheckpointPolicy
	compaction  kv.AutoCompaction
	every, size units.Size
}

func newKeepingFlags() keepingFlags {
	return keepingFlags{
		durability:  resp.DurabilityEverySecond,
		checkpoints: kv.CheckpointPolicy{Kind: kv.Index, Keep: kv.DefaultKeep},
		compaction:  kv.AutoCompaction{DeadShare: kv.DefaultCompactDead, Share: kv.DefaultCompactShare},
		every:       4 << 30,
	}
}

func (f *keepingFlags) add(flags *pflag.FlagSet) {
	flags.TextVar(&f.durability, "durability", f.durability, "what a reply to a write promises: none, everysec, always")
	flags.TextVar(&f.checkpoints.Kind, "checkpoint-kind", f.checkpoints.Kind, "what checkpoints are: index, a copy of it for opening fast; fold-over, snapshot and incremental, which can be gone back to as well")
	flags.Var(&f.every, "checkpoint-every-bytes", "growth of the log between two checkpoints; 0: it does not matter")
	flags.DurationVar(&f.checkpoints.Every, "checkpoint-every", 0, "time between two checkpoints; 0: it does not matter")
	flags.IntVar(&f.checkpoints.Keep, "checkpoint-keep", f.checkpoints.Keep, "checkpoints to keep; those that a program gave a name stay besides")
	flags.Float64Var(&f.compaction.DeadShare, "compact-dead", f.compaction.DeadShare, "share of the log, 0 to less than 1, that may be overwritten or deleted before it is compacted; 0: it does not matter")
	flags.Var(&f.size, "compact-size", "size of the log from which on it is compacted, whatever is in it; 0: it does not matter")
	flags.Float64Var(&f.compaction.Share, "compact-share", f.compaction.Share, "share of a processor that compaction may use while it keeps up; the further the log is beyond --compact-dead or --compact-size, the more")
}

// policy returns the policy of checkpoints: none for a store in memory, or if both intervals are 0.
func (f *keepingFlags) policy(storage string) kv.CheckpointPolicy {
	if storage == storageMemory || f.checkpoints.Every == 0 && f.checkpoints.EveryBytes == 0 {
		return kv.CheckpointPolicy{}
	}
	return f.checkpoints
}

// compactionPolicy returns the policy of compaction: none if both bounds are 0.
func (f *keepingFlags) compactionPolicy() kv.AutoCompaction {
	if f.compaction.DeadShare == 0 && f.compaction.LogSize == 0 {
		return kv.AutoCompaction{}
	}
	return f.compaction
}

func (f *keepingFlags) check() error {
	f.checkpoints.EveryBytes, f.compaction.LogSize = int64(f.every), int64(f.size)
	switch {
	case f.checkpoints.Every < 0 || f.checkpoints.Every > 0 && f.checkpoints.Every < time.Second:
		return usagef("--checkpoint-every %v: want 1s or more, or 0", f.checkpoints.Every)
	case f.checkpoints.Keep < 1:
		return usagef("--checkpoint-keep %d: want at least 1", f.checkpoints.Keep)
	case !(f.compaction.DeadShare >= 0 && f.compaction.DeadShare < 1):
		return usagef("--compact-dead %g: want 0 to less than 1", f.compaction.DeadShare)
	case !(f.compaction.Share > 0 && f.compaction.Share <= 1):
		return usagef("--compact-share %g: want more than 0 to 1", f.compaction.Share)
	}
	return nil
}
