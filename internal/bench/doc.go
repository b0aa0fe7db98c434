// Package bench measures. This package has what its sub-packages store, device, fabric,
// cache and model share, and packages paper and ycsb use too: the runner ([Plan]), the meter
// of a closed loop ([Meter]), quantiles, tables and rows of JSON, and the other side of a
// measurement as a process ([Child]). Package plot draws charts; peers has other stores.
// A new measurement is a sub-package with a Plan; cmd/redykv/bench.go has its command.
//
// A closed loop keeps a number of operations in flight: each completion is followed at once
// by the next operation. So the mean latency is the number in flight over the throughput
// (Little's law), exactly and without a clock. Only percentiles need a clock. It is read for
// a sample of the operations, so rarely that reading it takes at most a fiftieth of the time.
package bench
