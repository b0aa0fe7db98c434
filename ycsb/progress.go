package ycsb

// Progress is told how far a measurement is. Begin and End come from one
// goroutine and in turn; Add may come from several at once between them.
type Progress interface {
	// Begin starts a stage that is through when the sum of Add is total.
	Begin(stage string, total int64)
	Add(n int64)
	End()
}

// NoProgress is for who does not want to know.
type NoProgress struct{}

func (NoProgress) Begin(string, int64) {}
func (NoProgress) Add(int64)           {}
func (NoProgress) End()                {}
