package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// ErrNoCheckpoint says that no checkpoint of that name is kept.
var ErrNoCheckpoint = errors.New("kv: no such checkpoint")

func checkCheckpointName(name string) error {
	if err := device.CheckName(name); err != nil {
		return fmt.Errorf("%w: checkpoint %q: want 1 to %d letters, digits, '.', '-' and '_'", ErrBadName, name, maxName)
	}
	return nil
}

// Checkpoint makes the state of the store durable under a name, from which it
// can be recovered later, while operations go on: it is a prefix of what each
// session was given, see [CommitPoint]. With a name in the options it stays, and keeps
// the part of the log that it needs on the device (see CheckpointInfo.Pinned), until
// [Store.RemoveCheckpoint]. Without one it gives way to newer ones without a name, see
// CheckpointPolicy.Keep. After an error the store is as it was,
// goes on, and keeps the checkpoints that it had. Checkpoints are made one at a
// time. A volatile device keeps none: errors.ErrUnsupported.
func (st *Store) Checkpoint(ctx context.Context, opts CheckpointOptions) (CheckpointInfo, error) {
	if err := st.mayWait(); err != nil {
		return CheckpointInfo{}, fmt.Errorf("kv: %v checkpoint: %w", opts.Kind, err)
	}
	if err := lock(ctx, &st.checkpointing); err != nil {
		return CheckpointInfo{}, fmt.Errorf("kv: %v checkpoint: waiting for another one: %w", opts.Kind, err)
	}
	defer st.checkpointing.Unlock()
	if st.isClosed() {
		return CheckpointInfo{}, ErrClosed
	}
	start := time.Now()
	st.opts.Events.CheckpointBegin(CheckpointBeginInfo{opts.Kind, opts.Name})
	info, err := st.checkpoint(ctx, opts)
	if err != nil {
		err = fmt.Errorf("kv: %v checkpoint: %w", opts.Kind, stoppedBy(ctx, err))
		info = CheckpointInfo{Kind: opts.Kind, Name: opts.Name}
	}
	end := CheckpointEndInfo{info, time.Since(start), err}
	st.checkpoints.add(&end)
	st.opts.Events.CheckpointEnd(end)
	if err != nil {
		return CheckpointInfo{}, err
	}
	return info, nil
}

// checkpoint is Checkpoint for the one whose turn it is.
func (st *Store) checkpoint(ctx context.Context, opts CheckpointOptions) (CheckpointInfo, error) {
	if err := st.checkOptions(ctx, opts); err != nil {
		return CheckpointInfo{}, err
	}
	if err := st.ascertain(ctx); err != nil {
		return CheckpointInfo{}, err
	}
	c := manifest.Checkpoint{Name: opts.Name, Kind: opts.Kind, Time: time.Now()}
	hashes, err := st.fill(ctx, &c, opts.LogOnly && opts.Kind != Index)
	if err != nil {
		st.tidy() // takes what was written for it
		return CheckpointInfo{}, err
	}
	if err := st.recordCheckpoint(ctx, &c); err != nil {
		return CheckpointInfo{}, err
	}
	if hashes != nil {
		hashes.sequence = c.Sequence
		st.blocks = hashes
	}
	st.tidy()
	m := st.recorded()
	return checkpointInfo(&m, &c), nil
}

// ascertain makes sure of what is on the device after a manifest could not be
// written.
func (st *Store) ascertain(ctx context.Context) error {
	if !st.isUncertain() {
		return nil
	}
	return st.record(ctx, func(*manifest.Manifest) {})
}

func (st *Store) isUncertain() bool {
	st.recording.Lock()
	defer st.recording.Unlock()
	return st.uncertain
}

// fill makes everything of a checkpoint but its place in the manifest.
func (st *Store) fill(ctx context.Context, c *manifest.Checkpoint, logOnly bool) (*blockHashes, error) {
	m := st.recorded()
	c.Index = m.Index
	if !logOnly {
		index, bytes, err := st.copyIndex(ctx)
		if err != nil {
			return nil, err
		}
		c.Index, c.Bytes = index, bytes
		c.Begin, c.Tail = st.log.Begin(), index.Start
	}
	switch c.Kind {
	case FoldOver:
		return nil, st.foldOver(ctx, c)
	case Snapshot, Incremental:
		return st.snapshot(ctx, c, &m)
	}
	return nil, nil
}

func (st *Store) checkOptions(ctx context.Context, opts CheckpointOptions) error {
	st.recording.Lock()
	volatile := st.volatile
	st.recording.Unlock()
	switch {
	case volatile:
		return fmt.Errorf("the device keeps nothing: %w", errors.ErrUnsupported)
	case opts.Kind >= manifest.Kinds:
		return fmt.Errorf("unknown kind")
	case opts.Kind == Index && opts.Name != "":
		return fmt.Errorf("%q: a copy of the index has no name, nobody recovers to it", opts.Name)
	}
	if opts.Name != "" {
		if err := checkCheckpointName(opts.Name); err != nil {
			return err
		}
		if opts.Name == LastCommit || manifest.GivenName(opts.Name) {
			return fmt.Errorf("%w: checkpoint %q: such are given by the store", ErrBadName, opts.Name)
		}
		m := st.recorded()
		if m.Named(opts.Name) != nil {
			return fmt.Errorf("%w: checkpoint %q is kept", ErrNameInUse, opts.Name)
		}
	}
	return ctx.Err()
}

