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
// A key is one record: a string as it is, a hash after a mark (value.go). A command that
// changes a key is one read-modify-write ([kv.Op]), and so atomic, including its expiry.
// MULTI, MSETNX, RENAME and COPY lock the keys that they name ([kv.Session.Atomically]). While
// a client WATCHes a key, writers count their changes (commands_transaction.go). Error replies
// are Redis's, word for word: a test compares all replies with a real server's.
//
// A command is an entry in commands.go and a function in the commands_*.go file of its group.
// Polling of connections is in internal/poll, patterns are in internal/glob.
//
// Caveats:
//   - There is one database, of strings and hashes.
//   - Options.Durability decides which answered writes survive a crash.
//   - MSET, MGET, DEL, EXISTS and TOUCH process their keys one by one: another connection
//     may see some of them changed and others not. In MULTI they are atomic.
//   - A change of a hash rewrites all of it: hashes should have at most hundreds of fields.
//   - A value may not be larger than a page of the store's log.
//   - WATCH does not detect changes that the program makes in the store directly. It may
//     fail an EXEC without a reason, rarely, under very many writes.
//   - RANDOMKEY returns a key near a random place of the index: keys are not equally likely.
package resp
