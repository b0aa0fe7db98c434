package mem_test

import (
	"testing"

	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

func TestConformance(t *testing.T) { fabrictest.Run(t, mem.Open) }

// TestSparse checks that little memory backs a region of which little is written.
func TestSparse(t *testing.T) { fabrictest.RunSparse(t, mem.OpenSparse) }

// TestAllocations checks that operations do not allocate.
func TestAllocations(t *testing.T) { fabrictest.RunAllocations(t, mem.Open) }

// TestChurn connects and disconnects thousands of times.
func TestChurn(t *testing.T) { fabrictest.RunChurn(t, mem.Open) }

func BenchmarkRead(b *testing.B) { fabrictest.Benchmark(b, mem.Open) }
