// Package kv is a key-value store for data larger than memory: a hash index in memory over a
// hybrid log. The log's tail is in memory and updated in place; the rest is on a
// [device.Device].
//
// A [Store] holds the records. A [Session] gives one goroutine access to them. It is the
// fastest way: it owns an epoch handle, a device queue and buffers, so that an operation takes
// no lock and allocates nothing. [Store.Read], [Store.Upsert] and the other operations of
// Store borrow a session and are safe for concurrent use. An [Op] is one operation of a batch
// ([Session.Do]) or of a stream ([Session.Submit], [Session.Poll]), which have many device
// reads pending at once. [Session.Atomically] is a short transaction over several keys.
// [OpenDir] opens a store in a directory.
//
// Caveats:
//   - A Session is used by one goroutine at a time.
//   - An operation takes effect between its call and its return, in the sense of Go's memory
//     model: a goroutine that learns of the return by a channel, a lock or an atomic sees the
//     effect.
//   - A write is durable when a later [Store.Commit], [Store.Checkpoint] or [Store.Close] has
//     returned nil, not before. Open recovers exactly what the last of them covered;
//     [Store.CommitPoint] describes the covered operations of a named session.
//   - A context ends an operation only while it waits: see [Session.SetContext].
//   - Each Open with Options.Recover recovers the named checkpoint and drops newer ones.
//   - Deleted, overwritten and expired records use space on the device until [Store.Compact]
//     or automatic compaction, see [AutoCompaction].
//   - A [Store.Scan] during compaction may find a key twice.
//   - The index grows by itself. It is faster if Options.Records is the expected number of
//     keys.
package kv
