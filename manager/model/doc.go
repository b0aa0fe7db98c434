// Package model predicts what a cache of a configuration achieves, and finds the
// cheapest configuration that meets an SLO (sections 5.1 and 5.2 of the paper).
//
// A [Config] is a point (c, s, b, q) of a [Space], which table 2 bounds. A [Surface]
// is what was measured of one record size at one network distance: latency and
// throughput at powers of two and at end points, and linear in between. Search
// walks the space as figure 10 does, by s, c, b and q in this order, and returns
// the first configuration that is good enough: no other has fewer server threads.
//
// A [Model] is all that was measured of one transport: a file, with where it comes
// from. A [Builder] decides what to measure next while a model is built (figure 9).
//
// Nothing here measures, and nothing talks to anybody. Latencies are in
// microseconds, the mean of a request; throughputs in millions of requests a second.
package model
