package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// An idle peer that answers is never disconnected, one that does not answer is disconnected at
// its last beat. The test generates the beats.
func TestBeats(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	p := Open(Options{Silence: 24 * time.Hour})
	t.Cleanup(func() { _ = p.Close() })
	l, err := p.Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan fabric.QueuePair, 1)
	go func() {
		if r, err := l.Accept(ctx); err == nil {
			if q, err := r.Accept(nil, fabric.ReadWrite); err == nil {
				accepted <- q
			}
		}
	}()
	dialled, err := p.Dial(ctx, l.Addr(), nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Receive(t, "the server accepts", accepted)
	alive := dialled.(*queuePair)
	for range 5 * silentBeats {
		for alive.quiet == 0 {
			alive.beat()
		}
		testrun.Until(t, "the peer answers", alive.heard.Load)
		alive.beat()
	}
	if err := alive.Err(); err != nil || alive.quiet != 0 {
		t.Errorf("a peer that answers: %v, silent for %d beats", err, alive.quiet)
	}

	c, silent := stranger(t, l)
	for beat := range silentBeats {
		if err := silent.Err(); err != nil {
			t.Fatalf("given up after %d beats: %v", beat, err)
		}
		silent.beat()
	}
	if err := silent.Wait(ctx); !errors.Is(err, fabric.ErrDisconnected) {
		t.Errorf("a peer that does not answer: %v", err)
	}
	_ = c.Close()
}
