// Package bench measures. It holds what its sub-packages store, device, fabric, cache and
// model share, and packages paper and ycsb use too: the runner ([Plan]), the meter of a closed
// loop ([Meter]), quantiles, tables and rows of JSON, and a measurement's second process
// ([Child]). Package plot draws charts; peers opens other stores.
//
// A closed loop keeps a fixed number of operations in flight: each completion is followed at
// once by the next operation. So the mean latency is the number in flight over the throughput
// (Little's law), exactly and without a clock. Only percentiles need a clock. It is read for a
// sample of the operations, so rarely that reading it takes at most a fiftieth of the time.
package bench
