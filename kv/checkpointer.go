package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
)

// checkpointer makes states of the store durable, and gives back what no state needs.
// Its machine's phases say what is under way: of commits (commit.go), of checkpoints
// (checkpoint.go, snapshot.go) and collections, of compactions (compact.go), and of what
// excludes these, RemoveCheckpoint and Close. The table in package phase says what begins
// at once and what waits. Clear needs no phase: it is one barrier.
//
// Lock order, outermost first:
//
//	Store.closing, Store.sizing, the machine's phases, Store.wholes, Store.transactions,
//	Store.resizing, the epoch's gate, Store.mu, checkpointer.mu
//
// Nothing is taken while checkpointer.mu is held, and no device is waited for while
// Store.mu or checkpointer.mu is. Waiting for a phase or for a barrier ends with a context.
type checkpointer struct {
	machine phase.Machine

	mu        sync.Mutex             // guards the next fields
	manifest  manifest.Manifest      // the last one that was written, or need not be
	written   []byte                 // its bytes
	volatile  bool                   // the device keeps no metadata
	uncertain bool                   // the last write failed: the device may have another manifest
	durable   map[string]CommitPoint // commit points of the last commit or checkpoint

	durableAt atomic.Uint64 // number of the last commit or checkpoint; changed with mu held
	sequence  atomic.Uint64 // the last number given to a commit, a checkpoint or an object

	cleared atomic.Int64 // begin of the log after a Clear whose space the device still has; or 0
	blocks  *blockHashes // of the last snapshot, or nil; belongs to the checkpoint under way

	commits, commitErrors atomic.Uint64
	checkpoints           checkpointCounts
}

// begin begins an action of the checkpointer, to be ended by st.end. It is ErrClosed in a
// store that is closed or about to be. Other errors are the end of ctx, and say what ended.
func (st *Store) begin(ctx context.Context, a phase.Action, what string) error {
	err := st.checkpointer.machine.Begin(ctx, a)
	if err == nil && a != phase.Close && st.isClosed() {
		st.end(a)
		err = phase.ErrClosed
	}
	switch {
	case errors.Is(err, phase.ErrClosed):
		return ErrClosed
	case err != nil:
		return fmt.Errorf("kv: %s: waiting for another one: %w", what, err)
	}
	return nil
}

func (st *Store) end(a phase.Action) { st.checkpointer.machine.End(a) }

// step goes on to a step that never waits.
func (st *Store) step(a phase.Action) {
	_ = st.checkpointer.machine.Advance(context.Background(), a)
}

