// Package goroutine tells goroutines apart, so that a call that would wait for its own
// goroutine can be refused.
package goroutine

// Self is a number that no other goroutine has while this one runs, or 0 where the
// processor's port of this package does not tell. It is the address of the runtime's
// descriptor: it is compared and nothing else, and a later goroutine may have it again.
func Self() uint64 { return self() }
