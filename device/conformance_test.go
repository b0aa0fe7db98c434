package device_test

import (
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

func reopenMemory(_ *testing.T, old device.Device) device.Device {
	return old.(*device.Memory).Reopen()
}

func TestMemoryConformance(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device { return device.NewMemory() },
		devicetest.Reopen(reopenMemory), devicetest.Size(5<<20))
}

func TestVolatileMemoryConformance(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device {
		return device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 300_000})
	})
}

func TestTieredConformance(t *testing.T) {
	small := func() device.Device {
		return device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 400_000})
	}
	for name, make := range map[string]func(last device.Device) device.Device{
		"one":   func(last device.Device) device.Device { return device.NewTiered(last) },
		"two":   func(last device.Device) device.Device { return device.NewTiered(small(), last) },
		"three": func(last device.Device) device.Device { return device.NewTiered(device.NewNull(), small(), last) },
		"commit first": func(last device.Device) device.Device {
			return device.NewTieredWith(device.TieredOptions{CommitPoint: 1}, small(), last)
		},
		"nested": func(last device.Device) device.Device {
			return device.NewTiered(small(), device.NewTiered(small(), last))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var last *device.Memory
			devicetest.Run(t, func(*testing.T) device.Device {
				last = device.NewMemory()
				return make(last)
			}, devicetest.Reopen(func(*testing.T, device.Device) device.Device {
				return make(last.Reopen())
			}))
		})
	}
}
