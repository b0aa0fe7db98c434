package kv

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/ssdtier"
)

// rackSetup describes the devices of a store.
type rackSetup struct {
	kind     string
	seed     uint64
	delay    float64 // share of operations that complete late
	capacity int64   // of the tiers above the last
}

// rackKinds are a memory as a disk; a memory or a directory behind tiers that lose their
// contents, fail, or are too small. In a crash each loses writes without a sync.
var rackKinds = []string{"memory", "memory", "memory", "tiered", "tiered", "three", "ssd"}

// alignment returns the alignment of the disk.
func (s *rackSetup) alignment() int {
	if s.kind == "ssd" {
		return 4096
	}
	return 512 // the smallest page
}

// rack holds the parts of the devices that survive the end of a process.
type rack struct {
	rackSetup
	memory *device.Memory
	dir    string
	faults device.FaultyOptions // of the last tier
	disk   *device.Faulty       // the last tier, and the fuse around all devices; nil: off
	fuse   *fuse
	inner  device.Device
}

func newRack(s rackSetup) (*rack, error) {
	r := &rack{rackSetup: s, faults: device.FaultyOptions{Seed: s.seed, Delay: s.delay}}
	if s.kind != "ssd" {
		r.memory = device.NewMemory()
		return r, nil
	}
	var err error
	r.dir, err = os.MkdirTemp("", "redykv-model-")
	return r, err
}

// start turns on the devices, all of which are off.
func (r *rack) start() (*fuse, error) {
	if r.memory != nil {
		r.inner = r.memory.Reopen()
	} else {
		ssd, err := ssdtier.OpenWith(r.dir, ssdtier.Options{SegmentSize: 64 << 10, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		r.inner = ssd
	}
	r.seed++
	r.faults.Seed = r.seed
	r.disk = device.NewCrashable(r.inner, r.faults)
	var top device.Device = r.disk
	small := func(n int64) device.Device {
		return device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: n})
	}
	options := device.TieredOptions{RetryAfter: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	switch r.kind {
	case "tiered", "ssd":
		top = device.NewTieredWith(options, small(r.capacity), r.disk)
	case "three":
		shaky := device.NewFaulty(small(4*r.capacity), device.FaultyOptions{
			Seed: r.seed, Delay: r.delay, ReadError: 0.02, WriteError: 0.01, TornWrite: 0.01,
		})
		options.CommitPoint = int(r.seed % 2 * 3) // the default, or the last one by number
		top = device.NewTieredWith(options, small(r.capacity), shaky, r.disk)
	}
	r.fuse = &fuse{Device: top}
	return r.fuse, nil
}

// sicken makes reads and syncs of the disk fail, or ends that.
func (r *rack) sicken(sick bool) {
	faults := r.faults
	if sick {
		faults.ReadError, faults.SyncError = 0.03, 0.3
	}
	r.disk.Set(faults)
}

// crash turns off the devices without a warning; they are not used afterwards. Each write
// without a sync is kept with probability keep.
func (r *rack) crash(keep float64) error {
	r.fuse.blow()
	err := r.disk.Crash(keep)
	// Errors of the tiers in front are expected in a crash.
	_ = r.fuse.Device.Close()
	return errors.Join(err, r.inner.Close())
}

func (r *rack) remove() error {
	if r.dir == "" {
		return nil
	}
	return os.RemoveAll(r.dir)
}
