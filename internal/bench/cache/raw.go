package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
)

// Raw is the transport without Redy, with the address of a serving process of package
// bench/fabric.
type Raw struct {
	Provider fabric.Provider
	Addr     string
}

// rawDepths returns the numbers in flight with which the transport is measured: one, and
// those of the configurations, in batches and in requests.
func rawDepths(s *Spec) []int {
	depths := []int{1}
	for _, v := range s.Variants {
		c := v.Config
		depths = append(depths, c.ClientThreads*c.QueueDepth, c.ClientThreads*s.inFlight(c))
	}
	slices.Sort(depths)
	return slices.Compact(depths)
}

// dial connects for all cells that spec asks for.
func (r *Raw) dial(ctx context.Context, s *Spec) (*fabricbench.Client, error) {
	network, err := fabric.ParseNetwork(s.Net)
	if err != nil {
		return nil, err
	}
	c, err := fabricbench.Dial(ctx, r.Provider, r.Addr, &fabricbench.Spec{
		Model: network.At(0), Sizes: s.Sizes, Depths: rawDepths(s), Idle: s.Idle,
	})
	if err != nil {
		return nil, fmt.Errorf("the transport alone: %w", err)
	}
	return c, nil
}

// rawThread is the transport as the only thread of a cell.
type rawThread struct {
	client *fabricbench.Client
	depth  int
}

func (t rawThread) slice(ctx context.Context, op Op, size int, lasts time.Duration) (bench.Sample, error) {
	return t.client.Slice(ctx, fabricbench.Op(op), size, t.depth, lasts)
}

func (t rawThread) close() error { return nil }
