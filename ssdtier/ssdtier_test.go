package ssdtier

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t testing.TB, dir string, opts Options) *Device {
	t.Helper()
	d, err := OpenWith(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"direct":   {SegmentSize: minSegmentSize},
		"buffered": {SegmentSize: minSegmentSize, Buffered: true},
		"default":  {},
		"1 worker": {Workers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) device.Device {
				return mustOpen(t, t.TempDir(), opts)
			}, devicetest.Reopen(func(t *testing.T, old device.Device) device.Device {
				return mustOpen(t, old.(*Device).Dir(), opts)
			}))
		})
	}
}
