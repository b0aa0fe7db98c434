// Package cache measures a Redy cache: closed loops of reads and writes of
// one size at random addresses, with c threads that keep b·q requests each under
// way (A15), beside the transport that the cache is built on.
//
// A thread is a session that polls for itself, or an application thread that calls
// a client thread of the cache and is called back. The mean latency is what is in
// flight over the throughput, from the moment at which a request is accepted to
// that at which the thread that asked takes notice of its end.
//
// [Run] compares several caches, alternately. A [Live] is one cache that goes from
// configuration to configuration, as a model is built (figure 9).
package cache
