// Package manager finds machines for caches: Redy's manager.
//
// A [Manager] serves the control API (Connect, gRPC and JSON on one port). A
// client asks it to allocate so much remote memory; it answers with VMs, how
// many regions each of them lends, and the configuration (c, s, b, q) to use.
// Afterwards it tells the client, through Watch, when one of those VMs is gone or
// about to go. A cache that changes does so in two steps: Reallocate lends it
// more, beside what it has, and Settle says what it consists of from now on;
// whatever that does not name is released. The data itself never passes through
// the manager.
//
// Memory comes from two places. The pool holds cache servers that registered
// themselves, on any host. An [Allocator] starts VMs on demand: [allocator.Local] as
// processes of this machine, [allocator.InProcess] in this process; both of any size
// for nothing, or of the types of a simulated cloud (package manager/menu). What a
// cache gets is the cheapest of both (package manager/plan), and the pool at the same
// price; why it is that, DescribeCache says. Caches are told of VMs that have become
// cheaper ([Economy]); [WarmPool] keeps VMs ready for what has to move. A [Node] is the
// other end: one cache server with its control API, and its registration with a manager.
// [Embed] puts a manager and an allocator into the calling process.
//
// What bites:
//   - An SLO is a promise by prediction: the configuration is the cheapest one that
//     package model finds, unless the request names one. Nothing watches whether it is
//     kept. Without bounds in the SLO it is [DefaultConfiguration].
//   - A duration is a hint. Nothing is deleted when it has passed, unless
//     [Options].EnforceDuration says so. But a cache whose client does not renew its
//     lease ([Options].Lease) is deallocated.
//   - Without [Options].State the catalog is in memory. A manager that restarts has
//     forgotten its caches; clients go on reading and writing, and servers register
//     again. With it, the next manager goes on: where VMs are launched as processes,
//     [LocalOptions].State has them outlive the manager, too. What servers hold that
//     the catalog does not know is taken back then, after a lease.
//   - A manager that cannot write its catalog ends: Serve returns the error. Nothing
//     is done that could be forgotten.
//   - A VM that is reclaimed has to be gone when its notice is up. A server that
//     registered by itself and still runs then registers again, as a new VM. Before
//     that it is lent to nobody, started again or not.
//   - Without [Options].Tokens and TLS whoever reaches the control API may call it. A
//     cache server's own control API always asks for what its manager gave out; without
//     [node.Options].ControlTLS, who can listen on its network can learn it.
package manager
