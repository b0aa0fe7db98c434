package manager

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/manager/allocator"
)

// A reconciler takes the next step for one object: it compares what the state wants with what
// there is, makes one call, and notes the result. A step may be repeated at any time. Keys of
// objects that may need a step are queued; a step that fails is repeated, later each time. The
// keys are those of records:
//
//	grant/CACHE/ID  a leaving grant is taken back from its server
//	vm/ORDER        a VM is launched, terminated, put into a warm pool, forgotten
//	cache/ID        a request that waits for VMs is granted or given up

// reconcilers is the number of keys of a queue that are worked on at a time.
const reconcilers = 32

// reconcile takes steps until the queues are shut down.
func (l *leader) reconcile() {
	var working sync.WaitGroup
	for _, q := range l.keys.all() {
		for range reconcilers {
			working.Go(func() {
				for l.step(q) {
				}
			})
		}
	}
	<-l.ctx.Done()
	l.keys.shutDown()
	working.Wait()
}

// step takes one step. It returns false when the queue is shut down.
func (l *leader) step(q queue) bool {
	key, ended := q.Get()
	if ended {
		return false
	}
	defer q.Done(key)
	name := q.does + " " + key
	l.steps.progress(name)
	defer l.steps.end(name)
	err := l.ctx.Err()
	if err == nil {
		err = l.reconcileKey(l.ctx, key, q == l.keys.ends)
	}
	switch {
	case err == nil:
		q.Forget(key)
	case l.ctx.Err() != nil: // the next leader takes the step
	default:
		l.opts.Logger.Warn("to be tried again", "tries", q.NumRequeues(key)+1, "err", err)
		q.AddRateLimited(key)
	}
	return true
}

// reconcileKey takes a key's step; ends: the queue is that of what ends.
func (l *leader) reconcileKey(ctx context.Context, key string, ends bool) error {
	switch kind, name, _ := strings.Cut(key, "/"); kind + "/" {
	case grantPrefix:
		return l.reconcileGrant(ctx, key)
	case cachePrefix:
		return l.state.reconcileCache(name, l.term())
	case vmPrefix:
		order, err := hex.DecodeString(name)
		if err != nil || len(order) != 8 {
			return fmt.Errorf("key %.80q", key)
		}
		return l.reconcileVM(ctx, binary.BigEndian.Uint64(order), ends)
	}
	return fmt.Errorf("key %.80q", key)
}

// vmStep is the next step for a VM.
type vmStep int

const (
	vmRests vmStep = iota
	vmLaunch
	vmTerminate
)

// reconcileVM takes the next step for a VM, or leaves it to the queue of what ends.
func (l *leader) reconcileVM(ctx context.Context, order uint64, ends bool) error {
	v, step, err := l.state.nextStep(order, l.opts.Warm)
	if err != nil || v == nil {
		return err
	}
	if step == vmTerminate && !ends {
		l.keys.ends.Add(v.key())
		return nil
	}
	switch step {
	case vmLaunch:
		if err := l.launch(ctx, v); err != nil {
			l.fail(v.id, v, err.Error())
			return nil
		}
		l.keys.addAfter(v.key(), l.opts.LaunchTimeout) // it is to register before that
	case vmTerminate:
		// That no cache has the VM may not be written yet: the step may be one that was put off.
		if err := l.state.written(); err != nil {
			return err
		}
		l.observe(v, false)
		if l.opts.Allocator != nil { // there may be none if the catalog is that of a manager that had one
			ctx, cancel := context.WithTimeout(ctx, terminateTimeout)
			defer cancel()
			if err := l.opts.Allocator.Terminate(ctx, v.id, l.state.whyEnded(v)); err != nil {
				return fmt.Errorf("VM %s not terminated: %w", v.id, err)
			}
		}
		return l.state.terminated(v)
	case vmRests:
		if late := l.state.lateBy(v, l.opts.LaunchTimeout); late >= 0 {
			l.fail(v.id, v, fmt.Sprintf("has not registered: no answer within %v", l.opts.LaunchTimeout))
		} else if late > -l.opts.LaunchTimeout {
			l.keys.addAfter(v.key(), -late)
		}
	}
	return nil
}

