// Package store measures a kv.Store beside the memory that it lives in.
//
// One run loads one store and measures cells: an operation, a distribution, a
// mode and a number of threads each. Beside them it measures yardsticks, which
// are cells like any other:
//
//   - lines is what the memory allows. Each pass does what an operation cannot do
//     without: it takes the next record number from the same kind of sequence,
//     makes two addresses of it by one multiplication each, prefetches both lines,
//     and, sixteen passes later, loads a word of each. The lines are spread over
//     as many bytes as the store's index and log take, in the same kind of
//     memory. A pass is two lines, so passes per second are lines per second
//     divided by two: the limit of a store that loads a bucket and a record for
//     each operation. The drawing of numbers is in it, as in every cell.
//   - copy is what values of many bytes allow: each pass copies a value's bytes
//     from a random place in that memory, whose first lines were prefetched.
//   - generator is the part of a cell that is not the store: drawing numbers,
//     writing keys and values' ends into operations, checking what was read. It
//     is in the figures of all cells.
//
// Numbers are drawn beforehand, by the generators of package ycsb, into a
// sequence for each thread and distribution that is read from front to back and
// is long enough that no cache holds what it names.
//
// A peer, where one is asked for, gets cells of its own: plain calls, which are all
// that it has.
//
// Cells are measured alternately: every lap gives each cell one short slice, so
// that a noisy neighbour hits all alike. A cell's figure is the median of its calm
// slices: those in which its threads had a processor nearly all the time, or the
// three calmest if that is more. In one slice of each cell a garbage collection is forced, so that
// its share of CPU says what a collection costs, and not that there was none.
package store
