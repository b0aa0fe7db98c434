package ycsb

// Progress shows how far a measurement is. One goroutine calls Begin and End, alternately;
// several may call Add at once in between.
type Progress interface {
	// Begin starts a stage, which is complete when the sum of all Adds is total.
	Begin(stage string, total int64)
	Add(n int64)
	End()
}
