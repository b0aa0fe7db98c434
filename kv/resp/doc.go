// Package resp serves a [kv.Store] over the Redis protocol, so that Redis
// clients use it without knowing the difference.
//
// A [Server] answers on any listener. It reads what has arrived over a connection,
// carries all complete commands of it out as one batch ([kv.Session.DoWhole]), and answers
// with one write. A few goroutines, Options.Loops, do so for the TCP connections whose
// commands are plain; others, and those under TLS, have a goroutine each. Keys and
// values are passed to the store where they lie in the connection's buffer. Requests are
// arrays of bulk strings or inline commands; replies are RESP2, or RESP3 after HELLO 3.
//
// A connection holds no session of the store: it borrows one for a batch, with
// the batch's buffers. A thousand idle connections cost some 15 KiB each; as many
// sessions are open as batches were ever under way at once, up to
// Options.Sessions.
//
// What a key holds is one record: a string as it is, a hash behind a mark (value.go).
// A command that changes a key is one read-modify-write of it ([kv.Op]), and so
// atomic, with its expiry. MULTI, MSETNX, RENAME and COPY lock the keys that they
// name ([kv.Session.Atomically]); WATCH has writers leave traces (watch.go). Errors
// are Redis's, word for word: a test compares all replies with a real server's.
//
// What bites:
//   - There is one database, of strings and hashes.
//   - What an answered write is worth after a crash, Options.Durability says.
//   - MSET, MGET, DEL, EXISTS and TOUCH look at their keys one by one: another
//     connection may see some of them changed and some not. In MULTI they do not.
//   - A change of a hash writes all of it anew: hashes are for hundreds of fields.
//   - A value may not be larger than a page of the store's log.
//   - WATCH does not notice what the program changes in the store itself. It may
//     make EXEC fail for nothing, rarely, where others write very much.
//   - RANDOMKEY takes what lies near a place in the log: not all keys are equally
//     likely.
package resp
