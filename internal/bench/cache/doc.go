// Package cache measures a Redy cache, and the transport below it: closed loops of reads and
// writes of one size at random addresses, with c threads that keep b·q requests each in
// flight (A15).
//
// A thread is a session that is polled, or an application thread that calls a client thread
// of the cache and is called back. The mean latency is the number in flight over the
// throughput. It counts from the acceptance of a request until its thread has seen the
// completion.
//
// [Run] compares several caches, alternately. A [Live] is one cache that is measured in one
// configuration after another, as for a model (figure 9).
package cache
