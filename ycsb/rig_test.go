package ycsb

import (
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

// A log on two devices is a device.
func TestCopiesConformance(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device {
		return &copies{all: []device.Device{device.NewMemory(), device.NewTiered(device.NewMemory(), device.NewMemory())}}
	})
}

// One store is read from each of its devices, and from no other; with less memory, more
// of it.
func TestRig(t *testing.T) {
	shape := Shape{Records: 20_000, ValueSize: 8, Depth: 16, Memory: 1 << 20, PageSize: 4 << 10, Cache: 1 << 20, Transport: TransportMem, Net: "none"}
	devices := []Device{Redy, SSD, Memory}
	r, err := OpenRig(t.Context(), devices, shape, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	run := func(d Device) Result {
		t.Helper()
		result, err := r.Run(t.Context(), Spec{Device: d, Distribution: Uniform, Threads: 2, Duration: 20 * time.Millisecond}, nil)
		if err != nil || result.Ops == 0 || result.Errors > 0 {
			t.Fatalf("%s: %+v, %v", d, result, err)
		}
		return result
	}
	for _, d := range devices {
		if got := run(d); got.HitMemory != 1 {
			t.Errorf("%s: all fits, and %.2f of the reads found it in memory", d, got.HitMemory)
		}
	}
	if err := r.SetMemory(shape.Memory / 8); err != nil {
		t.Fatal(err)
	}
	for range 2 { // back and forth
		for _, d := range devices {
			got := run(d)
			there := map[Device]float64{Redy: got.HitRedy, SSD: got.HitSSD, Memory: got.HitOther}
			if rest := 1 - got.HitMemory; got.HitMemory > 0.5 || there[d] < rest-1e-9 {
				t.Errorf("%s: %+v", d, got)
			}
			if got.MemoryBytes != shape.Memory/8 || (got.CacheBytes > 0) != (d == Redy) {
				t.Errorf("%s: %+v", d, got)
			}
		}
	}
	if _, err := r.Run(t.Context(), Spec{Device: "tape", Distribution: Uniform, Threads: 1, Duration: time.Millisecond}, nil); err == nil {
		t.Error("a rig reads from a device that it does not have")
	}
	if _, err := OpenRig(t.Context(), nil, shape, t.TempDir()); err == nil {
		t.Error("a rig without devices")
	}
}

// An open loop begins as many reads as it is asked for, and no more; in each of them
// the time before it could begin is latency.
func TestOpenLoop(t *testing.T) {
	shape := Shape{Records: 10_000, ValueSize: 8, Depth: 16, Memory: 1 << 20}
	target := loaded(t, Memory, shape)
	const rate = 2000
	r, err := Run(t.Context(), target, Spec{
		Shape: shape, Device: Memory, Distribution: Zipfian, Threads: 2, Duration: 200 * time.Millisecond, Rate: rate,
	}, nil)
	if err != nil || r.Errors > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	// The last read of a thread may begin when the time is over already.
	if most := rate*r.Seconds + 4; float64(r.Ops) > most || r.Ops < 2 || r.TargetRate != rate {
		t.Errorf("%d reads in %v s at %d a second", r.Ops, r.Seconds, rate)
	}
	if r.P50Micros > r.P95Micros || r.P95Micros > r.P99Micros || r.P99Micros > r.P999Micros || r.P999Micros > r.MaxMicros*1.01 || r.MaxMicros <= 0 {
		t.Errorf("%+v", r)
	}
	// More than it can do: reads that wait for their turn take longer and longer.
	slow, err := Run(t.Context(), target, Spec{
		Shape: shape, Device: Memory, Distribution: Uniform, Threads: 1, Duration: 100 * time.Millisecond, Rate: MaxRate,
	}, nil)
	if err != nil || slow.MaxMicros < 1e6*slow.Seconds/4 {
		t.Errorf("%+v, %v: at a rate that nothing keeps up with, the last reads wait for about as long as it lasts", slow, err)
	}
	for _, bad := range []float64{-1, 2 * MaxRate} {
		if _, err := Run(t.Context(), target, Spec{Shape: shape, Device: Memory, Distribution: Uniform, Threads: 1, Duration: time.Millisecond, Rate: bad}, nil); err == nil {
			t.Errorf("a rate of %g", bad)
		}
	}
}
