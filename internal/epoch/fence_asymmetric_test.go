//go:build linux && amd64 && !race

package epoch

import "testing"

// TestPassedProtectsWithoutMembarrier has the fence made of a page, as in a
// sandbox that forbids the system call.
func TestPassedProtectsWithoutMembarrier(t *testing.T) {
	defer func(had bool) { hasMembarrier = had }(hasMembarrier)
	hasMembarrier = false
	TestPassedProtects(t)
	if fencePage.memory == nil {
		t.Error("no page was protected")
	}
}
