// Package plan chooses the VMs of a cache (6.1 of the paper): from a menu of VM
// types, the servers that are there, and what the cache needs, [Choose] makes the
// cheapest [Plan], and says of everything else why it was not taken. It is pure:
// no clock, no I/O, no state.
//
// A cache is a number of regions of one size, and a configuration for each network
// distance (R25). All its VMs stand at one distance. What a VM can hold of it
// follows from the VM's memory, from its cores, since each VM has at least the
// configuration's ratio of server threads to regions (R26), and, for a spot VM,
// from what can leave it within its notice (R27). See fit.go.
//
// At each distance the cheapest VMs are found exactly, by dynamic programming over
// the number of regions (cover.go, servers.go, best.go): least price; of plans at
// one price the one with the fewest VMs; of those the first in the order of names.
// Where that takes more VMs than a cache may have, over the number of VMs too
// (fewer.go): exactly up to some thousand regions, beyond that a plan that may be
// dearer than it had to be. Where an allocator has room for some memory alone, over the
// memory of the VMs that are launched too (room.go): exactly unless the cheapest such plan
// has too many VMs, or memory and regions have too many steps. A demand is refused only if
// no choice of VMs serves it. The cheapest distance wins; of equal ones that which has to
// launch less; then the nearest.
package plan
