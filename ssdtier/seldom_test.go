package ssdtier

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

func TestSeldom(t *testing.T) {
	var s seldom
	began := time.Unix(1e9, 0)
	for i, want := range []struct {
		after time.Duration
		left  int
		ok    bool
	}{
		{0, 0, true}, {0, 0, false}, {59 * time.Second, 0, false}, {time.Minute, 2, true}, {90 * time.Second, 0, false},
		{time.Hour, 1, true}, {2 * time.Hour, 0, true},
	} {
		if left, ok := s.pass(began.Add(want.after)); left != want.left || ok != want.ok {
			t.Errorf("message %d: %d, %v, want %d, %v", i, left, ok, want.left, want.ok)
		}
	}
}

// A ring that fails again and again, while an operation is pending on it, is logged once.
func TestSickRingIsLoggedOnce(t *testing.T) {
	if err := uring.Probe(); err != nil {
		t.Skip(err)
	}
	var log bytes.Buffer
	d := started(t, Options{Engine: EngineUring, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	content := fill(t, d, 4096)
	queue, err := d.NewQueue(4)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(content))
	if err := errors.Join(queue.Read(got, 0, 1), queue.Submit()); err != nil {
		t.Fatal(err)
	}
	q := queue.(*diskQueue)
	if q.ring == nil || q.ring.Pending() == 0 {
		t.Fatal("nothing is pending on the ring")
	}
	for range 100 {
		q.giveUpRing(errors.New("sick"))
	}
	var done [1]device.Completion
	for q.Poll(done[:]) == 0 {
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if done[0].Err != nil || !bytes.Equal(got, content) {
		t.Errorf("%+v", done[0])
	}
	if err := errors.Join(q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "io_uring failed"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
