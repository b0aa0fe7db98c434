package main

import (
	"context"
	"sync"
	"time"
)

// A standstill is a time in which this process got no processor although it had something to do.
type standstill struct {
	at   time.Time
	long time.Duration
}

// watch is a goroutine that wakes often and notes when it wakes late.
type watch struct {
	mu    sync.Mutex
	found []standstill
}

const (
	watchEvery = 20 * time.Millisecond
	watchNotes = 250 * time.Millisecond // late by so much is a standstill
)

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if late := now.Sub(last) - watchEvery; late > watchNotes {
			w.mu.Lock()
			w.found = append(w.found, standstill{last, late})
			w.mu.Unlock()
		}
		last = now
	}
}

// longest returns the longest standstill between two times, and how many there were.
func (w *watch) longest(from, to time.Time) (longest standstill, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.found {
		if s.at.Before(to) && s.at.Add(s.long).After(from) {
			n++
			if s.long > longest.long {
				longest = s
			}
		}
	}
	return longest, n
}
