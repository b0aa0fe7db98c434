package resp

// poller tells a loop which of its connections have something. All but wake is for the
// loop's own goroutine.
type poller interface {
	// add has it look at a file, remove no more.
	add(fd int) error
	remove(fd int) error
	// wait returns the files that can be read, and whether wake was called, as soon as
	// there is something, or after so many milliseconds; never, if -1. What it returns is
	// good until the next call.
	wait(ms int) (ready []int32, woken bool, err error)
	// waitHeld is wait with the processor held, see raw.go.
	waitHeld(ms int) (ready []int32, woken bool, err error)
	// wake ends a wait, this one or the next.
	wake() error
	close()
}
