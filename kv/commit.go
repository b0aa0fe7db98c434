package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
)

// Commit makes all earlier writes durable, down to the device's commit point: by default they
// survive a crash of the process and the loss of every tier but the last. The commit contains
// a prefix of each session's operations, see [CommitPoint]. Operations go on meanwhile. Calls
// that wait at the same time share one commit. If nothing has changed, nothing is written. If
// ctx ends while Commit waits for another commit, or for sessions that hold locks, Commit
// returns its error.
func (st *Store) Commit(ctx context.Context) error {
	for {
		group, leads := st.checkpointer.machine.Join()
		if leads {
			return st.commitFor(ctx, group)
		}
		ended, again, err := group.Wait(ctx)
		if !ended {
			return fmt.Errorf("kv: commit: waiting for another one: %w", err)
		}
		if !again {
			return err
		}
	}
}

// WaitForCommit returns when LastCommit has reached a number that NextCommit of this Store returned.
// A writer that needs its writes to be durable takes the number after them. If the commit in
// progress has that number, WaitForCommit waits for it. Otherwise, or if that one fails, it makes a
// commit as [Store.Commit] does, shared with all that wait at the same time, and returns its error.
// If ctx ends first, it returns the error of ctx.
func (st *Store) WaitForCommit(ctx context.Context, number uint64) error {
	if number <= st.LastCommit() {
		return nil
	}
	k := &st.checkpointer
	if number <= k.barrier.Load() { // the commit in progress has it, if there is one, or a later one
		if g := k.machine.Follow(); g != nil {
			if ended, _, err := g.Wait(ctx); !ended {
				return fmt.Errorf("kv: commit: waiting for it: %w", err)
			}
			if number <= st.LastCommit() {
				return nil
			}
		}
	}
	err := st.Commit(ctx)
	if number <= st.LastCommit() { // a checkpoint, or Close, has it
		return nil
	}
	return err
}

// WaitForCommit returns when all operations of the session that have ended are durable: those whose
// calls have returned, or that Poll has returned. Sessions that wait at the same time share one
// commit, see [Store.WaitForCommit].
func (s *Session) WaitForCommit(ctx context.Context) error {
	return s.store.WaitForCommit(ctx, s.store.NextCommit())
}

// commitFor commits for all calls of a group. If it ends by this call's context or a panic,
// the other calls try again.
func (st *Store) commitFor(ctx context.Context, group *phase.Group) (err error) {
	if err = st.commitGroup(ctx, group); err == nil {
		st.free()
	}
	return err
}

func (st *Store) commitGroup(ctx context.Context, group *phase.Group) (err error) {
	again := true
	defer func() { st.checkpointer.machine.Finish(group, err, again) }()
	if err = st.commitNext(ctx); errors.Is(err, device.ErrNoSpace) && st.checkpointer.cleared.Load() != nil {
		err = st.commitDropping(ctx)
	}
	again = err != nil && ctx.Err() != nil
	return err
}

// commitNext commits when no other commit is in progress.
func (st *Store) commitNext(ctx context.Context) error {
	if err := st.begin(ctx, phase.Commit, "commit"); err != nil {
		return err
	}
	defer st.end(phase.Commit)
	st.gather()
	began := time.Now()
	defer func() { st.checkpointer.took = time.Since(began) }()
	return st.commit(ctx)
}

// commitDropping commits after it has dropped what the last Clear removed, which frees space.
func (st *Store) commitDropping(ctx context.Context) error {
	if err := st.begin(ctx, phase.Remove, "commit"); err != nil {
		return err
	}
	defer st.end(phase.Remove)
	st.dropCleared(ctx) // false: the commit finds the device full again, unless another one has freed space
	return st.commit(ctx)
}

