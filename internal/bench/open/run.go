package open

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
)

// Run loads a store, and ends and opens it.
func Run(ctx context.Context, s Spec, progress bench.Progress) (*Report, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("openbench: %w", err)
	}
	if err := machine.Room(s.Dir, int64(min(s.files(), 1<<62))); err != nil {
		return nil, fmt.Errorf("openbench: %w", err)
	}
	progress = bench.OrQuiet(progress)
	progress.Begin("load and open", int64(len(s.Endings)*(1+s.Rounds)))
	defer progress.End()
	report := &Report{Machine: machine.Describe(), Spec: s}
	for i, ending := range s.Endings {
		if _, err := s.live(ctx, i == 0, ending); err != nil {
			return nil, fmt.Errorf("openbench: before %s: %w", ending, err)
		}
		progress.Add(1)
		for round := range s.Rounds {
			if err := forget(s.Dir); err != nil {
				return nil, fmt.Errorf("openbench: %w", err)
			}
			result, err := s.live(ctx, false, "")
			if err == nil {
				err = result.check(ending)
			}
			if err != nil {
				return nil, fmt.Errorf("openbench: after %s: %w", ending, err)
			}
			rate, err := diskRate(ctx, s.Dir, result.Bytes)
			if err != nil {
				return nil, fmt.Errorf("openbench: the disk alone: %w", err)
			}
			report.Rows = append(report.Rows, newRow(&s, ending, round, result, rate))
			progress.Add(1)
		}
	}
	return report, nil
}

// live lets a process open the store, and do what comes before an ending, and kills it.
func (s *Spec) live(ctx context.Context, load bool, ending Ending) (r Result, err error) {
	child, err := s.Start(ctx, Life{Dir: s.Dir, Load: load, Ending: ending, Records: s.Records, ValueSize: s.ValueSize, Memory: s.Memory})
	if err != nil {
		return r, err
	}
	child.Kill()
	if err := json.Unmarshal([]byte(child.Ready), &r); err != nil {
		return r, fmt.Errorf("result %q: %w", child.Ready, err)
	}
	return r, nil
}
