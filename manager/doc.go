// Package manager implements Redy's manager: it grants remote memory to caches.
//
// A [Manager] serves the control API (Connect, gRPC and JSON on one port). A client
// allocates a cache and gets grants: VMs, the number of regions that each of them lends,
// and the configuration (c, s, b, q) to use. Watch then tells the client when one of these
// VMs fails or is reclaimed. A cache changes in two steps: Reallocate gives it more grants
// beside those that it has, and Settle names the grants that it keeps; all others are
// released. Data never passes through the manager.
//
// Memory comes from two sources: the pool, which is the cache servers that registered
// themselves, on any host; and an allocator, which launches VMs on demand. A cache gets the
// cheapest VMs of both. If prices are equal, it gets those of the pool. DescribeCache explains
// the choice. Caches are told of VMs that have become cheaper ([Economy]); a [WarmPool] keeps
// VMs ready as targets of migrations. [Embed] runs a manager and an allocator in the calling
// process.
//
// The parts are packages; only prom imports this one:
//
//	api         errors of the control API, HTTP clients and servers
//	access      tokens, roles, credentials, and the client (Dial)
//	catalog     records of VMs and caches, and their stores
//	node        a VM with its cache server: its properties, registration and heartbeats
//	allocator   launches VMs: as processes of this machine, or in this process
//	menu        a simulated cloud: VM types, prices, a market
//	plan        chooses the cheapest VMs
//	model       performance models, and the search for a configuration that meets an SLO
//	prom        metrics in Prometheus's format
//
// Suggested reading order of this package's files:
//
//	manager, options, embed, host      the Manager, its life, and its allocator's view of it
//	service, heartbeat                 the control API's methods, and those that come every few seconds
//	leader, records, writer            a term; the catalog's records and how they are written
//	state, vm, cache, grant            VMs, caches and grants in memory
//	demand, search, reach              what a request asks for, and its configuration
//	place, supply                      the choice of VMs
//	allocate, reallocate, settle       the calls that change grants
//	holder, places, linger             who uses a cache, where its regions are, how long it is kept
//	reconcile, keys                    the steps that are repeated until they are done
//	events, describe, decision         what clients are told
//	lease, alive, slo, silence,        the control loops
//	giveway, savings, warm, audit
//	prediction, rate, price, metrics   what is learnt, and what is counted
//
// Caveats:
//   - An SLO is a prediction: the configuration is the cheapest one that package model
//     finds, unless the request names one. Whether it is met is measured by the cache's client, and
//     a broken SLO is an event; nothing is changed because of it. An SLO without bounds gets
//     [DefaultConfiguration].
//   - A duration is a hint. A cache is not deallocated at its end, unless
//     [Options].EnforceDuration is set. A cache whose client does not renew its lease
//     ([Options].Lease) is deallocated, when it has lingered for the time that the client asked
//     for, at most [Options].MaxLinger. Its memory is paid for meanwhile. Renewals that are refused
//     for their token keep it for [Options].RenewalGrace.
//   - Without [Options].State or Catalog the records are in memory. Such a manager knows no
//     caches after a restart; their clients continue to read and write, and servers register
//     again. With them, a restarted manager restores its caches. allocator.LocalOptions.State lets launched
//     VMs outlive the manager, too. A grant that a server has and the catalog does not is
//     taken back after the longer of Options.Silence and Options.Lease.
//   - A manager that cannot write its catalog stops: Serve returns the error.
//   - The process of a reclaimed VM must end by the deadline. If a server that registered
//     itself still runs then, it registers again as a new VM. Until the deadline its memory
//     is not granted, even if the process restarts.
//   - Without [Options].Tokens and TLS, every process that reaches the control API may call
//     it. A cache server's own control API always requires its manager's secret; without
//     node.Options.ControlTLS that can be read on the network.
package manager