// CommitWritten makes durable what the device has of the log, and returns the number of bytes of the log
// that it does not have. It is for a program that ends though its device is full, where Commit and
// Close would lose all since the last commit or checkpoint. It is no state that the store was in: of
// the operations since then, those whose records are not on the device are missing, also in the middle
// of a transaction, and named sessions keep the commit points that they had then. LastCommit does not
// change. After an error the last commit or checkpoint is what is durable.
func (st *Store) CommitWritten(ctx context.Context) (lost int64, err error) {
	const what = "commit of what is written"
	if err := st.begin(ctx, phase.Remove, what); err != nil {
		return 0, err
	}
	defer st.end(phase.Remove)
	m := st.recorded()
	last := &m.Commit
	if c := m.Newest(); c != nil {
		last = &c.State
	}
	s := manifest.State{Index: m.Index}
	var tail int64
	var cleared *manifest.State
	if err := st.exclusive(ctx, func() {
		st.takeState(&s)
		tail, s.Tail, cleared = s.Tail, st.log.LastWritten(), st.checkpointer.cleared.Load()
	}); err != nil {
		return 0, fmt.Errorf("kv: %s: %w", what, err)
	}
	s.Sessions, s.Count = last.Sessions, nil // keys are counted at the next opening
	// The log's begin is too high: of what was copied from below, the copies may not be written.
	s.Begin = max(m.Commit.Begin, hlog.FirstAddress)
	if cleared != nil {
		s.Begin = max(s.Begin, cleared.Begin)
	}
	if i := s.Index; i != nil && (i.Start > s.Tail || i.Begin == 0 || i.Begin > s.Begin) {
		s.Index = nil // it has entries above the tail, or lacks some above begin
	}
	if most := max(last.Tail, s.Begin); s.Tail <= most { // there is nothing more
		return tail - most, nil
	}
	err = st.recordBy(ctx, func(name string, data []byte) error { return device.Commit(st.dev, name, data) },
		func(m *manifest.Manifest) {
			m.SetCommit(&s)
			if m.Index != nil && m.Index.Start > s.Tail { // of a log that goes on otherwise now
				m.Index = nil
			}
		}, false)
	if err != nil {
		return 0, fmt.Errorf("kv: %s: %w", what, err)
	}
	return tail - s.Tail, nil
}

// gathering is the longest wait for callers that may share a commit. gatheringYields bounds it on a
// machine without other work, and where a test's clock stands still.
const (
	gathering       = 500 * time.Microsecond
	gatheringYields = 2000
)

// gather waits a moment for the callers that were there when the last commit ended. Those that it
// served are told then, and come back with their next writes: without the wait, a commit of one
// caller and a commit of all others would take turns. The caller is the commit in progress.
func (st *Store) gather() {
	k := &st.checkpointer
	end := time.Now().Add(min(k.took/4, gathering))
	for yields := 0; k.machine.Missing() && yields < gatheringYields && time.Now().Before(end); yields++ {
		runtime.Gosched()
	}
}

