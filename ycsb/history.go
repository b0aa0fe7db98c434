package ycsb

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/redytier"
)

// history holds the events of a target's tiers since it was opened. Any goroutine may report
// events.
type history struct {
	mu     sync.Mutex // guards events
	events []pastEvent
}

type pastEvent struct {
	at time.Time
	device.TierEvent
}

// add implements device.TieredOptions.OnEvent.
func (h *history) add(e device.TierEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, pastEvent{time.Now(), e})
}

// memory is the OnEvent of a cache as the first tier. Such a tier stays in the set when it
// loses memory.
func (h *history) memory(e redytier.Event) {
	switch e.Kind {
	case redytier.VMLost:
		h.add(device.TierEvent{Name: string(Redy), Err: e.Err})
	case redytier.Restored:
		h.add(device.TierEvent{Name: string(Redy)})
	}
}

// note describes the events between two times, with seconds since the first, and the tiers
// that were out of use before. next names the tier that reads fall back to when the given one
// has failed.
func (h *history) note(from, to time.Time, next func(tier int) string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var parts []string
	before := make(map[int]device.TierEvent)
	for _, e := range h.events {
		switch after := e.at.Sub(from).Seconds(); {
		case e.at.Before(from):
			before[e.Tier] = e.TierEvent
		case e.at.After(to):
		case e.Err != nil:
			parts = append(parts, fmt.Sprintf("%s lost after %.1f s (%v); reads went on from %s", e.Name, after, e.Err, next(e.Tier)))
		default:
			parts = append(parts, fmt.Sprintf("%s back after %.1f s", e.Name, after))
		}
	}
	for tier := range device.MaxTiers {
		if e, ok := before[tier]; ok && e.Err != nil {
			parts = append([]string{fmt.Sprintf("%s was lost before this run (%v); reads came from %s", e.Name, e.Err, next(tier))}, parts...)
		}
	}
	return strings.Join(parts, "; ")
}
