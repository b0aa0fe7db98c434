// Package poll serves many TCP connections from one goroutine: a Poller tells which
// of them can be read, and a Conn moves between that goroutine and one of its own.
package poll

// Poller waits until one of several files can be read. All methods but Wake belong to
// the goroutine that waits.
type Poller interface {
	// Add adds a file, Remove removes it.
	Add(fd int) error
	Remove(fd int) error
	// Wait returns the files that can be read and whether Wake was called. It returns as
	// soon as there is either, at the latest after ms milliseconds; -1 is no limit. The
	// slice is valid until the next call.
	Wait(ms int) (ready []int32, woken bool, err error)
	// WaitHeld is Wait that keeps the processor, see held.go.
	WaitHeld(ms int) (ready []int32, woken bool, err error)
	// Wake ends the present Wait, or the next one.
	Wake() error
	Close()
}
