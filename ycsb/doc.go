// Package ycsb measures stores: it loads records, reads them from one or more
// threads under the distributions of the YCSB benchmark, and compares devices
// under the same load.
//
// A [Shape] says what a store holds and what it may use; [Open] makes one on a
// named [Device] and returns it as a [Target]; [Load] fills it; [Run] is one
// experiment on it, described by a [Spec], with a [Result] that package report
// prints, draws or writes as JSON lines. [Compare] does all of that for every
// combination of devices, distributions and threads.
//
// The driver costs little compared with a store that answers in tens of nanoseconds:
// drawing a record number takes some nanoseconds, keys have eight bytes, no operation
// allocates, and a closed loop reads the clock for every 32nd operation only. Every value
// read is checked against its key, so that wrong answers are never counted.
//
// Package goycsb runs the core workloads A to F of YCSB with go-ycsb's client and output. A
// [Stream] is a thread of this package's driver for that client, with updates, inserts and
// read-modify-writes as well as reads.
package ycsb
