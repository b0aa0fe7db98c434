package device_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// Reads alone bring a failed tier back into the set, for any cause of failure, and it is
// refilled.
func TestReadsBringTiersBack(t *testing.T) {
	for name, ill := range map[string]device.FaultyOptions{
		"a write failed": {WriteError: 1}, "all fails": {Down: true}, "reads fail": {ReadError: 1},
	} {
		t.Run(name, func(t *testing.T) {
			first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
			var back atomic.Int64
			d := started(t, device.NewTieredWith(device.TieredOptions{
				RetryAfter: 1, Logger: quiet,
				OnEvent: func(e device.TierEvent) {
					if e.Err == nil {
						back.Store(e.Addr)
					}
				},
			}, first, device.NewMemory())).(*device.Tiered)
			b := newBench(t, d)
			b.write("aaaa", 0)
			first.Set(ill)
			b.write("bbbb", 4)
			late := newBench(t, d) // gets no queue on the tier that is down
			for d.Metrics()[0].Healthy {
				b.wantRead("aaaa", 0, 1)
			}
			first.Set(device.FaultyOptions{})
			for _, b := range []*bench{b, late} {
				testrun.Until(t, "the first tier answers", func() bool {
					got, c := b.read(8, 0)
					if c.Err != nil || got != "aaaabbbb" {
						t.Fatalf("%q, %+v", got, c)
					}
					return c.Tier == 0
				})
			}
			if m := d.Metrics()[0]; !m.Healthy || m.Reason != nil || m.Restarts != 1 || back.Load() != 8 {
				t.Errorf("back from %d: %+v", back.Load(), m)
			}
			b.write("cccc", 8)
			b.wantRead("aaaabbbbcccc", 0, 0)
		})
	}
}

// Reads also bring back a tier whose first Start failed.
func TestReadsStartTiers(t *testing.T) {
	middle, last := device.NewMemory(), device.NewMemory()
	opts := device.TieredOptions{RetryAfter: 1, Logger: quiet}
	d := started(t, device.NewTieredWith(opts, middle, last))
	b := newBench(t, d)
	b.write("aaaa", 0)
	if err := errors.Join(b.q.Close(), d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	down := device.NewFaulty(middle.Reopen(), device.FaultyOptions{Down: true})
	b = newBench(t, startedAt(t, device.NewTieredWith(opts, down, last.Reopen()), 4))
	b.wantRead("aaaa", 0, 1)
	down.Set(device.FaultyOptions{})
	testrun.Until(t, "the first tier answers", func() bool { _, c := b.read(4, 0); return c.Tier == 0 })
	b.wantRead("aaaa", 0, 0)
}

// Reads do not wait for a slow start. If writes went past its address meanwhile, the tier does
// not answer for them.
func TestReadsDoNotWaitForAStart(t *testing.T) {
	defer testrun.NoLeaks(t)
	faulty, slow, d := newSlowStart(time.Minute)
	b := begun(t, d)
	faulty.Set(device.FaultyOptions{WriteError: 1})
	b.write("aaaa", 0)
	faulty.Set(device.FaultyOptions{})
	slow.slow.Store(true)
	var end chan struct{}
	testrun.Until(t, "the tier starts", func() bool {
		b.wantRead("aaaa", 0, 1)
		select {
		case end = <-slow.asked:
		default:
		}
		return end != nil
	})
	for range 200 {
		b.wantRead("aaaa", 0, 1)
	}
	b.write("bbbb", 4) // goes past the address of the start
	slow.slow.Store(false)
	close(end)
	testrun.Until(t, "the tier is healthy", func() bool { b.wantRead("bbbb", 4, 1); return d.Metrics()[0].Healthy })
	b.wantRead("bbbb", 4, 1)
	if m := d.Metrics()[0]; m.Begin != 8 || m.Restarts != 1 {
		t.Errorf("%+v", m)
	}
	b.write("cccc", 8)
	b.wantRead("cccc", 8, 0)
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
