// Package shm is the fabric between processes of one host, over shared memory.
//
// A region is a memory file. Importing it sends the file's descriptor over a
// unix socket; from then on reads and writes are copies within the importer's
// address space, made in Submit: truly one-sided, without a system call and without the
// owner's processor. The socket carries only imports and wake-ups, and shows when the other
// process dies: then all operations end with fabric.ErrDisconnected although the memory
// still exists, as they would with a machine that is gone.
//
// A peer can change only the bytes that it imported: files are sealed against shrinking and
// checked before they are mapped, marks in shared memory are checked before they are used,
// and peers map the words that say which regions are valid read-only.
package shm

// Name is the provider's name.
const Name = "shm"
