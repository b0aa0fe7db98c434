//go:build !race

package kv

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch/epochtest"
)

// noMembarrier makes a process of this test binary forbid itself the system call membarrier.
// errForbid is the error if that failed.
const noMembarrier = "REDYKV_TEST_NO_MEMBARRIER"

var errForbid = errors.New("not run without membarrier")

func init() {
	if os.Getenv(noMembarrier) != "" {
		errForbid = epochtest.ForbidMembarrier()
	}
}

// TestWithoutMembarrier runs tests of sessions and marker changes in a process in which
// membarrier fails.
func TestWithoutMembarrier(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run",
		"^(TestOrderedSessions|TestNoTornReads|TestCountersLoseNothing|TestWordCountersBesideEachOther|"+
			"TestRMWWord|TestGrowthUnderEveryOperation|TestDirect.*|TestInspectHealthy)$")
	cmd.Env = append(os.Environ(), noMembarrier+"=1")
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("--- SKIP: TestOrderedSessions")) {
		t.Skipf("%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestOrderedSessions")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestOrderedSessions runs in a process without membarrier. Plain calls go directly to a
// record, but not in assembly.
func TestOrderedSessions(t *testing.T) {
	if errForbid != nil {
		t.Skip(errForbid)
	}
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	for n := range uint64(10) {
		if err := s.Upsert(key8(n), key8(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if p := &s.view; p.wide|p.narrow != 0 || p.direct == 0 || !s.handle.Ordered() {
		t.Errorf("the view has %d, %d, %d, ordered: %v", p.wide, p.narrow, p.direct, s.handle.Ordered())
	}
	add := func(old uint64, _ bool) (uint64, Verdict) { return old + 1, Put }
	for n := range uint64(10) {
		if err := s.RMWWord(key8(n), add); err != nil {
			t.Error(err)
		}
		readBack(s.Read(key8(n), nil)).Want(t, key8(n+2), "key %d", n)
	}
	closeAll(t, s, st)
}
