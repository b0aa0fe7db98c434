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
// The driver is made to cost little beside a store that answers in tens of
// nanoseconds: a record number takes some of these to draw, keys are eight bytes,
// nothing is allocated per operation, and the clock is read for every 32nd operation
// only, in a closed loop. A [Rig] is one store on several devices. Every value read is checked against its key, so that a
// figure is never one of wrong answers.
//
// The core workloads A to F of YCSB, with its own client and its own output,
// run through package goycsb. A [Stream] is a thread of this package's driver for
// that client, with updates, inserts and read-modify-writes beside reads.
package ycsb
