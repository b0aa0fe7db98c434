// Package bench is what the commands that measure queues of remote memory share:
// the other side as a process of its own, a meter for closed loops, cells
// measured turn by turn, and rows as a table and as JSON lines.
//
// A closed loop keeps a number of operations in flight: each completion is
// followed at once by the next operation. So the mean latency is the number in
// flight over the throughput (Little's law), exactly and without a clock; only
// percentiles need one, and it is read for a sample of the operations, so rarely
// that reading it takes a fiftieth of the time at most.
package bench
