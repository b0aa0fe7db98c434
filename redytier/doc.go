// Package redytier is the Redy client: a cache in the memory of other machines,
// and a storage tier made of it.
//
// A [Cache] is a contiguous space of bytes, divided into regions that live on VMs chosen by
// a manager. It is used in one of three ways:
//
//   - [Cache.Read] and [Cache.Write] take a callback and are safe from any
//     goroutine: the interface of the paper's table 1. The cache's client threads
//     execute them; a [Client] is a handle that keeps its calls in order.
//   - A [Session] is one goroutine's queue, and the fastest way to use the cache: enqueue
//     many requests, ring the doorbell once, poll for completions.
//   - A [Device] puts the cache under a log, as a tier of device.Tiered.
//
// With b = 1, requests are one-sided accesses to the VMs' memory. Larger batches travel
// through message rings and are executed by server threads.
//
// A cache changes while it is used. Regions move to other VMs when a VM is reclaimed, or by
// [Cache.Migrate]; lost VMs are replaced; [Cache.Reshape] changes capacity and SLO,
// [Cache.Reconfigure] batches, rings and threads. Requests continue meanwhile: a request waits
// only while its own region moves, is lost or changes its connection. [Cache.Regions] and
// [Config].OnEvent report the state.
//
// Caveats:
//   - A cache is not storage. When a VM is lost, its data is lost: requests to it fail with
//     [ErrRegionUnavailable], or wait ([Config].WaitForLost), until the memory is replaced.
//     The new memory holds what [Config].Recover or File provide. Otherwise it is zeros, and
//     is used only after [Config].OnEvent has returned for the event [DataLost].
//     [RegionInfo].Epoch counts losses.
//   - A cache can outlive its client ([Config].Linger, [Cache.Detach]), and another client takes it
//     up ([Config].Attach). The former one gets [ErrTaken] then, if it still runs.
//   - A session with pending requests must be polled: a region that moves waits for them.
//   - A buffer belongs to the cache until its request has ended.
//   - Requests of one session, or one handle, on overlapping bytes are ordered; others only
//     by [Session.Barrier] or [Config].StrictOrder.
//   - A session belongs to one goroutine, and must be closed even if the cache is deleted.
package redytier
