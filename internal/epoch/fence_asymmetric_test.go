//go:build linux && amd64 && !race

package epoch

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/epoch/epochtest"
)

// withoutMembarrier has the sessions that join meanwhile enter in order.
func withoutMembarrier(t *testing.T) {
	t.Helper()
	can := canFence
	canFence = func() bool { return false }
	t.Cleanup(func() { canFence = can })
}

// TestWithoutMembarrier has sessions enter in order, as in a sandbox that forbids the
// system call.
func TestWithoutMembarrier(t *testing.T) {
	withoutMembarrier(t)
	if handle := New().Register(); !handle.Ordered() {
		t.Fatal("the session does not enter in order")
	}
	TestPassedProtects(t)
	TestNobodyIsMissed(t)
}

// forbidden says, to a process that this test's binary starts, that it is to forbid itself
// the system call.
const forbidden = "REDYKV_TEST_NO_MEMBARRIER"

// TestMembarrierForbidden has the kernel refuse the system call to a process: there sessions
// enter in order.
func TestMembarrierForbidden(t *testing.T) {
	if os.Getenv(forbidden) != "" {
		if err := epochtest.ForbidMembarrier(); err != nil {
			t.Skip("SKIPPED", err)
		}
		if handle := New().Register(); canFence() || !handle.Ordered() {
			t.Fatal("the session does not enter in order")
		}
		TestPassedProtects(t)
		TestNobodyIsMissed(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMembarrierForbidden$", "-test.v")
	cmd.Env = append(os.Environ(), forbidden+"=1")
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("SKIPPED")) {
		t.Skipf("%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestMembarrierForbidden")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestNobodyIsMissed has a session enter and a mover move at the same moment, over
// and over. Either the mover's look finds the session inside, or the session finds
// the marker moved: a processor that lets the session's look overtake its own
// store, unhindered, breaks that a few times in so many rounds.
func TestNobodyIsMissed(t *testing.T) {
	const rounds = 400_000
	table := New()
	handle := table.Register()
	var marker, turn, entered, over, saw atomic.Uint64
	meet := func(point *atomic.Uint64, round uint64) {
		for spins := 0; point.Load() < round; spins++ {
			if spins > 1000 {
				runtime.Gosched() // the other one may need this processor
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for round := uint64(1); round <= rounds; round++ {
			meet(&turn, round)
			for range round % 16 { // now one of them is first, now the other
				entered.Load()
			}
			handle.Enter()
			saw.Store(marker.Load())
			entered.Store(round)
			meet(&over, round)
			handle.Leave()
		}
	})
	missed := 0
	for round := uint64(1); round <= rounds; round++ {
		turn.Store(round)
		for range round / 16 % 16 {
			entered.Load()
		}
		marker.Store(round)
		passed := table.Passed(table.Bump())
		meet(&entered, round)
		if passed && saw.Load() < round {
			missed++
		}
		over.Store(round)
	}
	wg.Wait()
	handle.Unregister()
	if missed > 0 {
		t.Errorf("in %d of %d rounds the session was inside, unseen, and saw the old marker", missed, rounds)
	}
}
