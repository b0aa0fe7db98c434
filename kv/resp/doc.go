// Package resp serves a [kv.Store] to clients of the Redis protocol.
//
// A [Server] serves any listener. It reads what has arrived on a connection, runs all complete
// commands as one batch ([kv.Session.DoWhole]), and sends all replies in one write. TCP
// connections with simple commands share a few goroutines, Options.Loops; other connections,
// and those with TLS, have a goroutine each. Keys and values are passed to the store in the
// connection's buffer, without a copy. Requests are arrays of bulk strings or inline commands;
// replies are RESP2, or RESP3 after HELLO 3.
//
// A connection borrows a session of the store, with the buffers of a batch, for each batch. An
// idle connection takes about 15 KiB. The number of open sessions is the largest number of
// batches that ran concurrently, up to Options.Sessions.
//
// A key is one record: a string as it is, a small hash or set after a mark (value.go, packed.go). A
// large one is spread over nodes, which its key's record leads to (spread.go, hashtable.go, node.go);
// for that the store is opened with [kv.Options] Inner and Orphans: [Inner], [Orphans]. A key of a
// database other than 0 has the database's number before it. For exact and immediate counts of the
// keys of each database, the store is opened with CountKeys and KeyClass: [KeyClass]. A command that
// changes a key is one read-modify-write ([kv.Op]), and so atomic, including its expiry; one on a
// large collection is a transaction (collection.go, group.go).
// MULTI, MSETNX, RENAME, COPY and MOVE lock the keys that they name ([kv.Session.Atomically]). While
// a client WATCHes a key, writers count their changes (commands_transaction.go). Error replies
// are Redis's, word for word: a test compares all replies with a real server's.
//
// Publishers append messages, which are encoded once, to the queues of subscribers; the owners of
// their connections send them (pubsub.go, subscriber.go).
//
// Clients that wait for an element (BLPOP) are served by the client that adds it (blocking.go).
//
// What happened to keys is told to subscribers of keyspace notifications and to clients with CLIENT
// TRACKING after the batch has run (changes.go, changes_opened.go, tracking.go, expirer.go). With CacheMode the store
// evicts keys that were not used lately (cache.go).
//
// A command is an entry in commands.go, or in the file of its group, and a function in the commands_*.go file of its group.
// Polling of connections is in internal/poll, patterns are in internal/glob.
//
// Caveats:
//   - There are no streams, and no scripts.
//   - Without CountKeys and KeyClass, DBSIZE and FLUSHDB scan the store, and INFO has no keyspace.
//   - Options.Durability decides which answered writes survive a crash.
//   - MSET, MGET, DEL, EXISTS and TOUCH process their keys one by one: another connection
//     may see some of them changed and others not. In MULTI they are atomic.
//   - Without Inner and Orphans all hashes and sets are packed: a change of one rewrites all of it.
//   - Programs on the same store must not write the keys for which Inner returns true.
//   - A value may not be larger than a page of the store's log.
//   - WATCH does not detect changes that the program makes in the store directly. It may
//     fail an EXEC without a reason, rarely, under very many writes.
//   - RANDOMKEY returns a key near a random place of the index: keys are not equally likely.
package resp
