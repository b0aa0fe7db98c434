package model

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/machine"
)

// Conditions are what the machine gives, whatever Redy does with it.
type Conditions struct {
	// RawMops is the throughput of the transport alone: one thread reads records of the other side's
	// memory.
	RawMops float64 `json:"raw_mops"`
	// Processors is how many of them threads have that never wait. Other processes, and a hypervisor,
	// take from it. 0: not known.
	Processors float64 `json:"processors"`
}

// fallen reports whether a figure is lower than it was by more than a share.
func fallen(now, was, share float64) bool { return now < was*(1-share) }

// between is the mean of two Conditions.
func (c Conditions) between(other Conditions) Conditions {
	return Conditions{(c.RawMops + other.RawMops) / 2, (c.Processors + other.Processors) / 2}
}

const (
	yardDepth  = 16 // reads in flight
	yardSlice  = 20 * time.Millisecond
	yardSlices = 5 // of the transport; the median counts
	yardSpin   = 50 * time.Millisecond
)

// yardstick measures Conditions. Its other side is in this process.
type yardstick struct {
	spec     fabricbench.Spec
	provider fabric.Provider
	addr     string
	stop     func() error
}

// newYardstick returns the yardstick for caches of a spec. The caller closes it.
func newYardstick(ctx context.Context, s *CheckSpec) (*yardstick, error) {
	network, err := fabric.ParseNetwork(s.Net)
	if err != nil {
		return nil, err
	}
	y := &yardstick{spec: fabricbench.Spec{Model: network.At(1), Sizes: []int{s.RecordSize}, Depths: []int{yardDepth}, Idle: s.Idle}}
	if y.provider, err = transport.Open(s.Transport); err != nil {
		return nil, err
	}
	if y.addr, y.stop, err = fabricbench.ServeHere(ctx, y.provider, cachebench.MinCapacity); err != nil {
		return nil, errors.Join(err, y.provider.Close())
	}
	return y, nil
}

func (y *yardstick) close() error { return errors.Join(y.stop(), y.provider.Close()) }

// measure measures while no cache is there. Between its calls it has no connection, whose other side
// would take a processor.
func (y *yardstick) measure(ctx context.Context) (c Conditions, err error) {
	c.Processors = processors(yardSpin)
	client, err := fabricbench.Dial(ctx, y.provider, y.addr, &y.spec)
	defer func() {
		if client != nil {
			err = errors.Join(err, client.Close())
		}
	}()
	if err != nil {
		return c, fmt.Errorf("the transport alone: %w", err)
	}
	var mops []float64
	for i := range 1 + yardSlices {
		s, err := client.Slice(ctx, fabricbench.Read, y.spec.Sizes[0], yardDepth, yardSlice)
		if err != nil {
			return c, fmt.Errorf("the transport alone: %w", err)
		}
		if i > 0 { // the first one warms up
			mops = append(mops, s.Figures().Mops)
		}
	}
	c.RawMops = bench.Median(mops)
	return c, nil
}

// processors keeps as many threads busy as there are processors, and returns how many processors they
// had.
func processors(lasts time.Duration) (had float64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			began, used := time.Now(), machine.ThreadCPU()
			for time.Since(began) < lasts {
			}
			share := float64(machine.ThreadCPU()-used) / float64(time.Since(began))
			mu.Lock()
			defer mu.Unlock()
			had += share
		})
	}
	all.Wait()
	return had
}
