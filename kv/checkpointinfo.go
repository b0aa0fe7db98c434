package kv

import (
	"fmt"
	"time"
)

// CheckpointKind is how a checkpoint is made.
type CheckpointKind uint8

const (
	// FoldOver makes the log read-only up to its tail, and durable. What is
	// updated afterwards is copied to the tail first.
	FoldOver CheckpointKind = iota
	// Snapshot writes what the device does not have yet of the log to an object,
	// and the log is as mutable afterwards as before. Meanwhile it is not: what is
	// updated is copied to the tail.
	Snapshot
	// Incremental is a Snapshot without those blocks of 4 KiB that are the same in
	// the one before. Without one since the store was opened it is a Snapshot.
	Incremental
	// Index writes a copy of the index only. It is no state that can be recovered,
	// but makes the recovery of commits, and of checkpoints without a copy of their
	// own, read the log only from there on.
	Index

	checkpointKinds
)

var checkpointKindNames = [checkpointKinds]string{"fold-over", "snapshot", "incremental", "index"}

func (k CheckpointKind) String() string {
	if k < checkpointKinds {
		return checkpointKindNames[k]
	}
	return fmt.Sprintf("CheckpointKind(%d)", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k CheckpointKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *CheckpointKind) UnmarshalText(text []byte) error {
	for i, name := range checkpointKindNames {
		if name == string(text) {
			*k = CheckpointKind(i)
			return nil
		}
	}
	return fmt.Errorf("kv: unknown kind of checkpoint %q", text)
}

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
	return m.infos()
}

func (m *manifest) infos() []CheckpointInfo {
	infos := make([]CheckpointInfo, len(m.Checkpoints))
	for i := range m.Checkpoints {
		infos[i] = m.info(&m.Checkpoints[i])
	}
	return infos
}

func (m *manifest) info(c *checkpoint) CheckpointInfo {
	info := CheckpointInfo{
		Name: c.Name, Kind: c.Kind, Sequence: c.Sequence, Time: c.Time,
		Begin: c.Begin, Tail: c.Tail, Bytes: c.Bytes, Pinned: max(m.Commit.Begin-c.Begin, 0), Index: c.Index != nil,
	}
	if base := m.numbered(c.Base); base != nil {
		info.Base = base.Name
	}
	return info
}
