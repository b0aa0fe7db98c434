package redytier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
)

// lateVMs are VMs in this process that start when the test says so.
type lateVMs struct {
	*allocator.InProcess
	host     allocator.Host
	launched chan allocator.VMSpec
}

func (v *lateVMs) Attach(h allocator.Host) {
	v.host = h
	v.InProcess.Attach(h)
}

func (v *lateVMs) Launch(_ context.Context, spec allocator.VMSpec) error {
	v.host.Waiting(spec.ID, "the rack has no power")
	v.launched <- spec
	return nil
}

// start starts a VM that was launched.
func (v *lateVMs) start(t *testing.T, spec allocator.VMSpec) {
	t.Helper()
	if err := v.InProcess.Launch(t.Context(), spec); err != nil {
		t.Error(err)
	}
}

// manageLate starts a manager of lateVMs.
func manageLate(t *testing.T) (*managed, *lateVMs) {
	t.Helper()
	vms, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	late := &lateVMs{InProcess: vms, launched: make(chan allocator.VMSpec, 1)}
	return manageVMs(t, late, "mem", managedRegions, -1), late
}

// Create and Migrate report what they wait for, and the end of the wait.
func TestProgress(t *testing.T) {
	m, vms := manageLate(t)
	progress := make(chan []string, 1024)
	// waits starts the VM that do waits for, when that has reported why.
	waits := func(do func() error) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- do() }()
		spec := testrun.Receive(t, "a VM is launched", vms.launched)
		if pending := testrun.Receive(t, "what is waited for is reported", progress); len(pending) != 1 || !strings.Contains(pending[0], "VM "+spec.ID+" waits: the rack has no power") {
			t.Errorf("pending: %q", pending)
		}
		vms.start(t, spec)
		if err := testrun.Receive(t, "the call ends", ended); err != nil {
			t.Fatal(err)
		}
		pending := testrun.Receive(t, "the end of the wait is reported", progress)
		for len(progress) > 0 {
			pending = testrun.Receive(t, "the end of the wait is reported", progress)
		}
		if pending != nil {
			t.Errorf("pending at the end: %q", pending)
		}
	}
	cfg := Config{
		Capacity: managedRegion, RegionSize: managedRegion, Logger: slog.New(slog.DiscardHandler),
		Progress: func(pending []string) { progress <- slices.Clone(pending) },
	}
	var cache *Cache
	waits(func() (err error) {
		cache, err = Create(t.Context(), m, cfg)
		return err
	})
	waits(func() error { return cache.Migrate(t.Context(), cache.Regions()[0].VM) })
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	m.nothingLeft(t)
}

// A Create whose context ends while it waits leaves nothing behind, also if the manager has not
// named the cache yet.
func TestCreateEndsWhilePending(t *testing.T) {
	for name, reported := range map[string]bool{"before an answer": false, "after an answer": true} {
		t.Run(name, func(t *testing.T) {
			m, vms := manageLate(t)
			ctx, cancel := context.WithCancel(t.Context())
			progress := make(chan []string, 1024)
			ended := make(chan error, 1)
			go func() {
				_, err := Create(ctx, m, Config{
					Capacity: managedRegion, RegionSize: managedRegion, Logger: slog.New(slog.DiscardHandler),
					Progress: func(pending []string) { progress <- pending },
				})
				ended <- err
			}()
			spec := testrun.Receive(t, "a VM is launched", vms.launched)
			if reported {
				testrun.Receive(t, "what is waited for is reported", progress)
			}
			cancel()
			if err := testrun.Receive(t, "the call ends", ended); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if _, err := m.DescribeCache(t.Context(), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: spec.Cache})); connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("the cache is left: %v", err)
			}
		})
	}
}
