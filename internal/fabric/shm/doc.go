// Package shm is the fabric between processes of one host, over shared memory.
//
// A region is a memory file. Importing it sends the file's descriptor over a
// unix socket; from then on reads and writes are copies within the importer's
// own address space, made at Submit: one-sided in truth, without a system call
// and without the owner's processor. The socket carries nothing but imports and
// wake-ups, and it tells when the other process dies: then everything ends with
// fabric.ErrDisconnected although the memory still stands, because a machine
// that is gone would not answer either.
//
// What a peer can do to this process is limited to the bytes that were lent to
// it: files are sealed against shrinking and checked before they are mapped,
// marks in shared memory are checked before they are used, and the words that
// say which regions stand are mapped read-only by peers.
package shm

// Name is the provider's name.
const Name = "shm"
