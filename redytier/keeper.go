package redytier

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// keeper does what the cache's VMs make necessary, one thing after the other:
// what was lost is replaced, and what is reclaimed is moved away in time.
type keeper struct {
	cache   *Cache
	running sync.WaitGroup
	news    chan struct{} // holds a token while there is something to do

	mu    sync.Mutex
	tasks []task
}

// task is about one VM or grant. It is tried again until it succeeds, has no
// object any more, or its deadline is past. A move that is only cheaper is tried
// once: if it is still worth it, the manager proposes it again.
type task struct {
	lost     *grant    // to be replaced, or
	leaving  string    // VM to be left
	deadline time.Time // of leaving; or
	dear     []string  // VMs that are better left together
	tries    int
	next     time.Time
}

func newKeeper(c *Cache) *keeper {
	return &keeper{cache: c, news: make(chan struct{}, 1)}
}

func (k *keeper) start() { k.running.Go(k.run) }

// stop returns when the keeper has ended. The cache's context has ended before.
func (k *keeper) stop() { k.running.Wait() }

func (k *keeper) lost(g *grant) { k.add(task{lost: g}) }

func (k *keeper) reclaimed(vm string, deadline time.Time) {
	k.add(task{leaving: vm, deadline: deadline})
}

func (k *keeper) dear(vms []string) { k.add(task{dear: vms}) }

func (k *keeper) add(t task) {
	k.mu.Lock()
	k.tasks = append(k.tasks, t)
	k.mu.Unlock()
	offer(k.news)
}

// due takes the most urgent task that is to be done now, or says when the next one is.
func (k *keeper) due(now time.Time) (_ task, ok bool, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := -1
	for i, t := range k.tasks {
		switch {
		case !t.next.After(now):
			if at < 0 || t.before(k.tasks[at]) {
				at = i
			}
		case next.IsZero() || t.next.Before(next):
			next = t.next
		}
	}
	if at < 0 {
		return task{}, false, next
	}
	t := k.tasks[at]
	k.tasks = slices.Delete(k.tasks, at, at+1)
	return t, true, next
}

// before says whether a task comes before one that is older: what will be lost, by its
// deadline, before what is lost, and that before what is only dear.
func (t task) before(o task) bool {
	if t.rank() != o.rank() {
		return t.rank() < o.rank()
	}
	return t.deadline.Before(o.deadline)
}

func (t task) rank() int {
	switch {
	case t.leaving != "":
		return 0
	case t.lost != nil:
		return 1
	}
	return 2
}

func (k *keeper) run() {
	for k.cache.ctx.Err() == nil {
		now := time.Now()
		t, ok, next := k.due(now)
		if ok {
			k.do(t)
			continue
		}
		var alarm <-chan time.Time
		if !next.IsZero() {
			alarm = time.After(next.Sub(now))
		}
		select {
		case <-k.news:
		case <-alarm:
		case <-k.cache.ctx.Done():
		}
	}
}

// do carries out a task, and puts it back where it has to be tried again.
func (k *keeper) do(t task) {
	c, ctx := k.cache, k.cache.ctx
	var err error
	if t.dear != nil {
		err = c.inTurn(ctx, func(ctx context.Context) error { return c.migrate(ctx, t.dear, true) })
		if err != nil && c.ctx.Err() == nil && !errors.Is(err, ErrDeleted) {
			c.log.Info("cache stays although others are cheaper", "vms", t.dear, "err", err)
		}
		return
	}
	if t.lost != nil {
		err = c.replaceLost(ctx, t.lost)
	} else {
		ctx, cancel := context.WithDeadline(ctx, t.deadline)
		err = c.inTurn(ctx, func(ctx context.Context) error { return c.migrate(ctx, []string{t.leaving}, false) })
		cancel()
	}
	if err == nil || c.ctx.Err() != nil || errors.Is(err, ErrDeleted) {
		return
	}
	if errors.Is(err, errOver) {
		c.log.Warn("the cache is not allocated anew", "err", err)
		return
	}
	vm := t.leaving
	if t.lost != nil {
		vm = t.lost.vm
	}
	now := time.Now()
	t.tries++
	t.next = now.Add(min(firstPause<<min(t.tries, 10), longPause))
	again := t.lost != nil || t.next.Before(t.deadline)
	c.log.Warn("VM not replaced", "vm", vm, "again", again, "err", err)
	if again {
		k.add(t)
	}
}
