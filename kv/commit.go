package kv

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/phase"
)

// Commit makes everything written before it durable, as far as the device's
// commit point goes: by default it survives a crash of the process and the loss
// of every tier but the last. What is in it is a prefix of what each session was
// given, see [CommitPoint]. Operations go on meanwhile. Calls that wait at the same time
// share one commit. If nothing is new, nothing is written. Waiting for another commit, or
// for sessions that hold locks, ends with ctx.
func (st *Store) Commit(ctx context.Context) error {
	if err := st.mayWait(); err != nil {
		return fmt.Errorf("kv: commit: %w", err)
	}
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

// commitFor commits for all calls of a group. If the context of this call, or a panic, ends
// it, the others try again.
func (st *Store) commitFor(ctx context.Context, group *phase.Group) (err error) {
	again := true
	defer func() { st.checkpointer.machine.Finish(group, err, again) }()
	if err = st.commitNext(ctx); err == nil {
		st.giveBack()
	}
	again = err != nil && ctx.Err() != nil
	return err
}

// commitNext commits when no other commit is under way.
func (st *Store) commitNext(ctx context.Context) error {
	if err := st.begin(ctx, phase.Commit, "commit"); err != nil {
		return err
	}
	defer st.end(phase.Commit)
	return st.commit(ctx)
}

// commit makes the present state durable. The caller is in the phase Gathering, Removing or
// Closed.
func (st *Store) commit(ctx context.Context) (err error) {
	k := &st.checkpointer
	defer func() {
		if err != nil {
			k.commitErrors.Add(1)
			err = fmt.Errorf("kv: commit: %w", err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}

	// 1. The barrier takes the state: everything that has taken effect is in it. Calls of
	// Commit that have joined the group began before the barrier, so this commit is for
	// them. Later calls join the next one.
	m := st.recorded()
	s := manifest.State{Index: m.Index}
	err = st.exclusive(ctx, func() {
		st.step(phase.Flush)
		st.foldOver(&s)
	})
	if err != nil {
		return err
	}

	if !st.holds(&s) { // else nothing is new, and the device has the state
		// 2. Write the log up to the state's tail, and sync the device.
		if err := st.log.Persist(ctx, s.Tail); err != nil {
			return err
		}

		// 3. Write the manifest. From here on Open recovers the state.
		if err := k.machine.Advance(ctx, phase.Record); err != nil {
			return err
		}
		if err := st.record(ctx, func(m *manifest.Manifest) { m.SetCommit(&s) }); err != nil {
			return err
		}
	}

	// 4. Publish the commit, to LastCommit and CommitPoint.
	k.commits.Add(1)
	st.survived(&s)
	return nil
}

// foldOver takes the state of the store, and makes the log read-only up to its tail. The
// caller is in a barrier.
func (st *Store) foldOver(s *manifest.State) {
	st.enterState(s)
	st.log.ShiftReadOnly()
}

// enterState takes the state of the store. The caller is in a barrier. The state's number is
// taken here, so an operation that ended before NextCommit returned a number is in every
// state of that number or a higher one.
func (st *Store) enterState(s *manifest.State) {
	s.Sequence = st.checkpointer.sequence.Add(1)
	s.Begin, s.Tail = st.log.Begin(), st.log.Tail()
	if s.Index != nil && s.Index.Start <= s.Begin {
		// The copy has no entry of the present log, and may be of another table (see Clear).
		s.Index = nil
	}
	s.Sessions = st.commitPoints()
	st.enterCount(s)
}

// NextCommit returns a number that tells when the changes made so far are durable: once
// [Store.LastCommit] is that number or a higher one, so are all changes by operations, and
// by Clear, that returned before the call of NextCommit.
//
// Commits and checkpoints have numbers, which grow in the order of their barriers and are
// not consecutive. A commit that writes nothing has a number, too. Numbers of different
// processes cannot be compared.
func (st *Store) NextCommit() uint64 { return st.checkpointer.sequence.Load() + 1 }

// LastCommit returns the highest number of a commit or checkpoint that has succeeded, see
// [Store.NextCommit].
func (st *Store) LastCommit() uint64 { return st.checkpointer.durableAt.Load() }
