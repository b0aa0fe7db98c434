package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
)

// Run loads a store, and kills and starts it: warm and cold in turn.
func Run(ctx context.Context, s Spec, progress bench.Progress) (*Report, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("restartbench: %w", err)
	}
	if err := machine.Room(s.Dir, int64(min(float64(s.Memory)*float64(s.Times), 1<<62))); err != nil {
		return nil, fmt.Errorf("restartbench: %w", err)
	}
	progress = bench.OrQuiet(progress)
	progress.Begin("load and restart", int64(1+2*s.Rounds))
	defer progress.End()
	child, before, err := s.live(ctx, New, 0)
	if err != nil {
		return nil, err
	}
	defer func() { child.Kill() }()
	report := new(Report)
	for round := range s.Rounds {
		for _, start := range []Start{Warm, Cold} {
			progress.Add(1)
			child.Kill()
			if start == Cold {
				if err := Forget(ctx, s.Dir, s.Manager); err != nil {
					return nil, fmt.Errorf("restartbench: end of the cache: %w", err)
				}
			}
			next, result, err := s.live(ctx, start, before.Mops)
			if err != nil {
				return nil, fmt.Errorf("restartbench: round %d: %w", round, err)
			}
			child = next
			report.Rows = append(report.Rows, Row{
				Start: start, Round: round, Transport: s.Transport, Memory: s.Memory, Times: s.Times, ValueSize: s.ValueSize, Depth: s.Depth,
				SecondsTo90: result.To90, OpenedS: result.Opened, HitRedy: result.HitRedy,
				BeforeMops: before.Mops, SampleS: sampleTime.Seconds(), Series: result.Series,
			})
			before = result
		}
	}
	progress.Add(1)
	return report, nil
}

// live starts a process and waits for its result. The process goes on reading.
func (s *Spec) live(ctx context.Context, start Start, target float64) (*bench.Child, Result, error) {
	var r Result
	child, err := s.Start(ctx, Life{
		Start: start, Dir: s.Dir, Manager: s.Manager, Transport: s.Transport, Memory: s.Memory, Cache: s.cache(),
		Records: s.records(), ValueSize: s.ValueSize, Depth: s.Depth, Target: target, Before: s.Before, Patience: s.Patience,
	})
	if err != nil {
		return nil, r, fmt.Errorf("%s start: %w", start, err)
	}
	if err := json.Unmarshal([]byte(child.Ready), &r); err != nil {
		return nil, r, errors.Join(fmt.Errorf("%s start: result %q: %w", start, child.Ready, err), child.Close())
	}
	return child, r, nil
}
