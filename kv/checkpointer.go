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
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
)

// checkpointer makes states of the store durable, and removes files and log that no state
// needs. Its machine has the phase of the commit (commit.go), of the checkpoint
// (checkpoint.go) or collection of files, and of the compaction (compact.go) in progress.
// RemoveCheckpoint and Close exclude commits and checkpoints. The table in package phase says
// which actions may begin in which phases. Clear needs no phase: it is one barrier.
//
// Lock order, outermost first:
//
//	Store.closing, Store.sizing, the machine's phases, Store.gate, locks.mu, Store.resizing,
//	the epoch's gate, Store.mu, checkpointer.mu
//
// No lock is taken while checkpointer.mu is held, and nothing waits for the device while it
// holds Store.mu or checkpointer.mu. Waiting for a phase or for a barrier ends with a context.
type checkpointer struct {
	machine phase.Machine

	mu        sync.Mutex             // guards the next fields
	manifest  manifest.Manifest      // the last one written; on a volatile device, the one that would have been written
	written   []byte                 // its bytes
	volatile  bool                   // the device keeps no metadata
	uncertain bool                   // the last write failed, so the device may have another manifest
	durable   map[string]CommitPoint // commit points of the last commit or checkpoint

	durableAt atomic.Uint64 // number of the last commit or checkpoint; changed with mu held
	sequence  atomic.Uint64 // the last number given to a commit, a checkpoint or an object

	// cleared is the state right after the last Clear, until its space is free on the device; or nil.
	cleared atomic.Pointer[manifest.State]
	// unfreed is set if space on the device that no state needs is not free yet: the time, in nanoseconds of
	// Unix time, from which a commit tries again.
	unfreed atomic.Int64
	told    atomic.Int64 // the begin of the device that collect has told last
	blocks  *blockHashes // of the last snapshot, or nil; owned by the checkpoint in progress

	barrier atomic.Uint64 // number of the last commit that had its barrier

	// Owned by the commit in progress.
	end  []byte        // for the end of the log, or nil
	took time.Duration // how long the last commit took
}

// begin begins an action of the checkpointer, which st.end ends. It returns ErrClosed if the
// store is closed or being closed, or an error if ctx ends.
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

// step advances to a step that never waits.
func (st *Store) step(a phase.Action) {
	_ = st.checkpointer.machine.Advance(context.Background(), a)
}

// record changes the manifest, on the device first. The caller is in a phase that excludes
// other changes. After an error the device may have either manifest, so no file that the new
// one names is removed before the next change. On a volatile device nothing is written.
func (st *Store) record(ctx context.Context, change func(m *manifest.Manifest)) error {
	return st.recordBy(ctx, st.dev.WriteMeta, change, true)
}

// recordBy is record with a function in place of the device's WriteMeta, whose ErrUnsupported
// tells that the device is volatile. Other functions do more, and only the device's being known
// as volatile excuses their error.
func (st *Store) recordBy(ctx context.Context, store func(name string, data []byte) error, change func(m *manifest.Manifest), tells bool) error {
	k := &st.checkpointer
	k.mu.Lock()
	m, written, volatile, uncertain := k.manifest, k.written, k.volatile, k.uncertain
	k.mu.Unlock()
	m.Checkpoints = slices.Clone(m.Checkpoints)
	change(&m)
	m.Sequence = max(m.Sequence, k.sequence.Load())
	st.noteIndexBits(&m)
	excused := false // the error is that of a volatile device
	data, err := m.Encode()
	// An equal manifest is not written, so a store can be opened on a full disk.
	if err == nil && (uncertain || !bytes.Equal(data, written)) {
		err = st.retry(ctx, func() error { return store(manifest.Name, data) })
		excused = errors.Is(err, errors.ErrUnsupported) && (volatile || tells)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.volatile = volatile || excused
	k.uncertain = err != nil && !excused
	if k.uncertain {
		return fmt.Errorf("writing the manifest %q: %w", manifest.Name, err)
	}
	k.manifest, k.written = m, data
	return nil
}

// retry is [device.Retry] for what makes the log or the manifest durable. The device may need the
// log's end for it, which a small commit has not waited for.
func (st *Store) retry(ctx context.Context, do func() error) error {
	return device.Retry(ctx, func() error {
		err := do()
		if errors.Is(err, device.ErrTransient) && st.log != nil {
			err = errors.Join(err, st.log.Write(ctx, st.recorded().Commit.Tail))
		}
		return err
	})
}

// noteIndexBits records the size of the index in the manifest, if the index has been made.
func (st *Store) noteIndexBits(m *manifest.Manifest) {
	if st.index.Load() != nil {
		m.IndexBits = max(m.IndexBits, st.indexBits())
	}
}

// recorded returns the manifest on the device. The caller must not change it.
func (st *Store) recorded() manifest.Manifest {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.manifest
}

// holds reports whether the last commit in the manifest on the device equals s except for its
// number. Then s is durable, and its commit has nothing to write: records below the tail of a
// commit are read-only, so with the same tail the log is the same.
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
	// With the same log the count of keys differs only by those that have expired meanwhile.
	m.Commit.Sequence, m.Commit.Count = last.Sequence, last.Count
	st.noteIndexBits(&m)
	data, err := m.Encode()
	return err == nil && bytes.Equal(data, written)
}

