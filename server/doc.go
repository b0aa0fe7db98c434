// Package server is the cache server: the agent on a VM that lends the VM's
// memory to Redy caches.
//
// Its control API lends and takes back regions: zeroed huge-page memory that is registered
// with the fabric under a random token. A client accesses its regions one-sided, without the
// server's processors, or sends batches through message rings, which server threads execute.
// A server without server threads (Options.Cores is 0) lends memory for one-sided access
// only. When a region moves, its new server pulls it from the old one by one-sided reads.
//
// Ownership:
//   - A grant is one loan of memory to a cache, with its regions, threads, connections and
//     pulls. Its context ends all of them; its regions are freed after all of these have
//     ended. A cache may have several independent grants on a server.
//   - A connection is owned by its own goroutine while it is idle, and by one server thread
//     while requests arrive. It is handed over through channels, so that its queue pair has
//     one owner at any time.
//   - A released region leaves the table that threads read. It is freed once every thread
//     has stopped using the old table.
//
// Nothing that a peer sends is trusted. A queue pair without a grant's ticket is refused, as
// is one that asks for more ring memory than the grant has left. A request outside the
// grant's regions is answered with an error. A malformed message, or one with a wrong
// checksum, ends its connection. All of these are counted.
package server
