package kv

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
)

// ErrNoCheckpoint means that no checkpoint of that name is kept.
var ErrNoCheckpoint = errors.New("kv: no such checkpoint")

// CheckpointKind is how a checkpoint is made.
type CheckpointKind = manifest.Kind

const (
	// FoldOver makes the log read-only up to its tail, and durable. Later updates of
	// records below go to the tail.
	FoldOver CheckpointKind = manifest.FoldOver
	// Snapshot writes the part of the log that the device does not have yet to an object. While
	// it is written, updates go to the tail; afterwards the mutable region is as before.
	Snapshot CheckpointKind = manifest.Snapshot
	// Incremental is a Snapshot without the 4 KiB blocks that are equal in the previous
	// snapshot. The first one since the store was opened is a Snapshot.
	Incremental CheckpointKind = manifest.Incremental
	// Index writes only a copy of the index. It cannot be recovered by itself. Recovery of
	// later commits, and of checkpoints without a copy, reads the log only from there on.
	Index CheckpointKind = manifest.Index
)

// CheckpointOptions are the options of [Store.Checkpoint].
type CheckpointOptions struct {
	Kind CheckpointKind
	// Name is the checkpoint's name for [Options].Recover: up to 128 letters, digits, dots,
	// dashes and underscores, different from the names of all kept checkpoints. A checkpoint
	// with a name is kept until [Store.RemoveCheckpoint]. Default: "c" and the checkpoint's
	// number. Names of that form, and LastCommit, are reserved. An Index has no name.
	Name string
	// LogOnly leaves the index out. Recovery then uses the newest older copy, or reads the
	// whole log.
	LogOnly bool
}

// CheckpointInfo describes a checkpoint.
type CheckpointInfo struct {
	Name        string
	Kind        CheckpointKind
	Sequence    uint64 // number; later checkpoints have higher ones
	Base        string // the checkpoint that an incremental one extends
	Time        time.Time
	Begin, Tail int64 // the part of the log that it covers
	Bytes       int64 // in its own objects, without objects that it shares
	Pinned      int64 // bytes of the log kept on the device for it that the last commit does not need
	Index       bool  // it has a copy of the index
}

// Checkpoints returns the kept checkpoints, oldest first.
func (st *Store) Checkpoints() []CheckpointInfo {
	m := st.recorded()
	return checkpointInfos(&m)
}

func checkpointInfos(m *manifest.Manifest) []CheckpointInfo {
	infos := make([]CheckpointInfo, len(m.Checkpoints))
	for i := range m.Checkpoints {
		infos[i] = CheckpointInfo(m.Info(&m.Checkpoints[i]))
	}
	return infos
}

// Checkpoint makes the state of the store durable under a name, by which it can be recovered
// later. Operations go on meanwhile. The state contains a prefix of each session's operations,
// see [CommitPoint].
//
// With a name in the options, the checkpoint and the part of the log that it needs (see
// CheckpointInfo.Pinned) are kept until [Store.RemoveCheckpoint]. Without one, newer
// checkpoints replace it, see CheckpointPolicy.Keep. After an error the previous checkpoints
// remain. Checkpoints are made one at a time. On a volatile device the error is
// errors.ErrUnsupported.
func (st *Store) Checkpoint(ctx context.Context, opts CheckpointOptions) (CheckpointInfo, error) {
	if err := st.begin(ctx, phase.Checkpoint, opts.Kind.String()+" checkpoint"); err != nil {
		return CheckpointInfo{}, err
	}
	defer st.end(phase.Checkpoint)
	start := time.Now()
	st.opts.Events.CheckpointBegin(CheckpointBeginInfo{opts.Kind, opts.Name})
	info, err := st.checkpoint(ctx, opts)
	if err != nil {
		err = fmt.Errorf("kv: %v checkpoint: %w", opts.Kind, stoppedBy(ctx, err))
		info = CheckpointInfo{Kind: opts.Kind, Name: opts.Name}
	}
	end := CheckpointEndInfo{info, time.Since(start), err}
	st.count(func(m *Metrics) { m.Checkpoints.add(&end) })
	st.opts.Events.CheckpointEnd(end)
	if err != nil {
		return CheckpointInfo{}, err
	}
	return info, nil
}

