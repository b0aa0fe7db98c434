// Package server is the cache server: the agent on a VM that lends the VM's
// memory to Redy caches.
//
// Its control API lends and takes back regions: huge-page memory, zeroed,
// registered with the fabric under a token that cannot be guessed. A cache's client
// reads and writes its regions one-sided, without a cycle of the server's, or sends
// batches through message rings, which the cache's server threads carry out. A
// server without cores lends memory for one-sided access only: stranded memory.
// Where a cache moves, its new server pulls the regions from the old one, one-sided
// as well.
//
// Who owns what:
//   - A lease is what a cache has under one grant: regions, threads, connections
//     and pulls. Its context ends all of them; its regions are freed once, after
//     the last of them is gone. A cache may have several grants on a server, which
//     have nothing in common but its name.
//   - A connection is owned by its own goroutine while it is idle, and by one
//     server thread while requests come in. It is handed over through channels,
//     so that its queue pair has one owner at any time.
//   - Regions that are released leave the table that threads look at first; they
//     are freed when every thread has passed its gate since.
//
// Nothing that a peer sends is trusted: a queue pair without a lease's ticket is
// refused, and one that asks for more rings than its lease has room for; a request
// outside its lease's regions is answered with an error, and a malformed message, or
// one that is not as its checksum says, ends its connection. All of them are counted.
package server
