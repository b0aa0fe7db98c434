// Package server is the cache server: the agent on a VM that lends the VM's
// memory to Redy caches.
//
// Its control API (Connect, Disconnect, Status) lends and takes back regions:
// huge-page memory, zeroed, registered with the fabric under a token that
// cannot be guessed. A cache's client reads and writes its regions one-sided,
// without a cycle of the server's, or sends batches through message rings,
// which the cache's server threads carry out. A server without cores lends
// memory for one-sided access only: stranded memory.
//
// Who owns what:
//   - A lease is one cache's regions, threads and connections. Its context ends
//     all of them; its regions are freed once, after the last of them is gone.
//   - A connection is owned by its own goroutine while it is idle, and by one
//     server thread while requests come in. It is handed over through channels,
//     so that its queue pair has one owner at any time.
//
// Nothing that a peer sends is trusted: a queue pair without a lease's ticket is
// refused, a request outside its lease's regions is answered with an error, and
// a malformed message ends its connection. All of them are counted.
package server
