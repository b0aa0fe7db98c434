package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

// BuildSpec says what a model measures.
type BuildSpec struct {
	Setup
	Distances   []int         // in switches
	RecordSizes []int         // bytes
	ClientCores int           // C: most client threads
	QueueDepth  int           // Q: most batches in flight on a connection
	Threads     int           // most client and server threads together; 0: any number
	PerPoint    time.Duration // of a configuration: all slices of its reads and writes
}

// Check returns an error if the spec makes no sense.
func (s *BuildSpec) Check() error {
	if err := s.measuring().check(); err != nil {
		return err
	}
	if s.Apart {
		if err := checkApart(s.ClientCores); err != nil {
			return err
		}
	}
	if len(s.Distances) == 0 || len(s.RecordSizes) == 0 {
		return errors.New("no distances or record sizes to measure")
	}
	for _, size := range s.RecordSizes {
		if err := checkRecord(size); err != nil {
			return err
		}
		most := redytier.Configuration{
			ClientThreads: s.ClientCores, ServerThreads: s.ClientCores, BatchSize: model.BatchLimit(size), QueueDepth: s.QueueDepth,
		}
		if err := most.Check(size); err != nil {
			return fmt.Errorf("%d cores, queue depth %d: %w", s.ClientCores, s.QueueDepth, err)
		}
		if n := most.BatchSize * most.QueueDepth; n > redytier.MaxDepth {
			return fmt.Errorf("records of %d bytes: %d pending requests in a session, at most %d", size, n, redytier.MaxDepth)
		}
	}
	for _, m := range s.measurements() {
		if err := m.Check(); err != nil {
			return err
		}
	}
	return nil
}

// network returns the network model of a distance.
func (s *BuildSpec) network(distance int) string {
	n, err := fabric.ParseNetwork(s.Net)
	if err != nil {
		return s.Net // Check has said so
	}
	return n.At(distance).String()
}

// measurements returns the spec's measurements, without points.
func (s *BuildSpec) measurements() []*model.Measurement {
	var all []*model.Measurement
	for _, distance := range s.Distances {
		for _, size := range s.RecordSizes {
			all = append(all, &model.Measurement{
				RecordSize: size, Distance: distance, Network: s.network(distance),
				ClientCores: s.ClientCores, QueueDepth: s.QueueDepth, Threads: s.Threads,
			})
		}
	}
	return all
}

// Provenance returns the provenance of a measurement here and now.
func (s *BuildSpec) Provenance() model.Provenance {
	network := s.Net
	if n, err := fabric.ParseNetwork(s.Net); err == nil {
		network = n.String()
	}
	return model.Provenance{
		Transport: s.Transport, Network: network, Host: model.ThisHost(),
		Date: time.Now().UTC().Truncate(time.Second), Revision: machine.Revision(), Apart: s.Apart,
	}
}

// Build measures the configurations of a spec that the model lacks, on caches in memory that
// mgr finds. It calls save after each configuration, so that a build can be resumed.
// progress may be nil.
func Build(ctx context.Context, mgr redytier.Manager, m *model.Model, spec BuildSpec, save func() error, progress bench.Progress) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("modelbench: %w", err)
	}
	was, is := m.Provenance, spec.Provenance()
	if was.Transport != is.Transport || was.Network != is.Network || !was.Host.Same(is.Host) || was.Apart != is.Apart {
		return fmt.Errorf("modelbench: the model was measured with %v, and this is %v: write a new model with another --out", was, is)
	}
	progress = bench.OrQuiet(progress)
	var all []*model.Measurement
	left := 0
	for _, n := range spec.measurements() {
		n, err := m.Add(n)
		if err != nil {
			return err
		}
		all = append(all, n)
		left += n.Size() - len(n.Points)
	}
	progress.Begin("measure", int64(left))
	defer progress.End()
	for _, n := range all {
		if n.Complete() {
			continue
		}
		if err := buildOne(ctx, mgr, n, &spec, save, progress); err != nil {
			return fmt.Errorf("modelbench: records of %d bytes at distance %d: %w", n.RecordSize, n.Distance, err)
		}
	}
	return nil
}

// buildOne completes a measurement on one cache.
func buildOne(ctx context.Context, mgr redytier.Manager, n *model.Measurement, spec *BuildSpec, save func() error, progress bench.Progress) (err error) {
	how := spec.measuring()
	first := how.live(n.Network)
	first.Configuration = configuration(model.Config{C: spec.ClientCores, S: spec.ClientCores, B: 1, Q: 1})
	first.SLO.RecordSize = n.RecordSize // which bounds batches
	l, err := cachebench.OpenLive(ctx, mgr, first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for known := len(n.Points); ; {
		at, ok := n.Next()
		if !ok {
			progress.Add(int64(len(n.Points) - known))
			return save()
		}
		if err := l.Switch(ctx, configuration(at)); err != nil {
			return err
		}
		read, write, err := how.measure(ctx, l, n.RecordSize)
		if err == nil && n.Doubtful(at, read, write) {
			read, write, err = how.measureAgain(ctx, l, n.RecordSize, read, write)
		}
		if err != nil {
			return err
		}
		if err := n.Report(at, read, write); err != nil {
			return err
		}
		if err := save(); err != nil {
			return err
		}
		progress.Add(int64(len(n.Points) - known))
		known = len(n.Points)
	}
}

// doubtfulTries is the number of measurements of a configuration that seems to gain nothing: a
// neighbour may have taken the processor.
const doubtfulTries = 3

// measureAgain completes the measurements of a configuration whose first one is doubtful, and
// returns the medians of all of them.
func (m measuring) measureAgain(ctx context.Context, l *cachebench.Live, recordSize int, read, write model.Performance) (model.Performance, model.Performance, error) {
	reads, writes := []model.Performance{read}, []model.Performance{write}
	for len(reads) < doubtfulTries {
		read, write, err := m.measure(ctx, l, recordSize)
		if err != nil {
			return read, write, err
		}
		reads, writes = append(reads, read), append(writes, write)
	}
	return median(reads), median(writes), nil
}

func median(all []model.Performance) model.Performance {
	return bench.MedianBy(all, func(p *model.Performance) float64 { return p.Mops })
}

func configuration(c model.Config) redytier.Configuration {
	return redytier.Configuration{ClientThreads: c.C, ServerThreads: c.S, BatchSize: c.B, QueueDepth: c.Q}
}
