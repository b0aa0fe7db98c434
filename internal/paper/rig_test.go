package paper

import (
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/ycsb"
)

// copies passes the conformance test of devices.
func TestCopiesConformance(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device {
		c := new(copies)
		c.add(device.NewMemory())
		c.add(device.NewTiered(device.NewMemory(), device.NewMemory()))
		return c
	})
}

// A store reads from the device that a run names, and from no other. With less memory it reads
// more.
func TestRig(t *testing.T) {
	shape := ycsb.Shape{Records: 20_000, ValueSize: 8, Depth: 16, Memory: 1 << 20, PageSize: 4 << 10, Cache: 1 << 20, Transport: ycsb.TransportMem, Net: "none"}
	devices := []ycsb.Device{ycsb.Redy, ycsb.SSD, ycsb.Memory}
	r, err := openRig(t.Context(), devices, shape, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	run := func(d ycsb.Device) ycsb.Result {
		t.Helper()
		result, err := r.run(t.Context(), ycsb.Spec{Device: d, Distribution: ycsb.Uniform, Threads: 2, Duration: 20 * time.Millisecond}, nil)
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
	if err := r.setMemory(shape.Memory / 8); err != nil {
		t.Fatal(err)
	}
	for range 2 { // back and forth
		for _, d := range devices {
			got := run(d)
			there := map[ycsb.Device]float64{ycsb.Redy: got.HitRedy, ycsb.SSD: got.HitSSD, ycsb.Memory: got.HitOther}
			if rest := 1 - got.HitMemory; got.HitMemory > 0.5 || there[d] < rest-1e-9 {
				t.Errorf("%s: %+v", d, got)
			}
			if got.MemoryBytes != shape.Memory/8 || (got.CacheBytes > 0) != (d == ycsb.Redy) {
				t.Errorf("%s: %+v", d, got)
			}
		}
	}
	if _, err := r.run(t.Context(), ycsb.Spec{Device: "tape", Distribution: ycsb.Uniform, Threads: 1, Duration: time.Millisecond}, nil); err == nil {
		t.Error("a rig reads from a device that it does not have")
	}
	if _, err := openRig(t.Context(), nil, shape, t.TempDir()); err == nil {
		t.Error("a rig without devices")
	}
}
