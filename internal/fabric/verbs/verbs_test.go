//go:build verbs && linux && cgo

package verbs_test

import (
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/verbs"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	fabrictest.ServeChild(open) // the child of TestKilledPeer
	testrun.Main(m)
}

func open() fabric.Provider {
	p, err := verbs.Open()
	if err != nil {
		panic(err)
	}
	return p
}

// needsDevice skips a test on a machine without RDMA; scripts/verbs-vm makes a machine with
// it.
func needsDevice(t testing.TB) {
	t.Helper()
	p, err := verbs.Open()
	if err != nil {
		t.Skip(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	needsDevice(t)
	fabrictest.Run(t, open)
}

// TestKilledPeer kills a process that serves requests.
func TestKilledPeer(t *testing.T) {
	needsDevice(t)
	fabrictest.RunKilledPeer(t, open)
}

// TestAllocations checks that operations do not allocate.
func TestAllocations(t *testing.T) {
	needsDevice(t)
	fabrictest.RunAllocations(t, open)
}

// TestChurn connects and disconnects repeatedly.
func TestChurn(t *testing.T) {
	needsDevice(t)
	fabrictest.RunChurn(t, open)
}

func BenchmarkRead(b *testing.B) {
	needsDevice(b)
	fabrictest.Benchmark(b, open)
}
