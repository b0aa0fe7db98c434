package kv

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blockcache"
	"github.com/redykv/redykv/ssdtier"
)

// TestDeviceOfAnotherStore opens a second store on devices of an open store, and on devices
// that contain them.
func TestDeviceOfAnotherStore(t *testing.T) {
	memory, free := device.NewMemory(), device.NewMemory()
	ssd, err := ssdtier.OpenWith(t.TempDir(), ssdtier.Options{Buffered: true, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	options := func(dev device.Device) Options {
		opts := small(dev, 8, 8)
		opts.PageSize, opts.Memory, opts.Logger = 4<<10, 32<<10+blockcache.MinCapacity, silent
		return opts
	}
	tiered := device.NewTiered(memory, ssd)
	st := open(t, options(tiered))
	if err := st.Upsert(context.Background(), key8(1), key8(1)); err != nil {
		t.Fatal(err)
	}
	cached := func(dev device.Device) device.Device {
		c, err := blockcache.New(dev, blockcache.Options{Capacity: blockcache.MinCapacity})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(t, c) })
		return c
	}
	for want, dev := range map[string]device.Device{
		"another store: *device.Tiered":                  tiered,
		"another store: *device.Memory":                  memory,
		"another store: directory /":                     ssd,
		"*device.Tiered: device":                         device.NewTiered(memory, free),
		"Tiered: device: in use by another store: direc": device.NewTiered(free, ssd),
		"*device.Faulty: device":                         device.NewFaulty(memory, device.FaultyOptions{}),
		"*blockcache.Cache: device":                      cached(memory),
		"*device.Tiered: *blockcache.Cache: device":      device.NewTiered(cached(ssd), free),
	} {
		if _, err := Open(options(dev)); !errors.Is(err, device.ErrClaimed) || !strings.Contains(err.Error(), want) {
			t.Errorf("opened a second store: %v, want %q", err, want)
		}
	}
	readBack(st.Read(context.Background(), key8(1), nil)).Want(t, key8(1), "the first store")
	if _, err := Open(options(device.NewTiered(free, free))); !errors.Is(err, device.ErrClaimed) {
		t.Errorf("opened a store with one device as both tiers: %v", err)
	}
	closeAll(t, st, open(t, options(free))) // no failed Open has kept the claim
	if _, err := Open(small(free.Reopen(), 8, 16)); !errors.Is(err, ErrMismatch) {
		t.Errorf("opened with another layout: %v", err)
	}
	closeAll(t, open(t, options(device.NewTiered(memory.Reopen(), free)))) // nor has Close
}

// TestDeviceAfterACrash opens a store on the device of a crashed store, which is closed later.
// That Close must not release the new store's claim.
func TestDeviceAfterACrash(t *testing.T) {
	memory := device.NewMemory()
	faulty := device.NewFaulty(memory, device.FaultyOptions{})
	opts := small(faulty, 8, 8)
	opts.Logger = silent
	first := open(t, opts)
	if _, err := Open(small(memory, 8, 8)); !errors.Is(err, device.ErrClaimed) {
		t.Errorf("opened a second store: %v", err)
	}
	if err := faulty.Crash(0); err != nil {
		t.Fatal(err)
	}
	second := open(t, small(memory, 8, 8))
	if err := first.Close(); err == nil {
		t.Error("a store committed to a device that has crashed")
	}
	if _, err := Open(small(memory, 8, 8)); !errors.Is(err, device.ErrClaimed) {
		t.Errorf("opened a third store: %v", err)
	}
	closeAll(t, second)
}
