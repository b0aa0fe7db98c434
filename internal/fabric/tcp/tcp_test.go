package tcp_test

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	fabrictest.ServeChild(open) // the child of TestKilledPeer and TestSilentPeer
	testrun.Main(m)
}

func open() fabric.Provider { return tcp.Open(tcp.Options{}) }

func TestConformance(t *testing.T) { fabrictest.Run(t, open) }

// TestKilledPeer kills a process that serves requests.
func TestKilledPeer(t *testing.T) { fabrictest.RunKilledPeer(t, open) }

// TestSilentPeer stops a process whose kernel still acknowledges.
func TestSilentPeer(t *testing.T) {
	fabrictest.RunSilentPeer(t, func() fabric.Provider { return tcp.Open(tcp.Options{Silence: 5 * time.Second}) })
}

// TestCrowd opens many sockets that send nothing.
func TestCrowd(t *testing.T) { fabrictest.RunCrowd(t, open, "tcp") }

// TestUnanswered closes a provider that has not answered its peers.
func TestUnanswered(t *testing.T) { fabrictest.RunUnanswered(t, open) }

// TestSparse checks that little memory backs a region of which little is written.
func TestSparse(t *testing.T) {
	fabrictest.RunSparse(t, func() fabric.Provider { return tcp.Open(tcp.Options{Sparse: true}) })
}

// TestAllocations checks that operations do not allocate.
func TestAllocations(t *testing.T) { fabrictest.RunAllocations(t, open) }

// TestChurn connects and disconnects thousands of times.
func TestChurn(t *testing.T) { fabrictest.RunChurn(t, open) }

func BenchmarkRead(b *testing.B) { fabrictest.Benchmark(b, open) }
