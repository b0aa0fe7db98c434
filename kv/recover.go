package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/restore"
)

// recovery brings a store to a state that its manifest names, in this order:
//
//  1. choose the state, and read the snapshots that it needs
//  2. if there are newer states, rehearse the other steps, see [recovery.rehearse]; up to here
//     nothing has changed on the device that any state needs
//  3. remove newer states from the manifest, since the log will overwrite them
//  4. start the device, and write the snapshots' bytes back to their addresses
//  5. load the copy of the index, if there is a good one, and open the log
//  6. read the log from the address where the copy was begun, or whole
//  7. make a checkpoint whose snapshots were restored the last commit
//
// After a crash or a failure at any point the manifest allows the same recovery again.
type recovery struct {
	ctx    context.Context // its end ends the recovery, before the log is complete
	st     *Store
	state  manifest.State       // the state to recover
	from   *manifest.Checkpoint // the checkpoint of the state; nil: the last commit
	made   bool                 // the store is new
	all    *manifest.Manifest   // has the other states, for errors
	began  time.Time
	report RecoveryReport
}

// warn reports an error that does not end the recovery.
func (r *recovery) warn(format string, args ...any) {
	warning := fmt.Sprintf(format, args...)
	r.report.Warnings = append(r.report.Warnings, warning)
	r.st.opts.Logger.Warn("recovery of the store", "warning", warning)
}

