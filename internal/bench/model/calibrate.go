package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

// How a manager's models are scaled. Each record size is measured in calibrationRounds caches one
// after the other, as two caches in the same configuration differ, and at different times. Of a
// configuration the worse figures of the rounds count.
const (
	calibrationRounds = 2
	calibrationPoint  = 180 * time.Millisecond // of a configuration, reads and writes
	calibrationSlices = 9
	calibrationSpread = 40        // configurations of a record size, as far as the time suffices
	calibrationMost   = 256 << 20 // bytes of the cache
	calibrationLeast  = 16 << 20

	// idleShare is the share of the machine's processors that may be used while nothing is measured.
	idleShare = 0.25
	idleWatch = time.Second
)

// Calibrate measures for a manager: it is a [manager.Calibrator].
func Calibrate(ctx context.Context, self managerv1connect.ManagerServiceClient, job manager.Calibration) ([]model.Sampled, error) {
	if !job.Now {
		if share, known := machine.Busy(ctx, idleWatch); known && share > idleShare {
			return nil, fmt.Errorf("%w: %.0f %% of its processors are used", manager.ErrBusy, 100*share)
		}
	}
	capacity := int64(calibrationMost)
	for job.Memory > 0 && uint64(capacity) > job.Memory {
		capacity /= 2
	}
	if capacity < calibrationLeast {
		return nil, fmt.Errorf("modelbench: %d bytes are free on VM %s: want at least %d", job.Memory, job.VM, calibrationLeast)
	}
	c := calibrating{
		job: job, mgr: onVM{self, job.VM}, found: make(map[sampleKey]model.Sampled),
		how: measuring{Setup{
			Transport: job.Transport, Net: job.Network, Capacity: capacity, Idle: fabricbench.DefaultIdle(job.Transport),
			Slices: calibrationSlices, Log: slog.New(slog.DiscardHandler),
		}, calibrationPoint},
	}
	began := time.Now()
	turns := calibrationRounds * len(job.Bases)
	for turn := range turns {
		until := began.Add(job.Budget * time.Duration(turn+1) / time.Duration(turns))
		if err := c.measure(ctx, job.Bases[turn%len(job.Bases)], until); err != nil && len(c.order) == 0 {
			return nil, err
		} else if err != nil {
			break // what was measured is enough
		}
	}
	var all []model.Sampled
	for _, key := range c.order {
		all = append(all, c.found[key])
	}
	return all, nil
}

// calibrating is one calibration.
type calibrating struct {
	job   manager.Calibration
	how   measuring
	mgr   redytier.Manager
	order []sampleKey
	found map[sampleKey]model.Sampled
}

type sampleKey struct {
	size int
	at   model.Config
}

// measure measures configurations of a base on a cache of their own until a time, those first that
// are farthest apart, and at least one.
func (c *calibrating) measure(ctx context.Context, base *model.Measurement, until time.Time) (err error) {
	first := c.how.live(c.job.Network)
	first.Configuration = configuration(model.Config{C: c.job.ClientThreads, S: c.job.ServerThreads, B: 1, Q: 1})
	first.SLO.RecordSize = base.RecordSize
	l, err := cachebench.OpenLive(ctx, c.mgr, first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, at := range base.Spread(c.job.ClientThreads, c.job.ServerThreads, calibrationSpread) {
		if err := l.Switch(ctx, configuration(at)); err != nil {
			return err
		}
		read, write, err := c.how.measure(ctx, l, base.RecordSize)
		if err != nil {
			return err
		}
		key := sampleKey{base.RecordSize, at}
		before, measured := c.found[key]
		if !measured {
			c.order = append(c.order, key)
			before = model.Sampled{RecordSize: base.RecordSize, At: at, Read: read, Write: write}
		}
		before.Read, before.Write = before.Read.Worse(read), before.Write.Worse(write)
		c.found[key] = before
		if !time.Now().Add(calibrationPoint + calibrationPoint/4).Before(until) {
			return nil
		}
	}
	return nil
}

// onVM allocates caches on one VM.
type onVM struct {
	redytier.Manager
	vm string
}

func (m onVM) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	req.Msg.VmId = m.vm
	return m.Manager.Allocate(ctx, req)
}