// nextStep returns the next step for the VM of an order; nil: there is no such VM.
func (c *state) nextStep(order uint64, pools []WarmPool) (v *vm, step vmStep, err error) {
	c.mu.Lock()
	defer c.end(&err)
	v = c.orders[order]
	switch {
	case v == nil:
	case !v.launched:
		if v.failed != "" && len(v.held) == 0 {
			c.forget(v)
		}
	case v.failed != "", v.lent == 0 && v.leavesPool(c, pools):
		v.ending = true
		return v, vmTerminate, nil
	case v.ControlURL == "" && !v.launching:
		v.launching = true
		return v, vmLaunch, nil
	}
	return v, vmRests, nil
}

// leavesPool reports whether a VM without a cache is needed by no warm pool. One that is
// needed becomes the pool's. Called under mu.
func (v *vm) leavesPool(c *state, pools []WarmPool) bool {
	if v.warm {
		return v.usable() != nil
	}
	if v.ControlURL == "" || v.usable() != nil || len(v.held) > 0 {
		return true
	}
	for _, p := range pools {
		if p.of(v) && c.countWarm(p) < p.Count {
			c.setWarm(v, true)
			c.touch(v)
			return false
		}
	}
	return true
}

// launch tells the allocator to launch a VM.
func (l *leader) launch(ctx context.Context, v *vm) error {
	if l.opts.Allocator == nil {
		return errors.New("this manager launches no VMs")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.LaunchTimeout, fmt.Errorf("no answer within %v", l.opts.LaunchTimeout))
	defer cancel()
	err := l.opts.Allocator.Launch(ctx, l.state.spec(v))
	if err != nil {
		l.state.mu.Lock()
		v.launchErr = fmt.Errorf("launch VM %s: %w", v.id, err)
		l.state.mu.Unlock()
	}
	return err
}

// spec returns the specification of a VM to launch.
func (c *state) spec(v *vm) allocator.VMSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	spec := allocator.VMSpec{ID: v.id, Memory: v.Memory, Cores: v.Cores, Transport: v.transport, Kind: v.kind(), Price: v.Price}
	for g := range v.held {
		if spec.Cache = g.cache; c.caches[g.cache] != nil {
			spec.Client = c.caches[g.cache].demand.client.GetMachine()
		}
	}
	return spec
}

// whyEnded returns why a VM is terminated.
func (c *state) whyEnded(v *vm) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case v.failed != "":
		return "it failed: " + v.failed
	case !v.leaves.IsZero():
		return "it is reclaimed, and no cache uses it any more: " + v.leaving
	case v.ControlURL == "":
		if v.unwanted == nil {
			return "the request that it was launched for was given up"
		}
		return "the request that it was launched for was given up: " + v.unwanted.Error()
	}
	return "no cache uses it any more"
}

// lateBy returns by how much a launched VM is late with its registration; negative: it has
// that long. A VM that is up, or that waits, has the whole timeout.
func (c *state) lateBy(v *vm, timeout time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.ControlURL != "" || v.failed != "" || !v.launched || v.waits != "" {
		return -timeout
	}
	return time.Since(v.entered) - timeout
}

// terminated ends a VM that does not run any more, and its grants.
func (c *state) terminated(v *vm) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for g := range v.held {
		if g.phase == leaving {
			c.free(g)
		}
	}
	switch {
	case len(v.held) == 0:
		c.forget(v)
	case v.failed == "": // it was given to a cache meanwhile, which does not happen
		c.failVM(v, "was terminated")
	}
	return nil
}

// forget removes a VM without grants. Called under mu.
func (c *state) forget(v *vm) {
	v.gone = true
	delete(c.orders, v.order)
	delete(c.warms, v)
	delete(c.reclaimed, v)
	if c.vms[v.id] == v {
		delete(c.vms, v.id)
		c.list(v)
	}
	c.touch(v)
}

// of reports whether a VM is of a pool's kind. Called under state.mu.
func (p WarmPool) of(v *vm) bool {
	return v.Type == p.Type && v.Spot == p.Spot && v.CloudRegion == p.CloudRegion
}
