package paper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	modelbench "github.com/redykv/redykv/internal/bench/model"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/ycsb"
)

// SLOs is a trial of a model. It builds the model, draws SLOs within its bounds, and for each
// SLO that can be met creates a cache and measures it (7.3). A round is one SLO.
type SLOs struct {
	Name       string
	RecordSize int
	QueueDepth int // depth of the network card's queues
	Seed       uint64
}

// Series of a trial of SLOs.
const (
	sloSeries    = "SLO"    // what was asked, predicted and measured are its metrics
	searchSeries = "search" // searches of a model as large as the paper's
)

// sloTurns is the number of turns that the SLOs are divided into.
const sloTurns = 5

func (t SLOs) trialName() string { return t.Name }

func (t SLOs) plan(b *Bench) (*plan, error) {
	p := &sloPlan{trial: t, bench: b, build: modelbench.BuildSpec{
		Setup: modelbench.Setup{
			Transport: b.Transport, Net: b.Net, Capacity: b.Capacity, Idle: fabricbench.DefaultIdle(b.Transport), Slices: bench.Rounds, Log: b.Log,
		},
		Distances: []int{1}, RecordSizes: []int{t.RecordSize}, PerPoint: b.PerPoint,
		// The application uses half of the processors.
		ClientCores: max(1, runtime.NumCPU()/2), QueueDepth: t.QueueDepth, Threads: max(2, runtime.NumCPU()),
	}}
	p.build.Apart = modelbench.DefaultApart(p.build.Transport, p.build.Idle, p.build.ClientCores)
	if err := p.build.Check(); err != nil {
		return nil, err
	}
	p.check = modelbench.CheckSpec{
		Setup: p.build.Setup, RecordSize: t.RecordSize, Count: b.SLOs / sloTurns, Margin: manager.DefaultSLOMargin,
		Duration: max(b.PerPoint, bench.Rounds*bench.MinDuration),
	}
	var turns []turn
	for i := range sloTurns {
		turns = append(turns, turn{
			name: fmt.Sprintf("SLOs with seed %d", t.Seed+uint64(i)), series: []string{sloSeries, searchSeries},
			lasts: time.Duration(p.check.Count) * p.check.Duration,
			measure: func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error) {
				return p.measure(ctx, i, progress)
			},
		})
	}
	return &plan{turns: turns, need: need{memory: b.Capacity}}, nil
}

// sloPlan is the state of a trial of SLOs.
type sloPlan struct {
	trial SLOs
	bench *Bench
	build modelbench.BuildSpec
	check modelbench.CheckSpec
}

func (p *sloPlan) measure(ctx context.Context, i int, progress ycsb.Progress) (_ []Measurement, err error) {
	m, err := p.model(ctx, progress)
	if err != nil {
		return nil, err
	}
	mgr, err := p.bench.manager(ctx, cachebench.Servers{Apart: p.build.Apart}, manager.EmbedOptions{Models: []*model.Model{m}, SLOMargin: p.check.Margin})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mgr.Close()) }()
	check := p.check
	check.Seed = p.trial.Seed + uint64(i)
	report, err := modelbench.Check(ctx, mgr, []*model.Model{m}, check, progress)
	if err != nil {
		return nil, err
	}
	var all []Measurement
	for j, row := range report.Rows {
		all = append(all, Measurement{
			Series: sloSeries, Round: i*check.Count + j + 1, Transport: report.Spec.Transport, Net: report.Spec.Net,
			Values: map[string]float64{
				"slo_us": row.SLOLatencyUs, "predicted_us": row.PredictedLatencyUs, "measured_us": row.MeasuredLatencyUs,
				"slo_mops": row.SLOMops, "predicted_mops": row.PredictedMops, "measured_mops": row.MeasuredMops,
				"latency_of_slo": row.MeasuredLatencyUs / row.SLOLatencyUs, "throughput_of_slo": row.MeasuredMops / row.SLOMops,
				"latency_of_predicted": row.MeasuredLatencyUs / row.PredictedLatencyUs, "mops_of_predicted": row.MeasuredMops / row.PredictedMops,
				"latency_kept":    share(row.LatencyKept()),
				"throughput_kept": share(row.ThroughputKept()),
				"client_cores":    float64(row.C), "server_cores": float64(row.S),
				"looked_at": float64(row.Leaves) / float64(report.Leaves),
			},
			Setting: fmt.Sprintf("c,s,b,q = %d,%d,%d,%d of %d configurations, records of %v, margin %g",
				row.C, row.S, row.B, row.Q, report.Leaves, units.Size(check.RecordSize), check.Margin),
		})
	}
	searches, err := timeSearches(check.Seed, i*check.Count, check.Count)
	return append(all, searches...), err
}

// The paper's space of configurations (5.2): 30 cores of a client, records of 8 bytes, a queue
// depth of up to 16.
const (
	paperCores  = 30
	paperRecord = 8
	paperDepth  = 16
)

// timeSearches searches a model of the paper's size, whose performance is invented, for random
// SLOs. The model that is measured here is small, and so is the time to search it.
func timeSearches(seed uint64, after, count int) ([]Measurement, error) {
	m := model.New(model.Provenance{Transport: mem.Name, Network: model.NoNetwork, Host: model.ThisHost()})
	n, err := m.Add(&model.Measurement{RecordSize: paperRecord, Distance: 1, Network: model.NoNetwork, ClientCores: paperCores, QueueDepth: paperDepth})
	if err != nil {
		return nil, err
	}
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		p := invented(at)
		if err := n.Report(at, p, p); err != nil {
			return nil, err
		}
	}
	times, leaves, err := modelbench.TimeSearches([]*model.Model{m}, model.Query{
		RecordSize: paperRecord, Transport: mem.Name, ClientCores: paperCores, Network: func(int) string { return model.NoNetwork },
	}, seed, count)
	if err != nil {
		return nil, err
	}
	var all []Measurement
	for i, us := range times {
		all = append(all, Measurement{
			Series: searchSeries, Round: after + i + 1, Values: map[string]float64{"search_us": us},
			Setting: fmt.Sprintf("INVENTED: %d configurations of a model that was not measured", leaves),
		})
	}
	return all, nil
}

// invented is a performance that grows with every parameter as on a network: a round trip, the
// queue before it, and the batches that a server's thread has to go through.
func invented(at model.Config) model.Performance {
	pending := float64(at.C * at.B * at.Q)
	us := 3 + 0.3*float64(at.Q-1) + 0.01*pending/float64(max(1, at.S))
	return model.Performance{LatencyUs: us, Mops: pending / us}
}

func share(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// model builds the model, or continues an unfinished one.
func (p *sloPlan) model(ctx context.Context, progress ycsb.Progress) (_ *model.Model, err error) {
	path := filepath.Join(p.bench.Dir, p.trial.Name+"-model.json")
	m, err := model.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = model.New(p.build.Provenance()), nil
	}
	if err != nil {
		return nil, err
	}
	mgr, err := p.bench.manager(ctx, cachebench.Servers{Apart: p.build.Apart}, manager.EmbedOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mgr.Close()) }()
	return m, modelbench.Build(ctx, mgr, m, p.build, func() error { return m.Save(path) }, progress)
}
