// Package goroutine identifies goroutines, so that a call that would wait for its own
// goroutine can be refused.
package goroutine

// Self is a number that no other goroutine has while this one runs, or 0 on processors that
// the package does not support. It is the address of the runtime's descriptor: it is only
// compared, and a later goroutine may have it again.
func Self() uint64 { return self() }
