// Package ycsb measures stores. It loads records, reads them from one or more threads with the
// distributions of the YCSB benchmark, and compares devices under the same load.
//
// A [Shape] describes a store's data and memory. [Open] makes a store on a named [Device] and
// returns it as a [Target]; [Load] fills it; [Run] runs one experiment, described by a [Spec],
// and returns a [Result], which package report prints, draws or writes as JSON lines.
// [Compare] does all of that for every combination of devices, distributions and threads.
//
// The driver costs little compared with a store that answers in tens of nanoseconds: drawing a
// record number takes a few nanoseconds, keys have eight bytes, no operation allocates, and a
// closed loop reads the clock only for every 31st operation. Every value read is checked
// against its key, so that wrong answers are never counted.
//
// Package goycsb runs the core workloads A to F of YCSB with go-ycsb's client and output.
// With a [Stream], that client uses a thread of this package's driver, with reads, updates,
// inserts and read-modify-writes.
package ycsb
