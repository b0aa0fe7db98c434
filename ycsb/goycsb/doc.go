// Package goycsb runs the workloads of YCSB, as go-ycsb implements them, on a
// redykv store: a [DB] is go-ycsb's database interface over a store of
// variable-length records, and [Execute] loads or runs a workload with go-ycsb's
// own client, property names and output.
//
// What bites:
//   - A hash index has no order. A scan needs an ordered set of all keys beside
//     the store: about 100 bytes of Go heap for each key of 20 bytes. It is kept
//     only where redykv.scan says so, or where the workload scans, and is stored
//     with the records when the DB is closed.
//   - go-ycsb has data races of its own and reports whole microseconds. Package
//     ycsb's own driver is the one to measure with: [WorkloadNative] is a workload of
//     go-ycsb's that runs it.
//   - Under zipfian, go-ycsb also draws a key right after the last one, and where
//     a workload inserts, keys that are still to come: a few READ_ERROR lines
//     are its own. Any other error fails Execute.
//   - go-ycsb's read-modify-write is a read and an update, as YCSB defines it;
//     the update is one atomic RMW of the store.
package goycsb
