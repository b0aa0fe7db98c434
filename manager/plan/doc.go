// Package plan chooses the VMs of a cache (6.1 of the paper). [Choose] takes a menu of VM
// types, the registered servers and a cache's demand; it returns the cheapest [Plan], and
// the reason why other candidates were not taken. It uses no clock, no I/O and no state.
//
// A cache has a number of regions of one size, and a configuration for each network
// distance (R25). All its VMs are at one distance. How many regions a VM holds depends on
// its memory; on its cores, since each VM has at least the configuration's ratio of server
// threads to regions (R26); and, for a spot VM, on how much can be migrated within its
// notice (R27). See fit.go.
//
// At each distance the cheapest VMs are found exactly, by dynamic programming over the
// number of regions (cover.go, servers.go, best.go). Plans are ordered by price, then by
// the number of VMs, then by name. If the cheapest plan has more VMs than a cache may have,
// the table gets the number of VMs as a second dimension (fewer.go): exact up to some
// thousand regions, approximate beyond. If the allocator's memory is limited, the table
// gets the memory of the launched VMs as a second dimension (room.go): exact unless that
// plan has too many VMs or the table is too large. A demand is refused only if no choice of
// VMs serves it. The cheapest distance wins; then the one with fewer VMs to launch; then
// the nearest.
//
// A [Pool] indexes many servers (tree.go). It finds the few among which a plan is as good
// as among all of them (sweep.go).
package plan