// commit makes the current state durable. The caller is in the phase Gathering, Removing or
// Closed.
func (st *Store) commit(ctx context.Context) (err error) {
	k := &st.checkpointer
	defer func() {
		if err != nil {
			st.count(func(m *Metrics) { m.Commits.Failed++ })
			err = fmt.Errorf("kv: commit: %w", err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}

	// 1. The barrier takes the state: everything that has taken effect is in it. Calls of
	// Commit that have joined the group began before the barrier, so this commit covers them.
	// Later calls join the next one.
	m := st.recorded()
	s := manifest.State{Index: m.Index}
	err = st.exclusive(ctx, func() {
		st.step(phase.Flush)
		st.foldOver(&s)
		k.barrier.Store(s.Sequence)
	})
	if err != nil {
		return err
	}

	if !st.holds(&s) { // else the device already has the state
		// 2. Write the log up to the state's tail, unless that is so little that the device
		// can take it with the manifest.
		blocks, addr, small := st.unwritten(s.Tail)
		if !small {
			if err := st.log.Write(ctx, s.Tail); err != nil {
				return err
			}
		}

		// 3. Make it durable, and the manifest after it. From here on Open recovers the state.
		if err := k.machine.Advance(ctx, phase.Record); err != nil {
			return err
		}
		err := st.recordBy(ctx, func(name string, data []byte) error {
			if small {
				if done, err := st.dev.(device.Committer).CommitWith(blocks, addr, name, data); done {
					return err
				}
				if err := st.log.Write(ctx, s.Tail); err != nil {
					return err
				}
			}
			return device.Commit(st.dev, name, data)
		}, func(m *manifest.Manifest) { m.SetCommit(&s) }, false)
		if err != nil {
			return err
		}
	}

	// 4. Publish the commit to LastCommit and CommitPoint.
	st.count(func(m *Metrics) { m.Commits.Made++ })
	st.setDurable(&s)
	return nil
}

// smallCommit is the largest end of the log, in bytes, that a commit does not wait for.
const smallCommit = 64 << 10

// unwritten returns the end of the log that is not on the device, if it is small and the device
// can take it with a commit. The caller is the commit in progress.
func (st *Store) unwritten(tail int64) (blocks []byte, addr int64, small bool) {
	if _, ok := st.dev.(device.Committer); !ok {
		return nil, 0, false
	}
	k := &st.checkpointer
	if k.end == nil {
		k.end = device.AlignedBuffer(smallCommit, st.dev.Alignment())
	}
	return st.log.Unwritten(tail, k.end)
}

// foldOver takes the state of the store, and makes the log read-only up to its tail. The
// caller is in a barrier.
func (st *Store) foldOver(s *manifest.State) {
	st.takeState(s)
	tail := st.log.ShiftReadOnly()
	if sampler := st.sampling.sampler.Load(); sampler != nil {
		sampler.Commit(tail)
	}
}

// takeState takes the state of the store. The caller is in a barrier. The state's number is
// taken here, so an operation that ended before NextCommit returned a number is in every
// state of that number or a higher one.
func (st *Store) takeState(s *manifest.State) {
	s.Sequence = st.checkpointer.sequence.Add(1)
	s.Begin, s.Tail = st.log.Begin(), st.log.Tail()
	if s.Index != nil && s.Index.Start <= s.Begin {
		// The copy has no entry of the current log, and may be of another table (see Clear).
		s.Index = nil
	}
	s.Sessions = st.commitPoints()
	st.takeCount(s)
}

// NextCommit returns a number that tells when the changes made so far are durable: once
// [Store.LastCommit] returns that number or a higher one, all changes by operations and by
// Clear that returned before the call of NextCommit are durable.
//
// Commits and checkpoints have numbers, which grow in the order of their barriers and are not
// consecutive. A commit that writes nothing also has a number. Numbers of different processes
// cannot be compared.
func (st *Store) NextCommit() uint64 { return st.checkpointer.sequence.Load() + 1 }

// LastCommit returns the highest number of a successful commit or checkpoint, see
// [Store.NextCommit].
func (st *Store) LastCommit() uint64 { return st.checkpointer.durableAt.Load() }

// CommitPoint describes the operations of a named session that are in a commit or a
// checkpoint: those with numbers up to Until, except those in Excluding. The excluded ones are
// read-modify-writes and inserts that were pending. A session numbers its operations from 1,
// see [Session.Serial].
type CommitPoint = manifest.CommitPoint

// maxName is the maximum length of the name of a session or a checkpoint, in bytes.
const maxName = 128

// NewNamedSession is [Store.NewSession] for a session whose commit point the store keeps under
// a name, across restarts. Its numbers continue from the last session of that name, or from
// the recovered commit point. A name has 1 to 128 bytes of UTF-8, else the error is
// ErrBadName. A name has one open session at a time, else the error is ErrNameInUse. Names are
// never removed, and every commit writes all of them: use few, and reuse them.
func (st *Store) NewNamedSession(name string) (*Session, error) {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) { // the manifest is JSON
		return nil, fmt.Errorf("%w: session %q: want 1 to %d bytes of UTF-8", ErrBadName, name, maxName)
	}
	s := st.makeSession()
	s.name = name
	if err := st.openSession(s); err != nil {
		return nil, err
	}
	return s, nil
}

// CommitPoint returns the operations of the named session that survive a crash from now on:
// the commit point of the last commit or checkpoint, or the recovered one. It returns false if
// there is no session of that name in it.
func (st *Store) CommitPoint(name string) (CommitPoint, bool) {
	k := &st.checkpointer
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.durable[name]
	p.Excluding = slices.Clone(p.Excluding)
	return p, ok
}

// Serial returns the number of the last operation passed to the session, in a call, a batch or
// a stream. If a Modifier panicked in a batch, only the operations of the batch that had begun
// count.
func (s *Session) Serial() uint64 {
	staged := 0
	for i := range s.lanes {
		staged += s.lanes[i].n - s.lanes[i].next
	}
	return s.begun() + uint64(staged)
}

// begun returns the number of the last operation that has taken effect or is pending.
// Operations begin in the order of their numbers. The counters that it sums up change only
// inside an epoch, together with what they count: so in a barrier the number of any session
// agrees with the log.
func (s *Session) begun() uint64 {
	n := s.before.Until + s.counts.refused
	for i := range s.counts.ops {
		n += uint64(s.counts.ops[i])
	}
	return n
}

// refuse assigns a number to an operation without effect.
func (s *Session) refuse() {
	s.enter()
	s.counts.refused++
	s.leave()
}

// commitPoint returns the session's commit point. The caller is in a barrier.
func (s *Session) commitPoint() CommitPoint {
	p := CommitPoint{Until: s.begun(), Excluding: slices.Clone(s.before.Excluding)}
	for i := range s.pending {
		if serial := s.pending[i].serial.Load(); serial != 0 {
			p.Excluding = append(p.Excluding, serial)
		}
	}
	slices.Sort(p.Excluding)
	return p
}

// exclusive is the barrier: it runs f between the operations of all sessions. An operation
// that began before has taken effect, is pending, or begins again after f. Transactions
// (Atomically) and whole batches (DoWhole) end before it; while it waits for a long one, others go on.
// f must take microseconds, since all sessions wait for it. If ctx ends first, exclusive returns an
// error and f is not run.
func (st *Store) exclusive(ctx context.Context, f func()) error {
	if err := st.gate.Shut(ctx); err != nil {
		return fmt.Errorf("waiting for transactions and whole batches to end: %w", err)
	}
	defer st.gate.Open()
	st.epoch.Exclusive(f)
	return nil
}

// enterSection begins a section that no barrier cuts, for a session that is in none.
func (s *Session) enterSection(ctx context.Context) (err error) {
	if s.section, err = s.store.gate.Enter(ctx); err != nil {
		return fmt.Errorf("kv: waiting for a commit or checkpoint: %w", err)
	}
	return nil
}

func (s *Session) leaveSection() { s.store.gate.Leave(s.section) }

// lock locks l, or returns the error of ctx if that ends first. Then a goroutine still waits
// for l, and locks it for a moment.
func lock(ctx context.Context, l sync.Locker) error {
	if l, ok := l.(interface{ TryLock() bool }); ok && l.TryLock() {
		return nil
	}
	if ctx.Done() == nil {
		l.Lock()
		return nil
	}
	locked := make(chan struct{})
	go func() { // runs until l is free
		l.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			l.Unlock()
		}
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitPoints returns the commit points of all named sessions. The caller is in a barrier.
func (st *Store) commitPoints() map[string]CommitPoint {
	st.mu.Lock()
	defer st.mu.Unlock()
	points := maps.Clone(st.ended)
	for name, s := range st.named {
		points[name] = s.commitPoint()
	}
	return points
}
