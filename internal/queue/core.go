package queue

import (
	"context"
	"sync"
)

// MaxDepth is the largest number of operations that a queue can be made for.
const MaxDepth = 1 << 16

// Core is a queue's operations at a Pool, by number. Its owner is the goroutine of the
// queue; the goroutines of the pool hand an operation back through done, and only that
// takes a lock. An operation passes through
//
//	Take → Enqueue → Submit → (the pool runs it) → Gather → Ready → Next → Free
//
// or is ended by its owner: Take → End → Ready → Next → Free.
type Core struct {
	pool     *Pool
	jobs     []Job // by number
	free     freeNumbers
	enqueued List
	atPool   int      // operations that were submitted and not gathered
	ready    []uint32 // operations that are over, from taken on
	taken    int

	mu      sync.Mutex    // guards done, waiting and wake
	done    []uint32      // operations that the pool has run
	waiting bool          // the owner is about to park
	wake    func()        // wakes the owner; nil if it parks in Park
	woken   chan struct{} // one token for an owner in Park
}

// NewCore returns a Core of depth operations. A goroutine of the pool calls run with the
// number of an operation, and with closed if the pool was closed before.
func NewCore(pool *Pool, depth int, run func(n uint32, closed bool)) *Core {
	c := &Core{
		pool: pool, jobs: make([]Job, depth), free: newFreeNumbers(depth),
		ready: make([]uint32, 0, depth), done: make([]uint32, 0, depth), woken: make(chan struct{}, 1),
	}
	for i := range c.jobs {
		n := uint32(i)
		c.jobs[i].Run = func(closed bool) {
			run(n, closed)
			c.complete(n)
		}
	}
	return c
}

// Take returns the number of a new operation; ok is false if depth are pending.
func (c *Core) Take() (n uint32, ok bool) { return c.free.take() }

// Enqueue adds an operation to those that Submit starts.
func (c *Core) Enqueue(n uint32) { c.enqueued.Push(&c.jobs[n]) }

// Submit hands what was enqueued to the pool.
func (c *Core) Submit() {
	if n := c.enqueued.Len(); n > 0 {
		c.atPool += n
		c.pool.Submit(&c.enqueued)
	}
}

// SubmitNow hands one operation to the pool, ahead of what is enqueued.
func (c *Core) SubmitNow(n uint32) {
	var one List
	one.Push(&c.jobs[n])
	c.atPool++
	c.pool.Submit(&one)
}

// End adds an operation to Ready that the pool was not given.
func (c *Core) End(n uint32) {
	c.ready = append(c.ready, n)
}

// complete hands an operation back to the owner, and wakes it if it waits. It runs on the
// goroutines of the pool.
func (c *Core) complete(n uint32) {
	c.mu.Lock()
	c.done = append(c.done, n)
	waiting, wake := c.waiting, c.wake
	c.waiting = false
	c.mu.Unlock()
	switch {
	case !waiting:
	case wake != nil:
		wake()
	default:
		select {
		case c.woken <- struct{}{}:
		default: // there is a token already
		}
	}
}

// Gather adds what the pool has run to Ready.
func (c *Core) Gather() {
	if c.atPool == 0 {
		return
	}
	c.mu.Lock()
	c.ready = append(c.ready, c.done...)
	c.atPool -= len(c.done)
	c.done = c.done[:0]
	c.mu.Unlock()
}

// Ready returns the operations that are over, the oldest first. It is valid until the next
// call of another method.
func (c *Core) Ready() []uint32 { return c.ready[c.taken:] }

// Next removes the first of Ready.
func (c *Core) Next() {
	if c.taken++; c.taken == len(c.ready) {
		c.ready, c.taken = c.ready[:0], 0
	}
}

// Free gives the number of an operation back.
func (c *Core) Free(n uint32) { c.free = append(c.free, n) }

// Len is the number of operations from Take until Free.
func (c *Core) Len() int { return len(c.jobs) - len(c.free) }

// WakeWith sets the function that wakes the owner when it waits elsewhere than in Park, or
// nil.
func (c *Core) WakeWith(wake func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = wake
}

// WantWake asks for a wake by the next operation that the pool completes. It returns false
// if there is one to gather already.
func (c *Core) WantWake() bool {
	if c.atPool == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = len(c.done) == 0
	return c.waiting
}

// Park returns after a wake that WantWake has asked for, or when ctx ends.
func (c *Core) Park(ctx context.Context) error {
	select {
	case <-c.woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
