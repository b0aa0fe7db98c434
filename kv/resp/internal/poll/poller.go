// Package poll serves many TCP connections from one goroutine. A Poller returns those that can
// be read. A Conn moves between that goroutine and its own.
package poll

// Poller waits until one of several files can be read. All methods except Wake must be called
// by the goroutine that waits.
type Poller interface {
	// Add adds a file, Remove removes it.
	Add(fd int) error
	Remove(fd int) error
	// Wait returns the files that can be read, and whether Wake was called. It returns as soon
	// as there is either, and after ms milliseconds at the latest; -1 means no limit. The
	// slice is valid until the next call.
	Wait(ms int) (ready []int32, woken bool, err error)
	// WaitHeld is Wait without releasing the processor, see held.go.
	WaitHeld(ms int) (ready []int32, woken bool, err error)
	// Wake ends the current Wait, or the next one.
	Wake() error
	Close()
}
