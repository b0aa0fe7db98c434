package kv

import (
	"context"
	"fmt"
	"slices"
)

// modelClear is a Clear, while nothing else went on.
type modelClear struct {
	after []uint64 // operations that each session had been given
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

// sinceClear is the session's history since the last Clear.
func (p *player) sinceClear(ms *modelSession) []modelEntry {
	if len(p.clears) == 0 {
		return ms.history
	}
	i := slices.Index(p.sessions, ms)
	return ms.history[p.clears[len(p.clears)-1].after[i]:]
}

// ackClears is for a commit that began after them all.
func (p *player) ackClears() {
	for i := range p.clears {
		p.clears[i].acked = true
	}
}

// doubtClears is for a recovery to an older state, of which Clears may be no part.
func (p *player) doubtClears() {
	for i := range p.clears {
		p.clears[i].acked = false
	}
}

// recoverClears finds out which Clears the store has kept, whose sessions have just been
// opened: those before an operation that is there. If all that is there comes before a
// Clear and nothing after it, both may be: then there are no keys at all, or it is lost.
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

// empty says whether a scan finds nothing.
func (p *player) empty() (bool, error) {
	for _, err := range p.st.Scan() {
		return false, err
	}
	return true, nil
}
