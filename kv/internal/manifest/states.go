package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// LastCommit names the last commit among the states that can be recovered.
const LastCommit = "commit"

// GivenName reports whether name is one that the store gives to a checkpoint without a name:
// "c" and a number.
func GivenName(name string) bool {
	n, ok := strings.CutPrefix(name, "c")
	return ok && strings.Trim(n, "0123456789") == ""
}

// Named returns the checkpoint with a name, or nil.
func (m *Manifest) Named(name string) *Checkpoint {
	return m.find(func(c Checkpoint) bool { return c.Name == name })
}

// Numbered returns the checkpoint with a number, or nil.
func (m *Manifest) Numbered(sequence uint64) *Checkpoint {
	return m.find(func(c Checkpoint) bool { return c.Sequence == sequence })
}

func (m *Manifest) find(is func(c Checkpoint) bool) *Checkpoint {
	if i := slices.IndexFunc(m.Checkpoints, is); i >= 0 {
		return &m.Checkpoints[i]
	}
	return nil
}

// Newest returns the checkpoint that Open recovers to by default; nil: the last commit.
func (m *Manifest) Newest() *Checkpoint {
	if n := len(m.Checkpoints); n > 0 && m.Checkpoints[n-1].Sequence > m.Commit.Sequence {
		return &m.Checkpoints[n-1]
	}
	return nil
}

// Chain returns the checkpoints whose snapshots make up c's log, oldest first, c last.
func (m *Manifest) Chain(c *Checkpoint) []*Checkpoint {
	if c.Base == 0 {
		return []*Checkpoint{c}
	}
	return append(m.Chain(m.Numbered(c.Base)), c)
}

// Snapshots returns the snapshots that make up c's log, oldest first.
func (m *Manifest) Snapshots(c *Checkpoint) []LogPart {
	var all []LogPart
	for _, c := range m.Chain(c) {
		all = append(all, LogPart{c.Snapshot, c.Flushed, c.Tail})
	}
	return all
}

// Info describes a checkpoint or a commit: see kv.CheckpointInfo.
type Info struct {
	Name        string
	Kind        Kind
	Sequence    uint64
	Base        string
	Time        time.Time
	Begin, Tail int64
	Bytes       int64
	Pinned      int64
	Index       bool
}

// Info describes c.
func (m *Manifest) Info(c *Checkpoint) Info {
	info := Info{
		Name: c.Name, Kind: c.Kind, Sequence: c.Sequence, Time: c.Time,
		Begin: c.Begin, Tail: c.Tail, Bytes: c.Bytes, Pinned: m.Pinned(c.Begin), Index: c.Index != nil,
	}
	if base := m.Numbered(c.Base); base != nil {
		info.Base = base.Name
	}
	return info
}

// Pinned returns how many bytes of the log the device keeps for a state that begins at
// begin, below what the last commit needs.
func (m *Manifest) Pinned(begin int64) int64 { return max(m.Commit.Begin-begin, 0) }

// Objects returns the names of all objects that the manifest names.
func (m *Manifest) Objects() map[string]bool {
	names := make(map[string]bool)
	for _, index := range []*IndexCopy{m.Index, m.Commit.Index} {
		if index != nil {
			names[index.Object] = true
		}
	}
	for i := range m.Checkpoints {
		c := &m.Checkpoints[i]
		if c.Index != nil {
			names[c.Index.Object] = true
		}
		if c.Snapshot != "" {
			names[c.Snapshot] = true
		}
	}
	return names
}

// Begin returns the lowest address that a state needs.
func (m *Manifest) Begin() int64 {
	begin := m.Commit.Begin
	for i := range m.Checkpoints {
		begin = min(begin, m.Checkpoints[i].Begin)
	}
	return begin
}

// DeviceTail returns the tail with which the device is started to recover c; nil: the
// last commit. The device keeps what older states need of it, even what c's snapshots
// hold: until the recovery has ended, one of the older states may be asked for instead.
func (m *Manifest) DeviceTail(c *Checkpoint) int64 {
	if c == nil {
		return m.Commit.Tail
	}
	tail := c.onDevice()
	if m.Commit.Sequence < c.Sequence {
		tail = max(tail, m.Commit.Tail)
	}
	for i := range m.Checkpoints {
		if older := &m.Checkpoints[i]; older.Sequence < c.Sequence {
			tail = max(tail, older.onDevice())
		}
	}
	return min(tail, c.Tail)
}

// onDevice returns the address up to which c needs the log on the device.
func (c *Checkpoint) onDevice() int64 {
	if c.Snapshot == "" {
		return c.Tail
	}
	return c.Flushed
}

// Keep drops all checkpoints but those with a name of the user's, the newest n of the
// others, and the ones that these are based on.
func (m *Manifest) Keep(n int) {
	needed := make(map[uint64]bool)
	for i := len(m.Checkpoints) - 1; i >= 0; i-- {
		if GivenName(m.Checkpoints[i].Name) {
			if n--; n < 0 {
				continue
			}
		}
		for _, c := range m.Chain(&m.Checkpoints[i]) {
			needed[c.Sequence] = true
		}
	}
	m.Drop(func(c *Checkpoint) bool { return !needed[c.Sequence] })
}

// Drop drops the checkpoints for which which returns true.
func (m *Manifest) Drop(which func(c *Checkpoint) bool) {
	m.Checkpoints = slices.DeleteFunc(m.Checkpoints, func(c Checkpoint) bool { return which(&c) })
}

// SetCommit makes s the last commit, unless there is a later one. A checkpoint may have
// removed s's copy of the index in the meantime.
func (m *Manifest) SetCommit(s *State) {
	if s.Sequence <= m.Commit.Sequence {
		return
	}
	last := *s
	if last.Index != nil && !m.Objects()[last.Index.Object] {
		last.Index = nil
	}
	m.Commit = last
	if m.Index != nil && m.Index.Start <= last.Begin { // the copy knows nothing of this log
		m.Index = nil
	}
}

// Others returns, for an error message, which states can be recovered instead of the one with the number
// chosen, or of any that needs the object damaged.
func (m *Manifest) Others(chosen uint64, damaged string) string {
	var names []string
	if at := m.Commit.Sequence; at != 0 && at != chosen && m.Numbered(at) == nil {
		names = append(names, fmt.Sprintf("%q", LastCommit))
	}
	for i := range m.Checkpoints {
		c := &m.Checkpoints[i]
		whole := c.Sequence != chosen
		for _, part := range m.Chain(c) {
			whole = whole && (damaged == "" || part.Snapshot != damaged)
		}
		if whole {
			names = append(names, fmt.Sprintf("%q", c.Name))
		}
	}
	if len(names) == 0 {
		return "no other state can be recovered"
	}
	return "Options.Recover can name " + strings.Join(names, ", ")
}