// recover does steps 1 to 4.
func (st *Store) recover(ctx context.Context) (*recovery, error) {
	r, o := &recovery{ctx: ctx, st: st, began: time.Now()}, &st.opts
	m, err := manifest.Read(st.dev)
	if err != nil {
		return nil, err
	}
	if r.made = m == nil; r.made {
		if err := st.checkOrphans(); err != nil {
			return nil, err
		}
		m = &manifest.Manifest{
			KeySize: o.KeySize, ValueSize: o.ValueSize, HashSeed: o.hashSeed,
			Commit: manifest.State{Begin: hlog.FirstAddress, Tail: hlog.FirstAddress},
		}
	} else if err := m.Match(o.KeySize, o.ValueSize, cmp.Or(o.PageSize, m.PageSize)); err != nil {
		return nil, err
	} else if st.checkpointer.written, err = m.Encode(); err != nil {
		return nil, fmt.Errorf("kv: %w", err)
	}
	o.PageSize = cmp.Or(o.PageSize, m.PageSize)
	if err := st.takeHash(m, r.made); err != nil {
		return nil, err
	}
	r.report.Checkpoints = checkpointInfos(m)
	if err := r.choose(m); err != nil {
		return nil, err
	}
	if err := r.verify(m); err != nil {
		return nil, err
	}
	before := *m
	before.Checkpoints = slices.Clone(m.Checkpoints)
	r.all = &before
	r.dropNewer(m)
	st.checkpointer.manifest = *m
	st.checkpointer.sequence.Store(m.Sequence)
	if len(r.report.Dropped) > 0 {
		if err := r.rehearse(before.DeviceTail(before.Newest())); err != nil {
			return nil, err
		}
		if err := st.record(context.Background(), func(*manifest.Manifest) {}); err != nil {
			return nil, fmt.Errorf("kv: %w", err)
		}
		r.all = m
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	if r.state.Sessions != nil { // the manifest keeps them unchanged, too
		st.ended, st.checkpointer.durable = maps.Clone(r.state.Sessions), r.state.Sessions
	}
	st.checkpointer.durableAt.Store(r.state.Sequence)
	return r, nil
}

// checkOrphans refuses a device that has objects of checkpoints and no manifest. The
// manifest was lost, and a new store would remove the objects.
func (st *Store) checkOrphans() error {
	names, err := st.dev.ListObjects()
	if err != nil {
		return fmt.Errorf("kv: looking for objects: %w", err)
	}
	if i := slices.IndexFunc(names, isObject); i >= 0 {
		return fmt.Errorf("kv: %w: the manifest %q is lost, object %q is there: put the manifest back, or remove the objects of checkpoints",
			ErrCorrupt, manifest.Name, names[i])
	}
	return nil
}

// choose chooses the state to recover.
func (r *recovery) choose(m *manifest.Manifest) error {
	name := r.st.opts.Recover
	r.from = m.Newest()
	if name != "" {
		r.from = m.Named(name)
		if r.from == nil && (name != LastCommit || m.Commit.Sequence == 0) {
			return fmt.Errorf("%w: %q; %s", ErrNoCheckpoint, name, m.Others(0, ""))
		}
	}
	r.state = m.Commit
	r.report.From, r.report.Kind = LastCommit, FoldOver
	if r.from != nil {
		r.state = r.from.State
		r.report.From, r.report.Kind = r.from.Name, r.from.Kind
	}
	r.report.New = r.made
	r.report.Begin, r.report.Tail = r.state.Begin, r.state.Tail
	return nil
}

// snapshots returns the snapshots of the state's log, oldest first.
func (r *recovery) snapshots(m *manifest.Manifest) []manifest.LogPart {
	if r.from == nil || r.from.Snapshot == "" {
		return nil
	}
	return m.Snapshots(r.from)
}

// verify reads the snapshots, before anything changes.
func (r *recovery) verify(m *manifest.Manifest) error {
	snapshots := r.snapshots(m)
	read := r.ofSnapshots("snapshots, before they are restored", snapshots)
	for _, s := range snapshots {
		err := s.Read(r.st.dev, func(_ int64, b []byte) error { return read.add(int64(len(b))) })
		switch {
		case r.ctx.Err() != nil:
			return fmt.Errorf("kv: %w", context.Cause(r.ctx))
		case err != nil:
			return fmt.Errorf("kv: checkpoint %q cannot be recovered: %w; %s", r.from.Name, err, m.Others(r.state.Sequence, s.Object))
		}
	}
	return nil
}

// ofSnapshots is reading for snapshots.
func (r *recovery) ofSnapshots(what string, snapshots []manifest.LogPart) *reading {
	all := int64(0)
	for _, s := range snapshots {
		all += s.To - s.From
	}
	return r.reading(what, all)
}

// dropNewer removes from the manifest the states that are newer than the chosen one.
func (r *recovery) dropNewer(m *manifest.Manifest) {
	if r.from != nil {
		from := *r.from // a copy, since Drop moves the elements of m.Checkpoints
		r.from = &from
	}
	m.Drop(func(c *manifest.Checkpoint) bool {
		if c.Sequence <= r.state.Sequence {
			return false
		}
		r.report.Dropped = append(r.report.Dropped, c.Name)
		return true
	})
	if m.Commit.Sequence > r.state.Sequence {
		r.report.Dropped = append(r.report.Dropped, LastCommit)
		m.Commit = r.state
		if r.from.Snapshot != "" {
			// Its log is not on the device yet. Until it is, the last commit is that of an
			// empty log, older than all others.
			m.Commit = manifest.State{Begin: r.state.Begin, Tail: r.state.Begin}
		}
	}
	m.Index = r.state.Index // a newer copy may refer to records that are dropped
}

// takeHash sets the hash function that the manifest names. With another one no record of the
// log would be found.
func (st *Store) takeHash(m *manifest.Manifest, made bool) error {
	st.keyHash = index.NewHash(m.HashSeed)
	probe := st.hash([]byte(manifest.HashProbe))
	if made {
		m.Hash = probe
	}
	if m.Hash != probe {
		return fmt.Errorf("%w: the store's keys are hashed by another function: hash %#x, want %#x", ErrMismatch, m.Hash, probe)
	}
	return nil
}

// start starts the device at the end of its part of the log, and writes the rest of the log
// from the snapshots, beginning with the block that contains this end.
func (r *recovery) start() error {
	st := r.st
	snapshots := r.snapshots(&st.checkpointer.manifest)
	tail := st.checkpointer.manifest.DeviceTail(r.from)
	if err := st.dev.Start(tail); err != nil {
		if errors.Is(err, ErrCorrupt) {
			err = r.advise(err)
		}
		return fmt.Errorf("kv: starting the device at %d: %w", tail, err)
	}
	if len(snapshots) == 0 {
		return nil
	}
	for _, s := range snapshots {
		r.report.Snapshots = append(r.report.Snapshots, s.Object)
	}
	var err error
	read := r.ofSnapshots("snapshots, to restore them", snapshots)
	if r.report.Restored, err = restore.Snapshots(st.dev, snapshots, tail, read.add); err != nil {
		return fmt.Errorf("kv: checkpoint %q: %w", r.from.Name, err)
	}
	return nil
}

// load does steps 5 and 6. After an error it has freed everything.
func (r *recovery) load() error {
	st := r.st
	opts := &st.opts
	layout := hlog.VariableLayout()
	if opts.KeySize > 0 {
		layout = hlog.FixedLayout(opts.KeySize, opts.ValueSize)
	}
	forLog, forCache := opts.shares(opts.Memory)
	most, _ := opts.shares(opts.MaxMemory)
	read := r.reading("log that fits in memory", 0)
	if c := r.state.Index; c != nil {
		read = r.reading("copy of the index, and of the log that fits in memory", int64(index.BucketSize)<<c.Bits)
	}
	// Both at once: each takes memory for the first time, while a disk waits.
	indexed := make(chan error, 1)
	go func() { indexed <- r.loadIndex(read) }()
	var err error
	st.log, err = hlog.Open(hlog.Config{
		Device: st.dev, Epoch: st.epoch, Layout: layout,
		Logger: opts.Logger, Listener: st.logListener(),
		Memory: forLog, MaxMemory: most, PageSize: opts.PageSize, MutableFraction: opts.MutableFraction,
		Begin: r.state.Begin, Tail: r.state.Tail, Loading: read.log(),
	})
	if errors.Is(err, ErrCorrupt) {
		err = r.advise(err)
	}
	loaded := <-indexed
	switch {
	case err != nil && loaded != nil:
		return fmt.Errorf("kv: %w", errors.Join(err, loaded))
	case err != nil:
		return errors.Join(fmt.Errorf("kv: %w", err), st.index.Load().Free())
	case loaded != nil:
		return errors.Join(loaded, st.log.Close())
	}
	if st.cache, err = openCache(forCache, layout, opts); err != nil {
		return errors.Join(fmt.Errorf("kv: %w", err), st.log.Close(), st.index.Load().Free())
	}
	if err = r.replay(); err == nil {
		err = st.beginKeyCounters(r.ctx, &r.state)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("kv: opening the store: %w", err), st.unload())
	}
	return nil
}

