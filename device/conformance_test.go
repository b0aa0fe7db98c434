package device_test

import (
	"fmt"
	"log/slog"
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
		"nested, committed inside": func(last device.Device) device.Device {
			slow := device.NewFaulty(last, device.FaultyOptions{Delay: 0.9, MaxDelay: 50})
			inner := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, small(), slow)
			return device.NewTieredWith(device.TieredOptions{Logger: quiet}, small(), inner)
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

func TestFaultyConformance(t *testing.T) {
	t.Run("no faults", func(t *testing.T) {
		devicetest.Run(t, func(*testing.T) device.Device {
			return device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
		})
	})
	t.Run("delays", func(t *testing.T) {
		devicetest.Run(t, func(*testing.T) device.Device {
			return device.NewFaulty(device.NewMemory(), device.FaultyOptions{Delay: 0.7})
		})
	})
	t.Run("crashable", func(t *testing.T) {
		var inner *device.Memory
		devicetest.Run(t, func(*testing.T) device.Device {
			inner = device.NewMemory()
			return device.NewCrashable(inner, device.FaultyOptions{})
		}, devicetest.Reopen(func(*testing.T, device.Device) device.Device {
			return device.NewCrashable(inner.Reopen(), device.FaultyOptions{})
		}))
	})
}

// TestFaultyTiersConformance: while the last tier is healthy, faults of the other tiers have
// no visible effect.
func TestFaultyTiersConformance(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			devicetest.Run(t, func(*testing.T) device.Device {
				first := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 200_000})
				bad := device.FaultyOptions{Seed: seed, ReadError: 0.2, WriteError: 0.1, TornWrite: 0.1, Delay: 0.2}
				return device.NewTieredWith(device.TieredOptions{RetryAfter: 1, Logger: slog.New(slog.DiscardHandler)},
					device.NewFaulty(first, bad),
					device.NewFaulty(device.NewMemory(), bad),
					device.NewFaulty(device.NewMemory(), device.FaultyOptions{Seed: seed, Delay: 0.5}))
			})
		})
	}
}
