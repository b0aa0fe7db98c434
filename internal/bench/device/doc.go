// Package device measures devices of package device: one queue, one goroutine, a number of
// operations in flight; random reads, and writes at the end of a log that is truncated
// meanwhile.
//
// A device that keeps files is measured alternately with fio, which reads the same
// file, or writes one like it, past the page cache through io_uring.
package device
