// Package kv is a key-value store for data that outgrows memory: a hash index
// in memory over a hybrid log whose tail is in memory, updated in place, and
// whose rest is on a [device.Device].
//
// A [Store] holds the records. A [Session] is one goroutine's way to them, and
// the fast one: it owns an epoch slot, a device queue and its buffers, so that
// an operation takes no lock and allocates nothing. The store's own [Store.Read],
// [Store.Upsert] and so on borrow a session and are safe from any goroutine. An
// [Op] is one operation of a batch ([Session.Do]) or of a stream
// ([Session.Submit], [Session.Poll]) in which many cold reads are under way at
// once. [Session.Atomically] is a short transaction over several keys.
//
// What bites:
//   - A Session belongs to one goroutine at a time.
//   - An operation takes effect between its call and its return, as Go's memory
//     model orders things: who learns of the return by a channel, a lock or an atomic
//     finds it done.
//   - What was written is durable once [Store.Commit], [Store.Checkpoint] or
//     [Store.Close] has returned nil, not before. Open finds exactly what the last of
//     them covered; of a session with a name, [Store.CommitPoint] says what that is.
//   - Options.Recover brings back a checkpoint by its name, and drops what is newer,
//     each time that the store is opened with it.
//   - Deleted, overwritten and expired records keep their space on the device until
//     [Store.Compact], or automatic compaction, see [AutoCompaction].
//   - A [Store.Scan] beside compaction may find a key twice.
//   - The index grows by itself, but is the better for knowing: say in Options.Records
//     how many keys will come.
package kv
