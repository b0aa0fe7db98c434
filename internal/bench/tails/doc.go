// Package tails measures the latencies of a store in memory while it works in the background.
//
// One thread reads and upserts random records by plain calls at a fixed rate. A latency counts
// from the time at which the operation was due, so that a stall delays the operations behind it,
// too. By default the rate is half of what the same loop does without a pause.
//
// Each slice has a store of its own, which is opened, loaded, measured and removed: what happened
// in one slice leaves nothing for the next. Beside slices with an event there are quiet ones, and
// ones of the machine: the same loop without a store, whose latencies are the machine's own stalls.
package tails
