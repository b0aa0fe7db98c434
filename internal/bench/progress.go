package bench

// Progress shows how far a measurement is. One goroutine calls Begin and End, alternately;
// several may call Add at once in between.
type Progress interface {
	// Begin starts a stage, which is complete when the sum of all Adds is total.
	Begin(stage string, total int64)
	Add(n int64)
	End()
}

// OrQuiet returns p, or a Progress that shows nothing if p is nil.
func OrQuiet(p Progress) Progress {
	if p == nil {
		return quiet{}
	}
	return p
}

type quiet struct{}

func (quiet) Begin(string, int64) {}
func (quiet) Add(int64)           {}
func (quiet) End()                {}
