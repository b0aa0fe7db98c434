// Package model predicts the performance of a cache's configuration, and finds the cheapest
// configuration that meets an SLO (sections 5.1 and 5.2 of the paper).
//
// A [Config] is a point (c, s, b, q) of a [Space], which table 2 bounds. A [Surface] holds
// the measurements of one record size at one network distance: latency and throughput at
// powers of two and at end points, interpolated linearly. Search walks the space as in
// figure 10, by s, c, b and q in this order, and returns the first configuration that meets
// the SLO: no other has fewer server threads.
//
// A [Model] is a file of all measurements of one transport, with their provenance. While a
// model is built, a [Measurement] decides what to measure next (figure 9).
//
// The package itself measures nothing and does no network I/O. Latencies are the mean of a
// request, in microseconds; throughputs are in millions of requests a second.
package model
