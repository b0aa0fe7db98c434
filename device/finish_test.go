package device_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// Finish returns when the last tier has ended a write, not when it is committed. It also
// returns when its context ends.
func TestFinish(t *testing.T) {
	slow := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Delay: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, volatile(), slow))
	q, err := d.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q}
	ctx := t.Context()
	for i, page := range []string{"aaaa", "bbbb"} { // the queue has room for one
		if err := device.Finish(ctx, q, q.Write([]byte(page), int64(4*i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 8)
	if err := device.Finish(ctx, q, q.Read(got, 0, 0)); err != nil || string(got) != "aaaabbbb" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := device.Finish(ctx, q, q.Read(got, 100, 0)); !errors.Is(err, device.ErrNotHeld) {
		t.Errorf("read of what is not there: %v", err)
	}
	slow.Set(device.FaultyOptions{Delay: 1, WriteError: 1})
	if err := device.Finish(ctx, q, q.Write([]byte("cccc"), 8, 0)); !errors.Is(err, device.ErrFault) {
		t.Errorf("a write that the last tier fails: %v", err)
	}
	slow.Set(device.FaultyOptions{Stuck: 1})
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := device.Finish(ended, q, q.Write([]byte("cccc"), 8, 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("a write that is committed and stuck: %v", err)
	}
	if err := device.Finish(ctx, q, q.Read(got, 0, 0)); !errors.Is(err, device.ErrQueueFull) {
		t.Errorf("a read that the queue has no room for: %v", err)
	}
	slow.Release()
	if c := b.next(); c.Event != device.Released || c.Err != nil {
		t.Errorf("%+v", c)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
