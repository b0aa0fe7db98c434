package kv

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/kv/internal/index"
)

// Clear removes all keys, at one moment: an operation of a session comes before it or
// after it, and so does all that [Session.Atomically] and [Session.DoWhole] do together.
// It takes no longer the more keys there are. As with any other change, the next Commit
// makes it durable, and a crash before that brings the keys back. That commit also gives
// the space on the device back, as far as no checkpoint that is kept needs it.
//
// It is not for callers who hold locks, as commits are not. If ctx ends while Clear waits
// for the ends of batches and of those who hold locks, nothing is removed.
func (st *Store) Clear(ctx context.Context) error {
	if err := st.mayWait(); err != nil {
		return fmt.Errorf("kv: clearing the store: %w", err)
	}
	if st.isClosed() {
		return ErrClosed
	}
	if st.log.Begin() == st.log.Tail() { // read in this order: there was none at that moment
		return nil
	}
	// The log goes on, and begins anew at its tail: entries of the index that lead below
	// lead nowhere, and operations that are on their way to there find nothing, or begin
	// anew. Another index is made because that takes less than to empty the one there is.
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
			// Giving gigabytes back takes a while. Nobody is inside an epoch in which he has
			// seen it.
			old := st.index.Swap(fresh)
			st.background.Go(func() {
				st.freeIndex(old)
				<-st.resizing
			})
			fresh = nil
		default: // it grows, or is copied: its entries lead nowhere
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
