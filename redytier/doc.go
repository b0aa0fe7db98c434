// Package redytier is the Redy client: a cache in the memory of other machines,
// and a storage tier made of it.
//
// A [Cache] is a contiguous space of bytes, cut into regions that live on VMs
// which a manager has found. There are three ways to it:
//
//   - [Cache.Read] and [Cache.Write] take a callback and are safe from any
//     goroutine: the interface of the paper's table 1. The cache's client threads
//     carry them out; a [Client] is a handle that has its calls in order.
//   - A [Session] is one goroutine's queue, and the fast way: enqueue many
//     requests, ring the doorbell once, poll for completions.
//   - A [Device] puts the cache under a log, as a tier of device.Tiered.
//
// Batches of one request (b = 1) read and write the VMs' memory one-sided; larger
// ones travel through message rings and are carried out by server threads.
//
// A cache changes while it is used. Regions move to other VMs where one is
// reclaimed, or by [Cache.Migrate]; lost VMs are replaced; [Cache.Reshape] changes
// capacity and SLO, [Cache.Reconfigure] batches, rings and threads. Requests go on
// meanwhile: they wait for the region that they want at most. [Cache.Regions] and
// [Config].OnEvent tell how it stands.
//
// What bites:
//   - A cache is not storage. When a VM is lost, so is what it held: requests
//     there fail with [ErrRegionUnavailable], or wait ([Config].WaitForLost), until other memory is in its place,
//     which holds what [Config].Recover or File have for it; else zeros, but not
//     before [Config].OnEvent has returned from [DataLost]. [RegionInfo].Epoch counts
//     losses.
//   - A session with requests under way has to be polled: whatever moves waits for
//     them.
//   - A buffer belongs to the cache until its request has ended.
//   - Order holds between requests of one session, or one handle, on overlapping
//     bytes, and elsewhere only where [Session.Barrier] or [Config].StrictOrder
//     make it.
//   - A session belongs to one goroutine, and is to be closed after the cache was
//     deleted as well as before.
package redytier
