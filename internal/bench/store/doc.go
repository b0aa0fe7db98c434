// Package store measures a kv.Store beside the memory that it lives in.
//
// One run loads one store and measures cells: an operation, a distribution, a
// mode and a number of threads each. Beside them it measures yardsticks, which
// are cells like any other:
//
//   - lines is the limit of the memory. Each pass does the least that an operation
//     needs: it takes the next record number from the same kind of sequence,
//     computes two addresses by one multiplication each, prefetches both lines,
//     and, sixteen passes later, loads a word of each. The lines are spread over
//     as many bytes as the store's index and log take, in the same kind of
//     memory. A pass loads two lines, so the passes per second are the limit of a
//     store that loads a bucket and a record for each operation. As in every cell,
//     drawing the numbers is included.
//   - copy is the limit for long values: each pass copies a value's bytes
//     from a random place in that memory, whose first lines were prefetched.
//   - generator is the part of a cell that is not the store: drawing numbers,
//     writing keys and the ends of values into operations, checking values read.
//     It is included in the figures of all cells.
//
// The generators of package ycsb draw the numbers beforehand, into a sequence for each
// thread and distribution. A sequence is long enough that no processor cache holds the
// lines of its records.
//
// A peer has cells with plain calls only.
//
// A cell's figure is that of the slice with the median throughput. In one slice of each cell a
// garbage collection is forced, so that the share of CPU includes its cost.
//
// A read copies a value out of the store and an upsert copies one into it. A read-modify-write
// adds to the first 8 bytes in place, whatever the size of the value: it is not compared with
// copying.
package store
