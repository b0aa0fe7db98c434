// Package queue is the common part of queues: operations are enqueued under a tag by one
// goroutine, started together, and polled for when they complete (see device.Queue).
//
//   - Core: a queue whose operations are carried out by the goroutines of a Pool.
//   - Pending: the pending operations of a queue over other queues.
//   - Slices: waiting for one of several queues.
//   - Drain: what Close does first.
package queue