// foldOver makes a state that is in the log.
func (st *Store) foldOver(ctx context.Context, c *manifest.Checkpoint) error {
	err := st.exclusive(ctx, func() {
		st.enterState(&c.State)
		st.log.ShiftReadOnly()
	})
	if err != nil {
		return err
	}
	return st.log.Persist(ctx, c.Tail)
}

// enterState fills in what a state is, in its barrier. It takes the number first: an
// operation that ended before is in the state, see NextCommit.
func (st *Store) enterState(s *manifest.State) {
	s.Sequence = st.sequence.Add(1)
	s.Begin, s.Tail = st.log.Begin(), st.log.Tail()
	if s.Index != nil && s.Index.Start <= s.Begin {
		// All of the log lies behind the copy: that is none of it, and may have been
		// made of another table (see Clear).
		s.Index = nil
	}
	s.Sessions = st.commitPoints()
	st.enterCount(s)
}

// snapshot makes a state whose end is in an object.
func (st *Store) snapshot(ctx context.Context, c *manifest.Checkpoint, m *manifest.Manifest) (*blockHashes, error) {
	base := st.blocks
	if c.Kind == Incremental && (base == nil || m.Numbered(base.sequence) == nil) {
		c.Kind = Snapshot
	}
	if c.Kind == Incremental {
		c.Base = base.sequence
	} else {
		base = nil
	}
	c.Snapshot = st.newObject(snapshotObject)
	w, err := manifest.CreateObject(ctx, st.dev, c.Snapshot, manifest.LogChunk)
	if err != nil {
		return nil, err
	}
	err = st.exclusive(ctx, func() {
		st.enterState(&c.State)
		c.Flushed = st.log.Hold()
		st.floorAt(c.Tail)
	})
	if err != nil {
		return nil, w.Abort(err)
	}
	hashes, err := st.writeSnapshot(ctx, w, c.Flushed, c.Tail, base)
	st.log.LetAllGo()
	err = errors.Join(err, st.exclusive(context.WithoutCancel(ctx), func() { st.floorAt(0) }))
	if err != nil {
		return nil, w.Abort(err)
	}
	c.Bytes += w.Bytes()
	if err := device.Retry(ctx, st.dev.Sync); err != nil { // what is below Flushed
		return nil, fmt.Errorf("syncing the log up to %d: %w", c.Flushed, err)
	}
	return hashes, nil
}

// recordCheckpoint makes a checkpoint exist.
func (st *Store) recordCheckpoint(ctx context.Context, c *manifest.Checkpoint) error {
	if c.Kind == Index {
		return st.record(ctx, func(m *manifest.Manifest) { m.Index = c.Index })
	}
	if c.Name == "" {
		c.Name = fmt.Sprintf("c%d", c.Sequence)
	}
	err := st.record(ctx, func(m *manifest.Manifest) {
		m.Index = c.Index
		if c.Kind == FoldOver { // a commit with a name
			m.SetCommit(&c.State)
		}
		m.Checkpoints = append(m.Checkpoints, *c)
		m.Keep(st.opts.Checkpoints.Keep)
	})
	if err == nil {
		st.survived(&c.State)
	}
	return err
}

// survived lets sessions know what is durable.
func (st *Store) survived(s *manifest.State) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.Sequence > st.durableAt.Load() {
		st.durable = s.Sessions
		st.durableAt.Store(s.Sequence)
	}
}

// NextCommit is a number that says when what has been done so far is durable: once
// [Store.LastCommit] is that number or a higher one, everything is that any operation
// changed, or Clear, which returned before the call of NextCommit.
//
// Commits and checkpoints have numbers, which grow in the order in which these begin
// and are not consecutive.
func (st *Store) NextCommit() uint64 { return st.sequence.Load() + 1 }

// LastCommit is the highest number of a commit or checkpoint that has succeeded, see
// [Store.NextCommit].
func (st *Store) LastCommit() uint64 { return st.durableAt.Load() }

// RemoveCheckpoint drops a kept checkpoint, unless an incremental one that is kept
// stands on it. Where it was made after the last commit, the store commits first:
// what was durable stays so.
func (st *Store) RemoveCheckpoint(name string) error {
	if err := st.mayWait(); err != nil {
		return fmt.Errorf("kv: removing checkpoint %q: %w", name, err)
	}
	st.committing.Lock()
	defer st.committing.Unlock()
	st.checkpointing.Lock()
	defer st.checkpointing.Unlock()
	if st.isClosed() {
		return ErrClosed
	}
	m := st.recorded()
	c := m.Named(name)
	if c == nil {
		return fmt.Errorf("%w: %q", ErrNoCheckpoint, name)
	}
	for i := range m.Checkpoints {
		if m.Checkpoints[i].Base == c.Sequence {
			return fmt.Errorf("kv: removing checkpoint %q: checkpoint %q is an increment of it", name, m.Checkpoints[i].Name)
		}
	}
	sequence := c.Sequence
	if sequence > m.Commit.Sequence {
		if err := st.commit(context.Background()); err != nil {
			return fmt.Errorf("kv: removing checkpoint %q: %w", name, err)
		}
	}
	err := st.record(context.Background(), func(m *manifest.Manifest) {
		m.Drop(func(c *manifest.Checkpoint) bool { return c.Sequence == sequence })
	})
	if err != nil {
		return fmt.Errorf("kv: removing checkpoint %q: %w", name, err)
	}
	st.tidy()
	return nil
}
