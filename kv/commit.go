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
// share one commit. Where nothing is new, nothing is written. Waiting, for another commit
// or for sessions that hold locks, ends with ctx.
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

// commitFor commits for all calls of a group. Where the context of this call ends it, the
// others try again.
func (st *Store) commitFor(ctx context.Context, group *phase.Group) (err error) {
	defer func() {
		st.checkpointer.machine.Finish(group, err, err != nil && ctx.Err() != nil)
	}()
	if err := st.begin(ctx, phase.Commit, "commit"); err != nil {
		return err
	}
	err = st.commit(ctx)
	st.end(phase.Commit)
	if err == nil {
		st.giveBack()
	}
	return err
}

// commit is makeCommit, counted.
func (st *Store) commit(ctx context.Context) error {
	k := &st.checkpointer
	if err := st.makeCommit(ctx); err != nil {
		k.commitErrors.Add(1)
		return fmt.Errorf("kv: commit: %w", err)
	}
	k.commits.Add(1)
	return nil
}

// makeCommit makes the present state durable. The caller is in the phase Gathering, in
// Removing or in Closed.
func (st *Store) makeCommit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	// 1. The barrier decides what is in the commit: all that took effect before it. The
	// calls that have joined the group began before it, so this is the commit for them;
	// others join the next one.
	m := st.recorded()
	s := manifest.State{Index: m.Index}
	err := st.exclusive(ctx, func() {
		st.step(phase.Flush)
		st.foldOver(&s)
	})
	if err != nil {
		return err
	}

	// 2. Where the manifest on the device has the same state, nothing is to be written.
	// The commit counts all the same: see NextCommit.
	if st.holds(&s) {
		st.survived(&s)
		return nil
	}

	// 3. The log up to the state's tail, and one Sync.
	if err := st.log.Persist(ctx, s.Tail); err != nil {
		return err
	}

	// 4. The manifest, which makes the state the one that Open recovers.
	if err := st.checkpointer.machine.Advance(ctx, phase.Record); err != nil {
		return err
	}
	if err := st.record(ctx, func(m *manifest.Manifest) { m.SetCommit(&s) }); err != nil {
		return err
	}

	// 5. LastCommit and CommitPoint tell.
	st.survived(&s)
	return nil
}

// foldOver takes the state of the store in its barrier, and makes all of it read-only.
func (st *Store) foldOver(s *manifest.State) {
	st.enterState(s)
	st.log.ShiftReadOnly()
}

// enterState fills in what a state is, in its barrier. It takes the number first: an
// operation that ended before is in the state, see NextCommit.
func (st *Store) enterState(s *manifest.State) {
	s.Sequence = st.checkpointer.sequence.Add(1)
	s.Begin, s.Tail = st.log.Begin(), st.log.Tail()
	if s.Index != nil && s.Index.Start <= s.Begin {
		// All of the log lies behind the copy: that is none of it, and may have been
		// made of another table (see Clear).
		s.Index = nil
	}
	s.Sessions = st.commitPoints()
	st.enterCount(s)
}

// NextCommit is a number that says when what has been done so far is durable: once
// [Store.LastCommit] is that number or a higher one, everything is that any operation
// changed, or Clear, which returned before the call of NextCommit.
//
// Commits and checkpoints have numbers, which grow in the order in which these begin
// and are not consecutive. A commit that writes nothing has one as well. Numbers of
// different processes cannot be compared.
func (st *Store) NextCommit() uint64 { return st.checkpointer.sequence.Load() + 1 }

// LastCommit is the highest number of a commit or checkpoint that has succeeded, see
// [Store.NextCommit].
func (st *Store) LastCommit() uint64 { return st.checkpointer.durableAt.Load() }
