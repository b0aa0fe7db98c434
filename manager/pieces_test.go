package manager

import (
	"strconv"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// A long loop over the state lets calls in between its values.
func TestPieces(t *testing.T) {
	c := &state{}
	const size = 200_000 // more than the loop gets through before the call is let in
	m := make(map[string]int)
	for i := range size {
		m[strconv.Itoa(i)] = i
	}
	c.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.mu.Lock() // a sync.Mutex is passed on to who has waited for it for a millisecond
		defer c.mu.Unlock()
		clear(m)
	}()
	n := 0
	for range pieces(c, m) {
		if n++; n%100 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	c.mu.Unlock()
	testrun.Receive(t, "the call ends", done)
	if n == size {
		t.Error("a call waited until the end")
	}
}
