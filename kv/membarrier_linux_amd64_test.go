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

// noMembarrier says, to a process that this test's binary starts, that it is to forbid itself
// the system call: why that failed, errForbid says.
const noMembarrier = "REDYKV_TEST_NO_MEMBARRIER"

var errForbid = errors.New("nobody asked for it")

func init() {
	if os.Getenv(noMembarrier) != "" {
		errForbid = epochtest.ForbidMembarrier()
	}
}

// TestWithoutMembarrier has a process that the kernel refuses membarrier run tests of many
// sessions beside changes of markers.
func TestWithoutMembarrier(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run",
		"^(TestOrderedSessions|TestNoTornReads|TestCountersLoseNothing|TestWordCountersBesideEachOther|"+
			"TestRMWWord|TestGrowthUnderEveryOperation|TestStraight.*|TestInspectHealthy)$")
	cmd.Env = append(os.Environ(), noMembarrier+"=1")
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("--- SKIP: TestOrderedSessions")) {
		t.Skipf("%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestOrderedSessions")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestOrderedSessions is for a process without membarrier: plain calls go straight, but not
// by assembly.
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
		t.Errorf("the probe says %d, %d, %d, ordered: %v", p.wide, p.narrow, p.direct, s.handle.Ordered())
	}
	add := func(old uint64, _ bool) (uint64, Verdict) { return old + 1, Put }
	for n := range uint64(10) {
		if err := s.RMWWord(key8(n), add); err != nil {
			t.Error(err)
		}
		if v, err := s.Read(key8(n), nil); err != nil || string(v) != string(key8(n+2)) {
			t.Errorf("key %d: %x, %v", n, v, err)
		}
	}
	closeAll(t, s, st)
}
