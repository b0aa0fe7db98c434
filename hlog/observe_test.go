package hlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
)

// witness records the calls of a Listener.
type witness struct {
	mu               sync.Mutex
	flushed, evicted int64 // ends of the ranges, which have no gaps
	flushes, evicts  uint64
	gaps             []string
	failed           []error
}

func (w *witness) listener() Listener {
	move := func(what string, at *int64, n *uint64, from, until int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if from != *at || until <= from {
			w.gaps = append(w.gaps, fmt.Sprintf("%s from %d until %d after %d", what, from, until, *at))
		}
		*at = until
		*n++
	}
	return Listener{
		Flushed: func(from, until int64, took time.Duration) {
			move("flushed", &w.flushed, &w.flushes, from, until)
			if took <= 0 {
				move("in no time", &w.flushed, &w.flushes, 0, 0)
			}
		},
		Evicted: func(from, until int64) { move("evicted", &w.evicted, &w.evicts, from, until) },
		Failed: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = append(w.failed, err)
		},
	}
}

// TestListener compares the markers with the flusher's calls, until the device fails.
func TestListener(t *testing.T) {
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 40})
	if err := dev.Start(FirstAddress); err != nil {
		t.Fatal(err)
	}
	w := &witness{flushed: FirstAddress, evicted: FirstAddress}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: FixedLayout(8, 8), Memory: 8 * testPage, PageSize: testPage,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Listener: w.listener(),
	})
	if err != nil {
		t.Fatal(err)
	}
	handle := table.Register()
	for err == nil {
		_, err = add(l, handle, 1, 0)
	}
	if !errors.Is(err, device.ErrFault) {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil { // the flusher has ended
		t.Fatal(err)
	}
	committed, head, counts := l.Committed(), l.Head(), l.Counts()
	if len(w.gaps) > 0 || len(w.failed) != 1 || !errors.Is(w.failed[0], device.ErrFault) {
		t.Errorf("gaps %q, failures %v", w.gaps, w.failed)
	}
	if w.flushed != committed || w.evicted != head || head == FirstAddress {
		t.Errorf("told of %d flushed, %d evicted; the log says %d, %d", w.flushed, w.evicted, committed, head)
	}
	want := Counts{
		Flushes: w.flushes, Evictions: w.evicts,
		FlushedBytes: committed - FirstAddress, EvictedBytes: head - FirstAddress,
	}
	if counts != want {
		t.Errorf("counted %+v, told of %+v", counts, want)
	}
}