// checkpoint makes a checkpoint. The caller is in the phase Copying.
func (st *Store) checkpoint(ctx context.Context, opts CheckpointOptions) (CheckpointInfo, error) {
	if err := st.checkOptions(ctx, opts); err != nil {
		return CheckpointInfo{}, err
	}
	if err := st.ensureRecorded(ctx); err != nil {
		return CheckpointInfo{}, err
	}
	k := &st.checkpointer
	m := st.recorded()
	c := manifest.Checkpoint{Name: opts.Name, Kind: opts.Kind, Time: time.Now(), State: manifest.State{Index: m.Index}}

	// 1. Copy the index, while operations go on.
	var err error
	if !opts.LogOnly || opts.Kind == Index {
		err = st.copyIndex(ctx, &c)
	}

	// 2. A barrier takes the state. Write the log up to its tail.
	var hashes *blockHashes
	if err == nil && c.Kind != Index {
		st.step(phase.Save)
		hashes, err = st.save(ctx, &c, &m)
	}

	// 3. Write the manifest with the checkpoint.
	if err == nil {
		err = k.machine.Advance(ctx, phase.Name)
	}
	if err == nil {
		if err = st.recordCheckpoint(ctx, &c); err != nil {
			return CheckpointInfo{}, err // the manifest on the device may name its objects
		}
	}

	// 4. Remove objects that the manifest does not need any more; after an error, those of this
	// checkpoint.
	st.step(phase.Collect)
	st.collect()
	if err != nil {
		return CheckpointInfo{}, err
	}
	if hashes != nil {
		hashes.sequence = c.Sequence
		k.blocks = hashes
	}
	m = st.recorded()
	return CheckpointInfo(m.Info(&c)), nil
}

// ensureRecorded writes the manifest again if the last write failed: until a write succeeds,
// nothing can be removed.
func (st *Store) ensureRecorded(ctx context.Context) error {
	k := &st.checkpointer
	k.mu.Lock()
	uncertain := k.uncertain
	k.mu.Unlock()
	if !uncertain {
		return nil
	}
	if err := k.machine.Advance(ctx, phase.Name); err != nil {
		return err
	}
	defer st.step(phase.Copy)
	return st.record(ctx, func(*manifest.Manifest) {})
}

// save makes the state of a checkpoint durable.
func (st *Store) save(ctx context.Context, c *manifest.Checkpoint, m *manifest.Manifest) (*blockHashes, error) {
	if c.Kind != FoldOver {
		return st.snapshot(ctx, c, m)
	}
	if err := st.exclusive(ctx, func() { st.foldOver(&c.State) }); err != nil {
		return nil, err
	}
	if err := st.log.Write(ctx, c.Tail); err != nil {
		return nil, err
	}
	if err := st.retry(ctx, st.dev.Sync); err != nil {
		return nil, fmt.Errorf("syncing the log up to %d: %w", c.Tail, err)
	}
	return nil, nil
}

// recordCheckpoint writes the manifest with a checkpoint. From then on the checkpoint exists.
func (st *Store) recordCheckpoint(ctx context.Context, c *manifest.Checkpoint) error {
	if c.Kind == Index {
		return st.record(ctx, func(m *manifest.Manifest) { m.Index = c.Index })
	}
	if c.Name == "" {
		c.Name = fmt.Sprintf("c%d", c.Sequence)
	}
	err := st.record(ctx, func(m *manifest.Manifest) {
		m.Index = c.Index
		if c.Kind == FoldOver { // it is a commit with a name
			m.SetCommit(&c.State)
		}
		m.Checkpoints = append(m.Checkpoints, *c)
		m.Keep(st.opts.Checkpoints.Keep)
	})
	if err == nil {
		st.setDurable(&c.State)
	}
	return err
}