// loadIndex makes the store's table, from the copy if there is one.
func (r *recovery) loadIndex(read *reading) error {
	st, c := r.st, r.state.Index
	switch {
	case c == nil:
	case c.Bits < st.ownBits():
		r.warn("object %q, a copy of the index, is too small for Options.Records: it is not used", c.Object)
	case c.Bits-c.TagShift > maxGrown:
		r.warn("object %q, a copy of the index, has grown too often: it is not used", c.Object)
	default:
		t, err := index.Load(st.dev, c, r.state.Tail, st.crowd(), read.add)
		if err == nil {
			r.report.Index = c.Object
			st.index.Store(t)
			return nil
		}
		if r.ctx.Err() != nil {
			return fmt.Errorf("kv: reading the copy of the index: %w", err)
		}
		r.warn("the copy of the index is not used: %v", err)
	}
	return r.makeIndex()
}

// maxGrown is the maximum number of times an index may have doubled for its copy to be loaded:
// each time shortens its tags.
const maxGrown = index.TagBits / 2

// logProgressEvery is the time between two log lines of an opening that takes long.
const logProgressEvery = 5 * time.Second

// reading reports how much was read of something. Goroutines may share it.
type reading struct {
	ctx    context.Context
	st     *Store
	mu     sync.Mutex // guards the fields below, and makes one call of the listener at a time
	info   RecoveringInfo
	logged time.Time
}

// reading is for so many bytes of something.
func (r *recovery) reading(what string, all int64) *reading {
	return &reading{ctx: r.ctx, st: r.st, info: RecoveringInfo{What: what, Bytes: all}, logged: time.Now()}
}

// add reports that so many more bytes were read. Its error is that of the recovery's context.
func (r *reading) add(bytes int64) error { return r.report(bytes, 0) }

// log returns a function that reports what was read of a log, whose size it is told with each
// part.
func (r *reading) log() func(bytes, all int64) error {
	known := false
	return func(bytes, all int64) error {
		if known {
			all = 0
		}
		known = true
		return r.report(bytes, all)
	}
}

