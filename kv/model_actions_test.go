package kv

import (
	"context"
	"fmt"
	"slices"
)

// act plays an action. begun are the sessions' numbers before the step.
func (p *player) act(action string, argument int64, begun []uint64, touched map[uint64]bool) error {
	ctx := context.Background()
	switch action {
	case "commit":
		if err := p.st.Commit(ctx); err != nil {
			return err
		}
		points, err := p.acknowledge(begun)
		if err != nil {
			return err
		}
		if p.automatic() { // an automatic checkpoint may have made more durable
			for i, ms := range p.sessions {
				points[ms.name] = CommitPoint{Until: begun[i], Excluding: points[ms.name].Excluding}
			}
		}
		p.committed = points
		return nil
	case "foldover":
		return p.checkpoint(FoldOver, argument, begun)
	case "snapshot":
		return p.checkpoint(Snapshot, argument, begun)
	case "incremental":
		return p.checkpoint(Incremental, argument, begun)
	case "index":
		return p.checkpoint(Index, argument, begun)
	case "drop":
		return p.dropCheckpoint(argument)
	case "lookup", "scan":
		return p.compact(action, argument)
	case "grow":
		if p.st.Metrics().Index.Bytes > 1<<20 {
			return nil
		}
		return p.st.GrowIndex(ctx)
	case "memory":
		return p.setMemory(argument)
	case "iterate":
		return p.iterate(touched)
	}
	return fmt.Errorf("what is %q?", action)
}

// acknowledge records the operations that a successful commit covers: at least all that were
// passed to sessions before it began.
func (p *player) acknowledge(begun []uint64) (map[string]CommitPoint, error) {
	points := map[string]CommitPoint{}
	for i, ms := range p.sessions {
		point, ok := p.st.CommitPoint(ms.name)
		if !ok || point.Until < begun[i] {
			return nil, fmt.Errorf("%s was committed up to %d (known %v), it had been given %d operations", ms.name, point.Until, ok, begun[i])
		}
		ms.acked = point
		points[ms.name] = point
	}
	p.ackClears()
	return points, nil
}

func (p *player) checkpoint(kind CheckpointKind, argument int64, begun []uint64) error {
	info, err := p.st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind, LogOnly: argument%3 == 0})
	if err != nil || kind == Index {
		return err
	}
	if p.automatic() { // an automatic commit may have made more durable
		_, err := p.acknowledge(begun)
		return err
	}
	p.points[info.Name], err = p.acknowledge(begun)
	all := p.st.Checkpoints()
	if err == nil && (len(all) == 0 || all[len(all)-1].Sequence != info.Sequence) {
		err = fmt.Errorf("made %v, kept %v", info, all)
	}
	return err
}

// dropCheckpoint removes a checkpoint, unless another one extends it.
func (p *player) dropCheckpoint(argument int64) error {
	all := p.st.Checkpoints()
	if len(all) == 0 {
		return nil
	}
	info := all[argument%int64(len(all))]
	needed := slices.ContainsFunc(all, func(c CheckpointInfo) bool { return c.Base == info.Name })
	err := p.st.RemoveCheckpoint(context.Background(), info.Name)
	if p.automatic() {
		return nil // the kept checkpoints have changed
	}
	if needed && err == nil {
		return fmt.Errorf("removed %v, on which another one stands", info)
	}
	if needed {
		return nil
	}
	return err
}

func (p *player) compact(method string, argument int64) error {
	opts := CompactOptions{Method: CompactByLookup, Memory: 1 + argument*50}
	if method == "scan" {
		opts.Method = CompactByScan
	}
	if argument%4 != 0 {
		m := p.st.Metrics()
		opts.Bytes = 1 + (m.Log.Tail-m.Log.Begin)*(argument%100)/100
	}
	_, err := p.st.Compact(context.Background(), opts)
	return err
}

func (p *player) setMemory(argument int64) error {
	memory := p.memory(argument)
	if err := p.st.SetMemory(context.Background(), memory); err != nil {
		return err
	}
	if m := p.st.Metrics(); m.Log.MemoryBudget+m.ReadCache.Budget > memory {
		return fmt.Errorf("memory of %d:\n%v", memory, m)
	}
	return nil
}
