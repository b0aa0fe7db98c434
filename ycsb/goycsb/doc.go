// Package goycsb runs the workloads of YCSB, as go-ycsb implements them, on a
// redykv store: a [DB] is go-ycsb's database interface over a store of
// variable-length records, and [Execute] loads or runs a workload with go-ycsb's
// own client, property names and output.
//
// Caveats:
//   - A hash index has no order, so scans need an ordered set of all keys: about 100 bytes
//     of Go heap for a key of 20 bytes. A DB keeps the set only if redykv.scan says so or
//     the workload scans. Close stores it with the records.
//   - go-ycsb has data races and reports whole microseconds. To measure, use package ycsb's
//     driver; [WorkloadNative] runs it as a workload of go-ycsb.
//   - With zipfian, go-ycsb may read a key right after the last one, and in workloads with
//     inserts a key that is not inserted yet. A few READ_ERROR lines are therefore normal.
//     Any other error fails Execute.
//   - go-ycsb's read-modify-write is a read and an update, as YCSB defines it. The update is
//     one atomic RMW of the store.
package goycsb
