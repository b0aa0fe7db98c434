//go:build linux

package shm_test

import (
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	fabrictest.ServeChild(open) // the child of TestKilledPeer
	borrow()                    // that of TestFenceOfABorrower
	testrun.Main(m)
}

func open() fabric.Provider {
	p, err := shm.Open()
	if err != nil {
		panic(err)
	}
	return p
}

func TestConformance(t *testing.T) { fabrictest.Run(t, open) }

// TestSparse checks that little memory backs a region of which little is written.
func TestSparse(t *testing.T) {
	fabrictest.RunSparse(t, func() fabric.Provider {
		p, err := shm.OpenSparse()
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// TestKilledPeer kills a process that serves requests.
func TestKilledPeer(t *testing.T) { fabrictest.RunKilledPeer(t, open) }

// TestCrowd opens many sockets that send nothing.
func TestCrowd(t *testing.T) { fabrictest.RunCrowd(t, open, "unixpacket") }

// TestUnanswered closes a provider that has not answered its peers.
func TestUnanswered(t *testing.T) { fabrictest.RunUnanswered(t, open) }

// TestAllocations checks that operations do not allocate.
func TestAllocations(t *testing.T) { fabrictest.RunAllocations(t, open) }

// TestChurn connects and disconnects thousands of times.
func TestChurn(t *testing.T) { fabrictest.RunChurn(t, open) }

func BenchmarkRead(b *testing.B) { fabrictest.Benchmark(b, open) }