// RemoveCheckpoint removes a kept checkpoint. It returns an error if a kept incremental one
// extends it. If the checkpoint is newer than the last commit, the store commits first, so
// that everything durable stays durable. If ctx ends while RemoveCheckpoint waits for a commit
// or a checkpoint, the checkpoint remains.
func (st *Store) RemoveCheckpoint(ctx context.Context, name string) error {
	if err := st.begin(ctx, phase.Remove, "removing a checkpoint"); err != nil {
		return err
	}
	defer st.end(phase.Remove)
	m := st.recorded()
	c := m.Named(name)
	if c == nil {
		return fmt.Errorf("%w: %q", ErrNoCheckpoint, name)
	}
	sequence := c.Sequence
	extends := func(c manifest.Checkpoint) bool { return c.Base == sequence }
	if i := slices.IndexFunc(m.Checkpoints, extends); i >= 0 {
		return fmt.Errorf("kv: removing checkpoint %q: checkpoint %q is an increment of it", name, m.Checkpoints[i].Name)
	}
	var err error
	if sequence > m.Commit.Sequence {
		err = st.commit(ctx)
	}
	if err == nil {
		err = st.record(ctx, func(m *manifest.Manifest) {
			m.Drop(func(c *manifest.Checkpoint) bool { return c.Sequence == sequence })
		})
	}
	if err != nil {
		return fmt.Errorf("kv: removing checkpoint %q: %w", name, err)
	}
	st.collect()
	return nil
}

func (st *Store) checkOptions(ctx context.Context, opts CheckpointOptions) error {
	st.checkpointer.mu.Lock()
	volatile := st.checkpointer.volatile
	st.checkpointer.mu.Unlock()
	m := st.recorded()
	switch {
	case volatile:
		return fmt.Errorf("the device keeps no metadata: %w", errors.ErrUnsupported)
	case opts.Kind >= manifest.Kinds:
		return fmt.Errorf("unknown kind %d", opts.Kind)
	case opts.Name == "":
	case opts.Kind == Index:
		return fmt.Errorf("%q: a copy of the index has no name, since it cannot be recovered", opts.Name)
	case device.CheckName(opts.Name) != nil:
		return fmt.Errorf("%w: checkpoint %q: want 1 to %d letters, digits, '.', '-' and '_'", ErrBadName, opts.Name, maxName)
	case opts.Name == LastCommit || manifest.GivenName(opts.Name):
		return fmt.Errorf("%w: checkpoint %q: the name is reserved for the store", ErrBadName, opts.Name)
	case m.Named(opts.Name) != nil:
		return fmt.Errorf("%w: checkpoint %q exists", ErrNameInUse, opts.Name)
	}
	return ctx.Err()
}

// copyIndex writes a copy of the index to an object while operations go on. The copy is
// fuzzy: see package index. The index does not grow meanwhile.
func (st *Store) copyIndex(ctx context.Context, c *manifest.Checkpoint) error {
	x := new(manifest.IndexCopy)
	if err := st.exclusive(ctx, func() { x.Start = st.log.Tail() }); err != nil {
		return err
	}
	// After the barrier: an operation that delays the barrier may wait for the index to grow.
	if err := lock(ctx, &st.resizing); err != nil {
		return err
	}
	defer st.resizing.Unlock()
	t := st.index.Load()
	x.Begin = st.log.Begin() // after the table: Clear may have replaced it since the barrier
	x.Bits, x.TagShift = t.Bits(), int(t.TagShift())
	x.Object = st.newObject(indexObject)
	w, err := manifest.CreateObject(ctx, st.dev, x.Object, manifest.IndexChunk)
	if err != nil {
		return err
	}
	err = t.Copy(ctx, w)
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		return w.Abort(err)
	}
	c.Index, c.Bytes = x, w.Bytes()
	c.Begin, c.Tail = st.log.Begin(), x.Start // for CheckpointInfo of an Index
	return nil
}

// replayCost is what reading a record into the index costs an opening, in bytes that a disk could
// read meanwhile: about 100 ns.
const replayCost = 100