// setDurable records that a state is durable, for LastCommit and CommitPoint.
func (st *Store) setDurable(s *manifest.State) {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.Sequence > k.durableAt.Load() {
		k.durable = s.Sessions
		k.durableAt.Store(s.Sequence)
	}
}

// Prefixes of the names of checkpoints' objects. A unique number follows.
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

// freeAgain is the time between two attempts to remove what could not be removed.
const freeAgain = time.Second

// collect is the garbage collection of files: it removes objects that the manifest on the
// device does not name, and the log below its oldest state. A failed removal is repeated by a
// commit after freeAgain, by a later collection, or by Open. The caller is in a phase that excludes
// checkpoints.
func (st *Store) collect() (removed []string) {
	k := &st.checkpointer
	k.mu.Lock()
	m, uncertain := k.manifest, k.uncertain
	k.mu.Unlock()
	if uncertain { // the device may have a manifest that names other objects
		return nil
	}
	names, err := st.dev.ListObjects()
	needed, owed := m.Objects(), k.unfreed.Swap(0) != 0 // a truncation meanwhile sets it again
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
	late := false // a slow tier has not written all of it yet
	if begin := st.log.Block(m.Begin()); begin > hlog.FirstAddress && (begin > st.dev.Begin() || owed) {
		e := st.log.Truncate(begin)
		reached := min(begin, st.dev.Begin())
		if late = reached < begin; e == nil && k.told.Swap(reached) != reached {
			st.opts.Events.Truncated(TruncateInfo{Begin: reached})
		}
		err = errors.Join(err, e)
	}
	if err != nil || late {
		k.unfreed.Store(time.Now().Add(freeAgain).UnixNano())
	}
	if err != nil {
		st.opts.Logger.Warn("removing what no checkpoint needs", "err", err)
		st.failed("removing what no checkpoint needs", err)
	}
	return removed
}

// truncate moves the log's begin address to begin, the address of a record; all live records
// below have a copy above. The space that no state needs is freed on the device; after an
// error, the next commit frees it.
func (st *Store) truncate(ctx context.Context, begin int64) error {
	st.log.SetBegin(begin)
	err := st.Commit(ctx)
	if err == nil { // a checkpoint in progress may need the log below
		err = st.begin(ctx, phase.Collect, "truncating the log")
	}
	if err != nil {
		st.checkpointer.unfreed.Store(1)
		return err
	}
	defer st.end(phase.Collect)
	st.collect()
	return nil
}

// free frees the space of a Clear on the device, if a commit contains the Clear, and of a
// truncation that could not. It does so in the background: the device may take long, and the caller goes
// on to commit what others wait for. While a checkpoint is in progress it does nothing, and a later
// commit frees it.
func (st *Store) free() {
	k := &st.checkpointer
	cleared := k.cleared.Load()
	due := k.unfreed.Load()
	if cleared == nil && (due == 0 || time.Now().UnixNano() < due) || !k.machine.TryBegin(phase.Collect) {
		return
	}
	st.background.Go(func() { // Close waits for its phase
		early := st.freeCleared(cleared)
		st.end(phase.Collect)
		// The commit of a Clear meanwhile has left its space to this goroutine.
		if now := k.cleared.Load(); now != nil && (early || now != cleared) && st.recorded().Commit.Begin >= now.Begin {
			st.free()
		}
	})
}

// freeCleared frees the space of a Clear, which may be nil, and of truncations. It reports whether it is too
// early: no commit contains the Clear. The caller is in the phase Collect.
func (st *Store) freeCleared(cleared *manifest.State) (early bool) {
	if cleared != nil {
		if m := st.recorded(); m.Commit.Begin < cleared.Begin {
			return true
		}
		// A commit may have been sooner than the writes below it, which end before they are dropped.
		if st.log.Write(st.automatic.ctx, cleared.Begin) != nil {
			return false
		}
	}
	st.collect()
	if m := st.recorded(); cleared != nil && st.dev.Begin() >= st.log.Block(m.Begin()) {
		st.checkpointer.cleared.CompareAndSwap(cleared, nil)
	}
	return false
}

// dropCleared makes the last Clear durable without writing to the log, which needs nothing of before,
// and drops that, so that the log goes on above it. It reports whether it did: not if there was no
// Clear, or a kept checkpoint needs the log. The caller is in the phase Removing or Closed.
func (st *Store) dropCleared(ctx context.Context) bool {
	k := &st.checkpointer
	cleared := k.cleared.Load()
	if cleared == nil {
		return false
	}
	m := st.recorded()
	uncommitted := m.Commit.Begin < cleared.Begin
	m.SetCommit(cleared)
	if m.Begin() < cleared.Begin {
		return false
	}
	var err error
	if uncommitted {
		err = st.record(ctx, func(m *manifest.Manifest) { m.SetCommit(cleared) })
	}
	if err == nil {
		st.setDurable(cleared)
		err = st.log.Skip(ctx, cleared.Begin)
	}
	if err != nil {
		st.opts.Logger.Warn("freeing the space of a store that was cleared", "err", err)
		st.failed("freeing the space of a store that was cleared", err)
		return false
	}
	st.opts.Events.Truncated(TruncateInfo{Begin: cleared.Begin})
	st.collect()
	k.cleared.CompareAndSwap(cleared, nil)
	return true
}
