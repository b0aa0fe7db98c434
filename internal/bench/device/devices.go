package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// opened is a device that is not started yet, with what belongs to it.
type opened struct {
	device.Device
	segments string       // directory of the log's files; empty if there are none
	sector   int          // unit of direct I/O on these; 1: the page cache is not bypassed
	note     string       // for the report
	stop     func() error // ends the processes that serve it; may be nil
}

func (o *opened) Close() error {
	err := o.Device.Close()
	if o.stop != nil {
		err = errors.Join(err, o.stop())
	}
	return err
}

// kind is a named kind of device.
type kind struct {
	name string
	// open makes a device, with files in the empty directory dir.
	open func(ctx context.Context, s *Spec, op Op, dir string) (*opened, error)
}

// kinds lists the known devices.
var kinds = []kind{
	{"ssd", openSSD},
	{"smb", openSMB},
	{"redy", openRedy},
	{"memory", openMemory},
}

// Devices returns the names of the known devices.
func Devices() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

func findDevice(name string) (kind, error) {
	if i := slices.Index(Devices(), name); i >= 0 {
		return kinds[i], nil
	}
	return kind{}, fmt.Errorf("unknown device %q: want one of %s", name, strings.Join(Devices(), ", "))
}

// openDevice makes the device of a spec for one operation, below its directory.
func openDevice(ctx context.Context, s *Spec, op Op) (*opened, error) {
	k, err := findDevice(s.Device)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, string(op))
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, fmt.Errorf("devicebench: %w", err)
	}
	o, err := k.open(ctx, s, op, dir)
	if err != nil {
		return nil, fmt.Errorf("devicebench: device %s: %w", s.Device, err)
	}
	return o, nil
}

func openMemory(context.Context, *Spec, Op, string) (*opened, error) {
	return &opened{Device: device.NewMemory()}, nil
}

// openSSD makes a log of one file for reads, as in fio, or of several for writes, so that
// truncated files are reused.
func openSSD(_ context.Context, s *Spec, op Op, dir string) (*opened, error) {
	opts := ssdtier.Options{SegmentSize: ssdtier.DefaultSegmentSize, Engine: s.Engine, Verify: s.Verify}
	for opts.SegmentSize < s.Size+s.Size/2 { // a store's log has gaps
		opts.SegmentSize *= 2
	}
	for op.writes() && opts.SegmentSize > s.Size/cutShare {
		opts.SegmentSize /= 2
	}
	if op == Grow {
		opts.Recycle = -1
	}
	d, err := ssdtier.OpenWith(dir, opts)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("engine %s, blocks of %d bytes, verified: %s", d.Engine(), d.Alignment(), s.Verify)
	if !d.Direct() {
		note += ", through the page cache"
	}
	return &opened{Device: d, segments: dir, sector: d.Sector(), note: note}, nil
}

// openSMB starts a file server and makes a log there.
func openSMB(ctx context.Context, _ *Spec, _ Op, dir string) (*opened, error) {
	storage, err := ycsb.OpenStorage(ctx, ycsb.SMB, ycsb.Shape{}, dir)
	if err != nil {
		return nil, err
	}
	return &opened{Device: storage.Device, note: storage.Net, stop: storage.Release}, nil
}

// openRedy starts a cache server as a second process and makes a cache there.
func openRedy(ctx context.Context, s *Spec, _ Op, _ string) (*opened, error) {
	allocator, err := allocator.NewLocal(allocator.LocalOptions{})
	if err != nil {
		return nil, err
	}
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Allocator: allocator})
	if err != nil {
		return nil, err
	}
	d, err := redytier.Open(ctx, mgr, redytier.Config{Capacity: s.Size, Net: s.Net})
	if err != nil {
		return nil, errors.Join(err, mgr.Close())
	}
	return &opened{Device: d, note: "over shm", stop: mgr.Close}, nil
}