// leaveIndex writes a copy of the index for the next Open if that saves time: the log in memory is
// read in any case, and what the copy lacks is read into the index. It commits again, since a commit
// names its copy. The caller is in the phase Closed, and has committed: without the copy Open only
// takes longer.
func (st *Store) leaveIndex() {
	m := st.recorded()
	from := st.log.Begin()
	if m.Index != nil {
		from = max(from, m.Index.Start)
	}
	record := 128 // a guess, where lengths vary
	if l := st.log.Layout(); l.Fixed() {
		record = l.Size(st.opts.KeySize, st.opts.ValueSize, false)
	}
	tail := st.log.Tail()
	if max(st.log.Head()-from, (tail-from)/int64(record)*replayCost) <= st.index.Load().Bytes() {
		return
	}
	var c manifest.Checkpoint
	err := st.copyIndex(context.Background(), &c)
	if err == nil {
		err = st.record(context.Background(), func(m *manifest.Manifest) { m.Index = c.Index })
	}
	if err == nil {
		err = st.commit(context.Background())
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // which means that the device keeps nothing
		st.opts.Logger.Warn("the next opening of the store takes longer: no copy of the index was left", "err", err)
		st.failed("leaving a copy of the index", err)
	}
}

// minBlock is the block size of incremental snapshots, in bytes. A device with a larger
// alignment has larger blocks.
const minBlock = 4096

// blockHash is a collision-resistant hash of the bytes of one block that are in a snapshot,
// and of the address where they start. Equal hashes mean unchanged bytes.
type blockHash [16]byte

const addressSize = 8

// blockHashes are the hashes of all blocks of a snapshot.
type blockHashes struct {
	sequence uint64 // of its checkpoint
	first    int64  // number of the first block
	hashes   []blockHash
}

// has reports whether the snapshot has a block with this hash; h may be nil.
func (h *blockHashes) has(block int64, hash blockHash) bool {
	return h != nil && block >= h.first && block-h.first < int64(len(h.hashes)) && h.hashes[block-h.first] == hash
}

// snapshot makes the state of a Snapshot or an Incremental durable: the log up to Flushed on
// the device, and the rest, which is in memory, in an object. Meanwhile snapshotTail is the
// sessions' read-only address. It returns the hashes of the object's blocks.
func (st *Store) snapshot(ctx context.Context, c *manifest.Checkpoint, m *manifest.Manifest) (*blockHashes, error) {
	base := st.checkpointer.blocks
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
		st.takeState(&c.State)
		c.Flushed = st.log.Hold()
		st.snapshotTail = c.Tail
	})
	if err != nil {
		return nil, w.Abort(err)
	}
	hashes, err := st.writeSnapshot(ctx, w, c.Flushed, c.Tail, base)
	st.log.UnholdAll()
	err = errors.Join(err, st.exclusive(context.WithoutCancel(ctx), func() { st.snapshotTail = 0 }))
	if err != nil {
		return nil, w.Abort(err)
	}
	c.Bytes += w.Bytes()
	if err := st.retry(ctx, st.dev.Sync); err != nil { // the log below Flushed
		return nil, fmt.Errorf("syncing the log up to %d: %w", c.Flushed, err)
	}
	return hashes, nil
}

// writeSnapshot writes the memory between two addresses to an object. The memory is on hold,
// and nothing in it is updated in place. Blocks that base holds are left out. It returns the
// hashes of all blocks.
func (st *Store) writeSnapshot(ctx context.Context, w *manifest.ObjectWriter, from, to int64, base *blockHashes) (*blockHashes, error) {
	size := max(minBlock, int64(st.dev.Alignment()))
	hashes := &blockHashes{first: from / size}
	block := make([]byte, addressSize, addressSize+size) // begins with its address; it may span pages
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start, end := at, min((at/size+1)*size, to)
		binary.LittleEndian.PutUint64(block, uint64(start))
		block = block[:addressSize]
		for at < end {
			block = st.log.AppendHeld(block, at, end)
			at = start + int64(len(block)-addressSize)
		}
		sum := sha256.Sum256(block)
		hash := blockHash(sum[:len(blockHash{})])
		hashes.hashes = append(hashes.hashes, hash)
		if !base.has(start/size, hash) {
			if err := w.Add(start, 1, block[addressSize:]); err != nil {
				return nil, err
			}
		}
		st.log.Unhold(at)
	}
	return hashes, w.Commit()
}
