package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
)

// survivor is a manager that is killed and restarted while a cache is in use.
type survivor struct {
	ts     *testscript.TestScript
	flags  []string
	api    access.Client
	cache  *redytier.Cache
	events chan redytier.Event
}

// cmdSurvives checks that a cache keeps working when its manager is killed.
func cmdSurvives(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "survives TRANSPORT [static]")
	s := &survivor{
		ts: ts, events: make(chan redytier.Event, 64),
		flags: []string{"--transport", args[0], "--state", ts.MkAbs("state-" + args[0]), "--heartbeat", "50ms", "--silence", "1m"},
	}
	static := len(args) > 1
	if static {
		s.flags = append(s.flags, "--allocator", "static")
	} else {
		s.flags = append(s.flags, "--memory", "64MiB")
	}
	s.start("127.0.0.1:0")
	at, err := url.Parse(ts.Getenv("SURVIVOR"))
	ts.Check(err)
	s.api = access.Dial(at.String())
	if static {
		for _, name := range []string{"FIRST", "SECOND"} {
			cmdStart(ts, false, []string{
				name, "cache server ready", "redykv", "cacheserver", "--memory", "32MiB", "--transport", args[0], "--manager", at.String(), "--vm-id", name,
			})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
	defer cancel()
	s.cache, err = redytier.Create(ctx, s.api, redytier.Config{
		Capacity: 4 << 20, RegionSize: 1 << 20, OnEvent: func(e redytier.Event) { s.events <- e },
	})
	ts.Check(err)
	ts.Check(s.lives(ctx, at.Host))
	if !static {
		ts.Check(gone(ctx, ts.MkAbs(filepath.Join("state-"+args[0], "vms", "*"))))
	}
	cmdEnd(ts, false, []string{"SURVIVOR"})
}

// gone waits until no file matches a pattern.
func gone(ctx context.Context, pattern string) error {
	for {
		left, err := filepath.Glob(pattern)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("files are left: %v", left)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *survivor) start(listen string) {
	cmdStart(s.ts, false, append([]string{"SURVIVOR", `manager ready at (http://.*)$`, "redykv", "manager", "--listen", listen}, s.flags...))
}

// lives kills the manager while its cache is in use, and checks that all operations of the
// cache work with the restarted manager.
func (s *survivor) lives(ctx context.Context, listen string) error {
	using, stop := context.WithCancelCause(ctx)
	used := make(chan error, 1)
	go func() {
		for using.Err() == nil {
			if err := fill(ctx, s.cache); err != nil {
				used <- err
				return
			}
		}
		used <- nil
	}()
	vm := s.cache.Regions()[0].VM
	err := s.through(ctx, listen, vm)
	stop(nil)
	if err := errors.Join(err, <-used); err != nil {
		return errors.Join(err, s.cache.Delete(context.WithoutCancel(ctx)))
	}
	if err := fill(ctx, s.cache); err != nil {
		return err
	}
	if err := s.cache.Delete(ctx); err != nil {
		return err
	}
	return s.returned(ctx)
}

// returned waits until no VM lends memory: the last manager may not have had a heartbeat that
// says so. It fails if there are caches.
func (s *survivor) returned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*scriptTimeout)
	defer cancel()
	for {
		r, err := s.api.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		if err != nil {
			return err
		}
		if len(r.Msg.GetCaches()) != 0 {
			return fmt.Errorf("caches are left: %v", r.Msg.GetCaches())
		}
		lends := slices.IndexFunc(r.Msg.GetVms(), func(v *managerv1.Vm) bool { return v.GetFreeMemory() != v.GetMemory() })
		if lends < 0 {
			return nil
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("VM still lends memory: %v", r.Msg.GetVms()[lends])
		}
	}
}

// loses reports whether an event says that a cache has lost memory.
func loses(e redytier.Event) bool {
	return e.Kind == redytier.VMLost || e.Kind == redytier.DataLost || e.Kind == redytier.CacheDeleted
}

// through restarts the manager repeatedly while the cache is reshaped and moves away from vm.
func (s *survivor) through(ctx context.Context, listen, vm string) error {
	cmdKill(s.ts, false, []string{"SURVIVOR"})
	if err := fill(ctx, s.cache); err != nil {
		return fmt.Errorf("without a manager: %w", err)
	}
	s.start(listen)
	r, err := s.api.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		return err
	}
	if len(r.Msg.GetCaches()) != 1 || !r.Msg.GetCaches()[0].GetGrants()[0].GetVm().GetHealthy() {
		return fmt.Errorf("the next manager knows %v", r.Msg)
	}
	if err := s.cache.Reshape(ctx, 6<<20, redytier.SLO{}); err != nil {
		return fmt.Errorf("reshape: %w", err)
	}
	for len(s.events) > 0 {
		if e := <-s.events; loses(e) {
			return fmt.Errorf("event %v of a cache to which nothing has happened", e)
		}
	}
	cmdKill(s.ts, false, []string{"SURVIVOR"})
	s.start(listen)
	if _, err := s.api.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: vm, NoticeMs: 3_600_000})); err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	cmdKill(s.ts, false, []string{"SURVIVOR"}) // the next manager must know the changes
	s.start(listen)
	for {
		select {
		case e := <-s.events:
			if loses(e) {
				return fmt.Errorf("event %v of %s: %w", e.Kind, e.VM, e.Err)
			}
			if e.Kind == redytier.VMLeft && s.cache.Regions()[0].VM != vm {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
