// Package resp serves a [kv.Store] over the Redis protocol, so that Redis
// clients use it without knowing the difference.
//
// A [Server] answers on any listener. Each connection has one goroutine, which
// reads what has arrived, carries all complete commands of it out as one batch
// ([kv.Session.Do]), and answers with one write. Keys and values are passed to
// the store where they lie in the connection's buffer. Requests are arrays of
// bulk strings or inline commands; replies are RESP2, or RESP3 after HELLO 3.
//
// A connection holds no session of the store: it borrows one for a batch, with
// the batch's buffers. A thousand idle connections cost some 15 KiB each; as many
// sessions are open as batches were ever under way at once, up to
// Options.Sessions.
//
// What bites:
//   - There is one database, without expiry, and no authentication yet: let the
//     server listen where only friends connect.
//   - An answered write is durable as the store's writes are: once a later
//     [kv.Store.Commit] has returned.
//   - MSET stores its keys one by one: another connection may see some of them,
//     and one that the store refuses does not keep the others from being stored.
//   - DEL, GETDEL and SET with XX look first and act then, and another connection
//     may come in between: a key removed by two at once is counted by both, the
//     value that GETDEL removes may be newer than the one it returns, and SET
//     with XX may bring back a key that was just removed. All other commands on
//     one key are atomic.
//   - A key may not be empty, and a record may not be larger than a page of the
//     store's log.
package resp
