package kv

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/kv/internal/index"
)

// Clear removes all keys, at one moment: each operation of a session, transaction
// ([Session.Atomically]) and whole batch ([Session.DoWhole]) comes before it or after it. It
// takes no longer with more keys. Like other changes it is durable with the next Commit, and
// a crash before brings the keys back. That commit also gives back the space on the device
// that no kept checkpoint needs.
//
// A caller that holds locks gets ErrHoldsLocks. If ctx ends while Clear waits for whole
// batches and for sessions that hold locks, nothing is removed.
func (st *Store) Clear(ctx context.Context) error {
	if err := st.mayWait(); err != nil {
		return fmt.Errorf("kv: clearing the store: %w", err)
	}
	if st.isClosed() {
		return ErrClosed
	}
	if st.log.Begin() == st.log.Tail() { // Begin is read first: at that moment the log was empty
		return nil
	}
	// The log now begins at its tail. Entries of the index with lower addresses lead to no
	// record, and pending operations on such records find nothing, or begin again. A new
	// index is made because that is faster than clearing the present one.
	fresh, err := st.newIndex(0)
	if err != nil {
		st.opts.Logger.Warn("the index keeps its memory though there are no keys", "err", err)
		fresh = nil
	}
	closed := false
	err = st.exclusive(ctx, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if closed = st.closed; closed {
			return
		}
		st.checkpointer.cleared.Store(st.log.Empty())
		if st.keyCounter != nil {
			st.keysPast -= st.keysCountedLocked()
			st.keyCounter.Clear()
		}
		if fresh == nil {
			return
		}
		select {
		case st.resizing <- struct{}{}:
			// Freeing gigabytes takes a while. No session is inside an epoch in which it has
			// loaded the old index.
			old := st.index.Swap(fresh)
			st.background.Go(func() {
				st.freeIndex(old)
				<-st.resizing
			})
			fresh = nil
		default: // the index grows, or is copied, and stays: its entries lead to no record
		}
	})
	if fresh != nil {
		st.freeIndex(fresh)
	}
	if closed {
		return ErrClosed
	}
	if err != nil {
		return fmt.Errorf("kv: clearing the store: %w", err)
	}
	return nil
}

func (st *Store) freeIndex(t *index.Table) {
	if err := t.Free(); err != nil {
		st.opts.Logger.Warn("giving the memory of an index back", "err", err)
	}
}
