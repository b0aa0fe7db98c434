package ycsb

// Progress shows the progress of a measurement. One goroutine calls Begin and End alternately;
// several may call Add in between.
type Progress interface {
	// Begin starts a stage. It is complete when the sum of all Adds is total.
	Begin(stage string, total int64)
	Add(n int64)
	End()
}