// report adds what was read, and what there is to read.
func (r *reading) report(bytes, all int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Bytes += all
	r.info.Read = min(r.info.Read+bytes, r.info.Bytes)
	if err := context.Cause(r.ctx); err != nil { // OpenContext may have returned
		return err
	}
	r.st.opts.Events.Recovering(r.info)
	if now := time.Now(); now.Sub(r.logged) >= logProgressEvery {
		r.logged = now
		r.st.opts.Logger.Info("the store is being opened", "what", r.info.What, "read", units.Size(r.info.Read), "of", units.Size(r.info.Bytes))
	}
	return context.Cause(r.ctx)
}

// makeIndex makes an empty index. Its chains may differ from those of the copy, which must not
// be used for records that are appended from now on.
func (r *recovery) makeIndex() error {
	m := &r.st.checkpointer.manifest
	m.Index = nil
	t, err := r.st.newIndex(m.IndexBits)
	if err == nil {
		r.st.index.Store(t)
	}
	return err
}

// replay reads the part of the log that the loaded index lacks.
func (r *recovery) replay() error {
	st := r.st
	defer func() { r.report.Time = time.Since(r.began) }()
	if r.made {
		return nil
	}
	r.report.ScannedFrom = r.state.Begin
	if r.report.Index != "" {
		r.report.ScannedFrom = max(r.state.Index.Start, r.state.Begin)
	}
	starts, err := r.scan()
	if err == nil && r.report.Index != "" && !st.index.Load().AllFrom(st.log.Head(), starts.May) {
		r.warn("object %q, a copy of the index, leads to addresses without a record: it is not used", r.report.Index)
		r.report.Index, r.report.ScannedFrom = "", r.state.Begin
		copied := st.index.Load()
		if err = r.makeIndex(); err == nil {
			err = copied.Free()
		}
		if err == nil {
			_, err = r.scan()
		}
	}
	return err
}

func (r *recovery) scan() (hlog.Starts, error) {
	st := r.st
	all := replay{st: st}
	starts, err := st.log.Scan(r.report.ScannedFrom, r.state.Tail, func() hlog.Visitor { return &replayer{replay: &all} }, r.reading("log", r.state.Tail-r.report.ScannedFrom).add)
	r.report.Records = all.records.Load()
	if errors.Is(err, hlog.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return starts, r.advise(err)
}

// advise adds to an error of the log the names of other states that can be recovered.
func (r *recovery) advise(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (recovering %s; %s)", err, r.report.From, r.all.Others(r.state.Sequence, ""))
}

// finish does step 7 for a loaded store, collects files, and keeps the report.
func (r *recovery) finish() error {
	st := r.st
	err := st.record(context.Background(), func(m *manifest.Manifest) {
		m.PageSize = st.log.PageSize()
		if len(r.report.Snapshots) > 0 {
			m.SetCommit(&r.state)
		}
	})
	if err != nil {
		return err
	}
	r.report.Removed = st.collect()
	r.report.Sessions = len(st.ended)
	st.recovered = r.report
	return nil
}

// rehearse recovers a trial store to the state and closes it. It checks everything that the
// recovery reads, and the options, before newer states are removed and the device is started
// below their ends. newest is the end of the newest state on the device, which is prepared up
// to there; nothing below is changed.
func (r *recovery) rehearse(newest int64) (err error) {
	st := r.st
	// The state may have been named because the log above it is damaged.
	prepared := device.Prepare(st.dev, newest)
	opts := st.opts
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Events = Tee(EventListener{})
	trial := newStore(opts)
	trial.checkpointer.manifest, trial.keyHash = st.checkpointer.manifest, st.keyHash
	if snapshots := r.snapshots(&st.checkpointer.manifest); len(snapshots) > 0 {
		p, err := restore.NewPreview(st.dev, snapshots, st.checkpointer.manifest.DeviceTail(r.from))
		if err != nil {
			return fmt.Errorf("kv: checkpoint %q: %w", r.from.Name, err)
		}
		defer p.CloseSnapshots()
		trial.dev = p
	}
	again := &recovery{ctx: r.ctx, st: trial, state: r.state, from: r.from, all: r.all, began: time.Now()}
	again.report.From = r.report.From
	if err = again.load(); err == nil {
		err = trial.unload()
	} else if prepared != nil {
		err = fmt.Errorf("%w; the device, for the newest state at %d: %w", err, newest, prepared)
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return nil
}
