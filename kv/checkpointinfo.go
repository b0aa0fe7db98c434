package kv

import (
	"time"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// CheckpointKind is how a checkpoint is made.
type CheckpointKind = manifest.Kind

const (
	// FoldOver makes the log read-only up to its tail, and durable. What is
	// updated afterwards is copied to the tail first.
	FoldOver CheckpointKind = manifest.FoldOver
	// Snapshot writes what the device does not have yet of the log to an object,
	// and the log is as mutable afterwards as before. Meanwhile it is not: what is
	// updated is copied to the tail.
	Snapshot CheckpointKind = manifest.Snapshot
	// Incremental is a Snapshot without those blocks of 4 KiB that are the same in
	// the one before. Without one since the store was opened it is a Snapshot.
	Incremental CheckpointKind = manifest.Incremental
	// Index writes a copy of the index only. It is no state that can be recovered,
	// but makes the recovery of commits, and of checkpoints without a copy of their
	// own, read the log only from there on.
	Index CheckpointKind = manifest.Index
)

// CheckpointOptions say what [Store.Checkpoint] shall do.
type CheckpointOptions struct {
	Kind CheckpointKind
	// Name is for [Options].Recover: up to 128 letters, digits, dots, dashes and
	// underscores, and none that is kept has it. A checkpoint with a name is kept until
	// [Store.RemoveCheckpoint]. Default: "c" and the checkpoint's
	// number; such names, and LastCommit, cannot be chosen. An Index has none.
	Name string
	// LogOnly leaves the index out: recovery uses the newest copy that was made
	// before, or reads the whole log.
	LogOnly bool
}

// CheckpointInfo describes a checkpoint.
type CheckpointInfo struct {
	Name        string
	Kind        CheckpointKind
	Sequence    uint64 // numbers that grow from one to the next
	Base        string // the checkpoint that an incremental one stands on
	Time        time.Time
	Begin, Tail int64 // the log that it covers
	Bytes       int64 // in objects of its own; 0 for what it shares with others
	Pinned      int64 // of the log, below what the last commit needs: they stay on the device for it, and for others that reach so far
	Index       bool  // there is a copy of the index for it
}

// Checkpoints are those that are kept, oldest first.
func (st *Store) Checkpoints() []CheckpointInfo {
	m := st.recorded()
	return checkpointInfos(&m)
}

func checkpointInfos(m *manifest.Manifest) []CheckpointInfo {
	infos := make([]CheckpointInfo, len(m.Checkpoints))
	for i := range m.Checkpoints {
		infos[i] = checkpointInfo(m, &m.Checkpoints[i])
	}
	return infos
}

func checkpointInfo(m *manifest.Manifest, c *manifest.Checkpoint) CheckpointInfo {
	return CheckpointInfo{
		Name: c.Name, Kind: c.Kind, Sequence: c.Sequence, Base: m.BaseName(c), Time: c.Time,
		Begin: c.Begin, Tail: c.Tail, Bytes: c.Bytes, Pinned: m.Pinned(c.Begin), Index: c.Index != nil,
	}
}
