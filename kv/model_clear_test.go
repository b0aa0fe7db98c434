package kv

import (
	"context"
	"fmt"
	"slices"
)

// modelClear is a Clear without concurrent operations.
type modelClear struct {
	after []uint64 // number of operations passed to each session before
	acked bool     // it survives a crash
}

// clear clears the store.
func (p *player) clear() error {
	if err := p.st.Clear(context.Background()); err != nil {
		return err
	}
	touched := map[uint64]bool{}
	for n := range p.keys + p.counters {
		touched[n] = true
	}
	p.cursor.touch(touched)
	p.clears = append(p.clears, modelClear{after: p.serials()})
	for _, ms := range p.sessions {
		ms.state = modelState{}
	}
	return p.verify()
}

// sinceClear returns the session's history since the last Clear.
func (p *player) sinceClear(ms *modelSession) []modelEntry {
	if len(p.clears) == 0 {
		return ms.history
	}
	i := slices.Index(p.sessions, ms)
	return ms.history[p.clears[len(p.clears)-1].after[i]:]
}

// ackClears marks all Clears as durable, for a commit that began after them.
func (p *player) ackClears() {
	for i := range p.clears {
		p.clears[i].acked = true
	}
}

// doubtClears marks all Clears as uncertain, for a recovery to an older state.
func (p *player) doubtClears() {
	for i := range p.clears {
		p.clears[i].acked = false
	}
}

// recoverClears determines which Clears the store has kept; its sessions have just been opened.
// A Clear was kept if a recovered operation is after it, and lost if an operation before it is
// missing. If each session has exactly the operations before it, it was kept if there are no
// keys.
func (p *player) recoverClears() error {
	for i, c := range p.clears {
		before, behind := false, false
		for j, ms := range p.sessions {
			have := uint64(len(ms.history))
			before = before || have < c.after[j]
			behind = behind || have > c.after[j]
		}
		if before && behind {
			return fmt.Errorf("some sessions are back to before a Clear at %v, others beyond it", c.after)
		}
		lost := before
		if !before && !behind {
			empty, err := p.empty()
			if err != nil {
				return err
			}
			lost = !empty
		}
		if lost && c.acked {
			return fmt.Errorf("a Clear at %v is lost that was acknowledged", c.after)
		}
		if lost {
			p.clears = p.clears[:i]
			return nil
		}
		p.clears[i].acked = true
	}
	return nil
}

// empty reports whether a scan finds nothing.
func (p *player) empty() (bool, error) {
	for _, err := range p.st.Scan() {
		return false, err
	}
	return true, nil
}
