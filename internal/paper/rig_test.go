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
	shape := ycsb.Shape{Records: 20_000, ValueSize: 8, Depth: 16, Memory: 1 << 20, PageSize: 4 << 10, Transport: ycsb.TransportMem, Net: "none"}
	parts := []rigPart{{device: ycsb.Redy, cache: 1 << 20}, {device: ycsb.SSD}, {device: ycsb.Memory}, {device: ycsb.Redy, cache: 256 << 10}}
	r, err := openRig(t.Context(), parts, shape, t.TempDir())
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
	run := func(at int) ycsb.Result {
		t.Helper()
		result, err := r.run(t.Context(), at, ycsb.Spec{Distribution: ycsb.Uniform, Threads: 2, Duration: 20 * time.Millisecond}, nil)
		if err != nil || result.Ops == 0 || result.Errors > 0 {
			t.Fatalf("%v: %+v, %v", parts[at], result, err)
		}
		return result
	}
	for at, part := range parts {
		if got := run(at); got.HitMemory != 1 {
			t.Errorf("%v: all fits, and %.2f of the reads found it in memory", part, got.HitMemory)
		}
	}
	if err := r.setMemory(shape.Memory / 8); err != nil {
		t.Fatal(err)
	}
	for range 2 { // back and forth
		for at, part := range parts {
			got := run(at)
			there := map[ycsb.Device]float64{ycsb.Redy: got.HitRedy, ycsb.SSD: got.HitSSD, ycsb.Memory: got.HitOther}
			rest := 1 - got.HitMemory
			// The smaller cache has less than half of the log.
			if small := at == 3; got.HitMemory > 0.5 || small != (there[part.device] < rest-1e-9) || small && (got.HitRedy == 0 || got.HitSSD < got.HitRedy) {
				t.Errorf("%v: %+v", part, got)
			}
			if got.MemoryBytes != shape.Memory/8 || got.CacheBytes != part.cache {
				t.Errorf("%v: %+v", part, got)
			}
		}
	}
	if _, err := openRig(t.Context(), nil, shape, t.TempDir()); err == nil {
		t.Error("a rig without devices")
	}
}
