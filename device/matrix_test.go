package device_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "gocloud.dev/blob/fileblob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blob"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/device/smb"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
)

// part is one device of a stack. Each call of open opens what the previous one left behind,
// which for a volatile device is nothing.
type part struct {
	kind string
	open func() (device.Device, error)
}

// kind creates parts. The last part of a stack must keep everything.
type kind struct {
	name   string
	bottom bool
	make   func(t *testing.T) func() (device.Device, error)
}

// kinds returns all devices that keep a log.
func kinds(t *testing.T) []kind {
	server, err := smbd.Start(t.Context())
	if err != nil && !errors.Is(err, smbd.ErrMissing) {
		t.Fatal(err)
	}
	all := []kind{
		{"memory", true, func(*testing.T) func() (device.Device, error) {
			m := device.NewMemory()
			return func() (device.Device, error) { return m.Reopen(), nil }
		}},
		{"volatile", false, func(*testing.T) func() (device.Device, error) {
			return func() (device.Device, error) {
				return device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 100_000}), nil
			}
		}},
		{"ssd", true, ssdOf(ssdtier.EngineAuto)},
		{"ssd pool", true, ssdOf(ssdtier.EnginePool)},
		{"blob", true, func(t *testing.T) func() (device.Device, error) {
			m, bucket := device.NewMemory(), "file://"+t.TempDir()
			return func() (device.Device, error) {
				return blob.OpenURL(t.Context(), m.Reopen(), bucket, blob.Options{
					SegmentSize: 64 << 10, Every: time.Millisecond, Linger: -1, Logger: quiet,
				})
			}
		}},
		{"redy", false, func(t *testing.T) func() (device.Device, error) {
			return func() (device.Device, error) { return openRedy(t) }
		}},
	}
	if err != nil {
		t.Log(err)
		return all
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	made := 0
	return append(all, kind{"smb", true, func(t *testing.T) func() (device.Device, error) {
		made++
		opts := smb.Options{
			Address: server.Address, Share: smbd.ShareName, User: server.User, Password: server.Password,
			Dir: fmt.Sprint(made), SegmentSize: 64 << 10, Logger: quiet,
		}
		return func() (device.Device, error) { return smb.Open(t.Context(), opts) }
	}})
}

func ssdOf(engine ssdtier.Engine) func(t *testing.T) func() (device.Device, error) {
	return func(t *testing.T) func() (device.Device, error) {
		dir := filepath.Join(t.TempDir(), "log")
		return func() (device.Device, error) {
			return ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Engine: engine, Logger: quiet})
		}
	}
}

// redyDevice is a cache in this process, with its manager and servers.
type redyDevice struct {
	*redytier.Device
	mgr io.Closer
}

func (d redyDevice) Close() error { return errors.Join(d.Device.Close(), d.mgr.Close()) }

func openRedy(t *testing.T) (device.Device, error) {
	allocator, err := allocator.NewInProcess(allocator.InProcessOptions{})
	if err != nil {
		return nil, err
	}
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Allocator: allocator, Logger: quiet})
	if err != nil {
		return nil, err
	}
	d, err := redytier.Open(t.Context(), mgr, redytier.Config{Capacity: 128 << 10, Transport: "mem", Net: "none"})
	if err != nil {
		return nil, errors.Join(err, mgr.Close())
	}
	return redyDevice{d, mgr}, nil
}

// TestEveryStack runs the conformance test on every pair of devices as tiers.
func TestEveryStack(t *testing.T) {
	testrun.SkipUnlessAll(t, "it takes half a minute")
	all, stacks := kinds(t), 0
	for _, last := range all {
		if !last.bottom {
			continue
		}
		for i, first := range append([]kind{{name: "nothing"}}, all...) {
			if stacks++; stacks%testrun.Raced(1, 3) != 0 {
				continue
			}
			opts := device.TieredOptions{Logger: quiet}
			name := fmt.Sprintf("%s over %s", first.name, last.name)
			if i%2 == 1 { // half of the stacks
				opts.CommitPoint = 1
				name += ", committed there"
			}
			t.Run(name, func(t *testing.T) {
				defer testrun.NoLeaks(t, goleak.IgnoreCurrent())
				var parts []func() (device.Device, error)
				stack := func(t *testing.T) device.Device {
					var tiers []device.Device
					for _, open := range parts {
						d, err := open()
						if err != nil {
							t.Fatal(err)
						}
						tiers = append(tiers, d)
					}
					return device.NewTieredWith(opts, tiers...)
				}
				devicetest.Run(t, func(t *testing.T) device.Device {
					parts = nil
					if first.make != nil {
						parts = append(parts, first.make(t))
					}
					parts = append(parts, last.make(t))
					return stack(t)
				}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device { return stack(t) }),
					devicetest.Size(256<<10))
			})
		}
	}
}

// TestEveryStackFails runs the model of a log on stacks of all devices, each with its own
// faults. While the last tier keeps what is written to it, no byte is wrong, no completion is
// lost or duplicated, and nothing hangs.
func TestEveryStackFails(t *testing.T) {
	seeds := testrun.Scale(10, 24, 200)
	all := kinds(t)
	var bottoms []kind
	for _, k := range all {
		if k.bottom {
			bottoms = append(bottoms, k)
		}
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 5))
		var stack []kind
		for range r.IntN(3) {
			stack = append(stack, all[r.IntN(len(all))])
		}
		stack = append(stack, bottoms[int(seed)%len(bottoms)])
		var names []string
		for _, k := range stack {
			names = append(names, k.name)
		}
		t.Run(fmt.Sprintf("%d %s", seed, strings.Join(names, " over ")), func(t *testing.T) {
			m := newTieredModel(t, seed)
			for _, k := range stack {
				m.parts = append(m.parts, part{k.name, k.make(t)})
			}
			m.commit = r.IntN(len(stack) + 1)
			m.opts.Logger = slog.New(slog.DiscardHandler)
			m.run()
		})
	}
}
