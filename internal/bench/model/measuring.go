package model

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/manager/model"
)

// Setup is what builds and checks have in common: the caches that they measure.
type Setup struct {
	Transport string
	Net       string // the network in between at each distance, as redytier.Config.Net
	// Apart says that clients and servers run on different processors of this machine.
	// The caller arranges that with the manager.
	Apart    bool
	Capacity int64 // bytes of each cache
	Idle     fabricbench.Idle
	Slices   int // of a measurement: all count (A22)
	Log      *slog.Logger
	Pending  func([]string) // redytier.Config.Progress
}

// measuring is how a cache is measured.
type measuring struct {
	Setup
	duration time.Duration // of all slices of reads and writes
}

func (s *BuildSpec) measuring() measuring { return measuring{s.Setup, s.PerPoint} }

func (s *CheckSpec) measuring() measuring { return measuring{s.Setup, s.Duration} }

// DefaultSlices is the default number of slices of a measurement: reads and writes take turns
// often, so that other load slows both alike.
const DefaultSlices = 27

// MinSlices is the fewest slices of a measurement.
const MinSlices = 3

// check returns an error if the spec makes no sense.
func (m measuring) check() error {
	least := time.Duration(m.Slices) * bench.MinDuration
	switch {
	case m.Capacity < cachebench.MinCapacity:
		return fmt.Errorf("capacity of %d bytes: want at least %d", m.Capacity, cachebench.MinCapacity)
	case m.Slices < MinSlices:
		return fmt.Errorf("%d slices: want at least %d", m.Slices, MinSlices)
	case m.duration < least:
		return fmt.Errorf("a duration of %v for each of them: want at least %v", m.duration, least)
	}
	_, err := fabric.ParseNetwork(m.Net)
	return err
}

// checkRecord returns an error for sizes that cannot be measured.
func checkRecord(size int) error {
	if size < 1 || size > cachebench.MaxSize {
		return fmt.Errorf("records of %d bytes: want 1 to %d", size, cachebench.MaxSize)
	}
	return nil
}

// live describes a cache behind a network, without configuration or SLO.
func (m measuring) live(net string) cachebench.LiveSpec {
	return cachebench.LiveSpec{
		Transport: m.Transport, Net: net, Capacity: m.Capacity, Mode: cachebench.Session, Idle: m.Idle, Log: m.Log, Pending: m.Pending,
	}
}

// ops are the operations that are measured.
var ops = []cachebench.Op{cachebench.Read, cachebench.Write}

// measure measures reads and writes in the present configuration: means over all slices.
func (m measuring) measure(ctx context.Context, l *cachebench.Live, recordSize int) (read, write model.Performance, err error) {
	samples, err := l.Measure(ctx, recordSize, ops, m.duration/time.Duration(m.Slices*len(ops)), m.Slices)
	if err != nil {
		return read, write, err
	}
	return performance(samples[0]), performance(samples[1]), nil
}

func performance(s bench.Sample) model.Performance {
	f := s.Figures()
	return model.Performance{LatencyUs: f.MeanUs, Mops: f.Mops}
}
