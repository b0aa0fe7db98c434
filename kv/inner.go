package kv

import (
	"context"
	"fmt"
)

// A program may spread one thing over many records: a list over its nodes, an object over its
// parts. Its users see one key, whose record names the others. Those others are inner records,
// and Options.Inner tells them from the rest by their keys.
//
//   - They are not counted, and [Store.Scan] and [Store.ScanFrom] pass over them. ScanLog does not.
//   - They have no locks of their own. Within [Session.Atomically] any inner record may be used,
//     and without it an operation on one does not wait for locks. The program guards them by
//     the lock of the key that they belong to. A change of several within Atomically is still
//     one for commits and checkpoints.
//   - Compaction asks Options.Orphans which of them belong to nothing any more, and drops these.
//     So to delete all of them it is enough to delete the record that names them.
//
// Upserts and deletes of inner records are blind also in a store that counts keys.

// inner reports whether a key is that of an inner record.
func (s *Session) inner(key []byte) bool {
	inner := s.store.opts.Inner
	return inner != nil && inner(key)
}

// IsInner reports whether a key is that of an inner record, according to Options.Inner.
func (st *Store) IsInner(key []byte) bool { return st.opts.Inner != nil && st.opts.Inner(key) }

// countsKey reports whether changes of a key are counted.
func (s *Session) countsKey(key []byte) bool { return s.counting && !s.inner(key) }

// orphans holds the arguments of Options.Orphans for a batch of compaction.
type orphans struct {
	keys [][]byte
	at   []int // indices of their operations
	is   []bool
}

// dropOrphans removes the records from the batch that Options.Orphans says belong to nothing, and
// returns their number.
func (b *traceBatch) dropOrphans(ctx context.Context, s *Session, o *orphans) (dropped int, err error) {
	opts := &s.store.opts
	if opts.Orphans == nil {
		return 0, nil
	}
	o.keys, o.at, o.is = o.keys[:0], o.at[:0], o.is[:0]
	for i := range b.ops {
		if opts.Inner(b.ops[i].Key) {
			o.keys, o.at, o.is = append(o.keys, b.ops[i].Key), append(o.at, i), append(o.is, false)
		}
	}
	if len(o.keys) == 0 {
		return 0, nil
	}
	if err := opts.Orphans(ctx, s, o.keys, o.is); err != nil {
		return 0, fmt.Errorf("finding orphans (Options.Orphans): %w", err)
	}
	kept, next := 0, 0
	for i := range b.ops {
		if next < len(o.at) && o.at[next] == i {
			if next++; o.is[next-1] {
				dropped++
				continue
			}
		}
		b.ops[kept], b.traces[kept] = b.ops[i], b.traces[i]
		kept++
	}
	b.ops, b.traces = b.ops[:kept], b.traces[:kept]
	return dropped, nil
}
