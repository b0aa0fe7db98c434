// Package manager measures a manager: a process of its own with its catalog, and cache
// servers and clients that this process plays over loopback. Servers have a control API, but
// no memory; clients allocate caches of one region, renew their leases and watch their VMs,
// but move no data.
package manager
