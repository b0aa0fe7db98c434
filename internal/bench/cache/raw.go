package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
)

// Raw is the transport without Redy, with the address of a serving process of package
// bench/fabric. That process lends [Spec.RawMemory] to each of its peers.
type Raw struct {
	Provider fabric.Provider
	Addr     string
}

// rawLoad is a load of the transport alone: threads with a queue pair each, and the number of
// operations that each of them keeps in flight.
type rawLoad struct{ threads, depth int }

// rawLoads returns the loads with which the transport is measured: one operation of one thread,
// and as many threads as each configuration has, with as many operations as each of its client
// threads has batches, and requests, in flight. So the transport has as many queue pairs as the
// cache: a network bounds what each of them has outstanding.
func rawLoads(s *Spec) []rawLoad {
	loads := []rawLoad{{1, 1}}
	for _, v := range s.Variants {
		c := v.Config
		loads = append(loads, rawLoad{c.ClientThreads, c.QueueDepth}, rawLoad{c.ClientThreads, s.inFlight(c)})
	}
	slices.SortFunc(loads, func(a, b rawLoad) int {
		return cmp.Or(cmp.Compare(a.threads, b.threads), cmp.Compare(a.depth, b.depth))
	})
	return slices.Compact(loads)
}

// rawThreads returns the largest number of threads of the transport alone.
func (s *Spec) rawThreads() int {
	most := 1
	for _, v := range s.Variants {
		most = max(most, v.Config.ClientThreads)
	}
	return most
}

// RawMemory returns the bytes that the transport's other side lends to each thread. All threads
// together have as much as a cache.
func (s *Spec) RawMemory() int { return max(int(s.Capacity)/s.rawThreads(), MinCapacity) }

// dial connects the threads that spec asks for. The caller closes them, even with an error.
func (r *Raw) dial(ctx context.Context, s *Spec) (threads []*fabricbench.Client, err error) {
	network, err := fabric.ParseNetwork(s.Net)
	if err != nil {
		return nil, err
	}
	most := 0
	for _, l := range rawLoads(s) {
		most = max(most, l.depth)
	}
	for range s.rawThreads() {
		c, err := fabricbench.Dial(ctx, r.Provider, r.Addr, &fabricbench.Spec{
			Model: network.At(0), Sizes: s.Sizes, Depths: []int{most}, Idle: s.Idle,
		})
		if err != nil {
			return threads, fmt.Errorf("the transport alone: %w", err)
		}
		threads = append(threads, c)
	}
	return threads, nil
}

// rawThread is a thread of the transport alone.
type rawThread struct {
	client *fabricbench.Client
	depth  int
}

func (t rawThread) slice(ctx context.Context, op Op, size int, lasts time.Duration) (bench.Sample, error) {
	return t.client.Slice(ctx, fabricbench.Op(op), size, t.depth, lasts)
}

func (t rawThread) close() error { return nil } // several cells share the client, which Run closes
