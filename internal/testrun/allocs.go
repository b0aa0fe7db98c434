package testrun

import "testing"

// AllocsPerRun is testing.AllocsPerRun, the least of up to three. It counts the whole process, in which
// other goroutines allocate too.
func AllocsPerRun(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for n := 1; n < 3 && least > 0; n++ {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
