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

// measuring says how builds and checks measure a cache.
type measuring struct {
	transport string
	net       string
	capacity  int64 // bytes
	idle      fabricbench.Idle
	duration  time.Duration // of reads, writes and all repeats, in one round
	repeats   int
	log       *slog.Logger
}

func (s *BuildSpec) measuring() measuring {
	return measuring{s.Transport, s.Net, s.Capacity, s.Idle, s.PerPoint, s.Repeats, s.Log}
}

func (s *CheckSpec) measuring() measuring {
	rounds := max(1, s.Rounds)
	return measuring{s.Transport, s.Net, s.Capacity, s.Idle, s.Duration / time.Duration(rounds), s.Repeats / rounds, s.Log}
}

// DefaultRepeats is the default number of measurements of a configuration. They are short,
// so that some see no other process: polling threads lose a whole time slice to one.
const DefaultRepeats = 27

// MinRepeats is the fewest meaningful repeats (A22).
const MinRepeats = 3

// check returns an error if the spec makes no sense.
func (m measuring) check() error {
	least := time.Duration(m.repeats) * bench.MinDuration
	switch {
	case m.capacity < cachebench.MinCapacity:
		return fmt.Errorf("capacity of %d bytes: want at least %d", m.capacity, cachebench.MinCapacity)
	case m.repeats < MinRepeats:
		return fmt.Errorf("%d repeats: want at least %d", m.repeats, MinRepeats)
	case m.duration < least:
		return fmt.Errorf("a duration of %v for each of them: want at least %v", m.duration, least)
	}
	_, err := fabric.ParseNetwork(m.net)
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
		Transport: m.transport, Net: net, Capacity: m.capacity, Mode: cachebench.Session, Idle: m.idle, Log: m.log,
	}
}

// ops are the operations that are measured.
var ops = []cachebench.Op{cachebench.Read, cachebench.Write}

// measure measures reads and writes in the present configuration.
func (m measuring) measure(ctx context.Context, l *cachebench.Live, recordSize int) (read, write model.Performance, err error) {
	samples, err := l.Measure(ctx, recordSize, ops, m.duration/time.Duration(m.repeats*len(ops)), m.repeats)
	if err != nil {
		return read, write, err
	}
	return performance(samples[0]), performance(samples[1]), nil
}

func performance(s bench.Sample) model.Performance {
	f := s.Figures()
	return model.Performance{LatencyUs: f.MeanUs, Mops: f.Mops}
}
