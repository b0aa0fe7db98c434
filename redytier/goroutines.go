package redytier

import "sync"

// goroutines is a group of goroutines that a deleted cache waits for. None starts after end.
type goroutines struct {
	mu      sync.Mutex // guards ended
	ended   bool
	running sync.WaitGroup
}

// Go returns false if end was called.
func (g *goroutines) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.running.Go(f)
	}
	return !g.ended
}

func (g *goroutines) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.running.Wait()
}