// record changes the manifest, on the device first. The caller is in a phase in which
// nobody else does. After an error the device may have either manifest: whatever the new
// one names stays until the next change. A device without metadata is no error.
func (st *Store) record(ctx context.Context, change func(m *manifest.Manifest)) error {
	k := &st.checkpointer
	k.mu.Lock()
	m, written, volatile, uncertain := k.manifest, k.written, k.volatile, k.uncertain
	k.mu.Unlock()
	m.Checkpoints = slices.Clone(m.Checkpoints)
	change(&m)
	m.Sequence = max(m.Sequence, k.sequence.Load())
	st.noteIndexBits(&m)
	data, err := m.Encode()
	// A store can be opened on a disk that is full: that changes nothing.
	if err == nil && (uncertain || !bytes.Equal(data, written)) {
		err = device.Retry(ctx, func() error { return st.dev.WriteMeta(manifest.Name, data) })
		volatile = errors.Is(err, errors.ErrUnsupported)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.volatile = volatile
	k.uncertain = err != nil && !volatile
	if k.uncertain {
		return fmt.Errorf("writing the manifest %q: %w", manifest.Name, err)
	}
	k.manifest, k.written = m, data
	k.checkpoints.kept.Store(int64(len(m.Checkpoints)))
	k.checkpoints.pinned.Store(max(m.Commit.Begin-m.Begin(), 0))
	return nil
}

// noteIndexBits notes the size of the index, if there is one yet.
func (st *Store) noteIndexBits(m *manifest.Manifest) {
	if st.index.Load() != nil {
		m.IndexBits = max(m.IndexBits, st.indexBits())
	}
}

// recorded is the manifest as it is on the device. It is not to be changed.
func (st *Store) recorded() manifest.Manifest {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.manifest
}

// holds says whether the manifest on the device has a state that is the same as s but for
// its number: then all of s is durable, and a commit of it has nothing to write. Records
// below the tail of a commit are read-only, so where the tail is the same, the log is.
func (st *Store) holds(s *manifest.State) bool {
	k := &st.checkpointer
	k.mu.Lock()
	m, written, uncertain := k.manifest, k.written, k.uncertain
	k.mu.Unlock()
	last := m.Commit
	if uncertain || last.Sequence == 0 || s.Tail != last.Tail || s.Begin != last.Begin {
		return false
	}
	m.SetCommit(s)
	m.Commit.Sequence = last.Sequence
	st.noteIndexBits(&m)
	data, err := m.Encode()
	return err == nil && bytes.Equal(data, written)
}

// survived notes that a state is durable, for LastCommit and CommitPoint.
func (st *Store) survived(s *manifest.State) {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.Sequence > k.durableAt.Load() {
		k.durable = s.Sessions
		k.durableAt.Store(s.Sequence)
	}
}

// The objects of checkpoints are named by what is in them and a number that no
// other has.
const (
	indexObject    = "index-"
	snapshotObject = "snapshot-"
)

func (st *Store) newObject(kind string) string {
	return fmt.Sprintf("%s%d", kind, st.checkpointer.sequence.Add(1))
}

func isObject(name string) bool {
	return strings.HasPrefix(name, indexObject) || strings.HasPrefix(name, snapshotObject)
}

// collect is the garbage collection of files: it removes objects that the manifest on the
// device does not name, and the log below its oldest state. What cannot be removed now is
// removed by a later one, or when the store is opened. The caller is in a phase in which
// no checkpoint is made.
func (st *Store) collect() (removed []string) {
	k := &st.checkpointer
	k.mu.Lock()
	m, uncertain := k.manifest, k.uncertain
	k.mu.Unlock()
	if uncertain { // the device may have a manifest that names other objects
		return nil
	}
	names, err := st.dev.ListObjects()
	needed := m.Objects()
	for _, name := range names {
		if needed[name] || !isObject(name) {
			continue
		}
		if e := st.dev.RemoveObject(name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, name)
	}
	if begin := st.log.Block(m.Begin()); begin > max(st.dev.Begin(), hlog.FirstAddress) {
		e := st.log.Truncate(begin)
		if e == nil {
			st.opts.Events.Truncated(TruncateInfo{Begin: begin})
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		st.opts.Logger.Warn("removing what no checkpoint needs", "err", err)
		st.failed("removing what no checkpoint needs", err)
	}
	return removed
}

// truncate makes the log begin at an address, where a record begins: everything below that
// is still of use is above by now. The device gives the space back as soon as no commit or
// checkpoint that is kept needs it; after an error, with a later collection.
func (st *Store) truncate(ctx context.Context, begin int64) error {
	st.log.SetBegin(begin)
	if err := st.Commit(ctx); err != nil {
		return err
	}
	// A checkpoint that is under way may begin below.
	if err := st.begin(ctx, phase.Collect, "truncating the log"); err != nil {
		return err
	}
	defer st.end(phase.Collect)
	st.collect()
	return nil
}

// giveBack collects what a Clear has left on the device, once a commit has the Clear.
// Where a checkpoint is being made, a later commit does it.
func (st *Store) giveBack() {
	k := &st.checkpointer
	cleared := k.cleared.Load()
	if cleared == 0 || !k.machine.TryBegin(phase.Collect) {
		return
	}
	defer st.end(phase.Collect)
	if m := st.recorded(); m.Commit.Begin < cleared {
		return
	}
	st.collect()
	if m := st.recorded(); st.dev.Begin() >= st.log.Block(m.Begin()) {
		k.cleared.CompareAndSwap(cleared, 0)
	}
}
