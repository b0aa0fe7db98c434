package redytier

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

const (
	clientDepth = 256  // requests that the client thread has under way
	clientRing  = 1024 // requests that may wait for it, a power of two
	clientSpins = 64   // rounds without work before it parks
)

// Callback is told how a request ended: bytes read or written, or an error. It
// runs on the cache's client thread, must not block, and issues further requests
// by the Try forms only. A panic in it is recovered, logged and counted (A7).
type Callback func(n int, err error)

// call is one request of the callback API.
type call struct {
	write bool
	buf   []byte
	addr  int64
	cb    Callback
}

// Client is an application thread's handle on the callback API (A3). Requests of
// one handle on overlapping bytes execute in the order of the calls that returned
// nil; between handles nothing is promised. A handle is safe for concurrent use,
// holds nothing, and needs no closing.
type Client struct{ thread *clientThread }

// NewClient returns a new handle.
func (c *Cache) NewClient() *Client { return &Client{c.client} }

// Read fills dst from addr and then calls cb, once. dst belongs to the cache
// until then. Where too many requests wait, Read waits, until ctx ends.
func (k *Client) Read(ctx context.Context, dst []byte, addr int64, cb Callback) error {
	return k.thread.call(ctx, call{buf: dst, addr: addr, cb: cb})
}

// Write stores src at addr and then calls cb, like Read.
func (k *Client) Write(ctx context.Context, src []byte, addr int64, cb Callback) error {
	return k.thread.call(ctx, call{buf: src, addr: addr, cb: cb, write: true})
}

// TryRead is Read that returns ErrBusy instead of waiting.
func (k *Client) TryRead(dst []byte, addr int64, cb Callback) error {
	return k.thread.try(call{buf: dst, addr: addr, cb: cb})
}

// TryWrite is Write that returns ErrBusy instead of waiting.
func (k *Client) TryWrite(src []byte, addr int64, cb Callback) error {
	return k.thread.try(call{buf: src, addr: addr, cb: cb, write: true})
}

// Read is [Client.Read] by the cache's own handle.
func (c *Cache) Read(ctx context.Context, dst []byte, addr int64, cb Callback) error {
	return c.client.call(ctx, call{buf: dst, addr: addr, cb: cb})
}

// Write is [Client.Write] by the cache's own handle.
func (c *Cache) Write(ctx context.Context, src []byte, addr int64, cb Callback) error {
	return c.client.call(ctx, call{buf: src, addr: addr, cb: cb, write: true})
}

// TryRead is [Client.TryRead] by the cache's own handle.
func (c *Cache) TryRead(dst []byte, addr int64, cb Callback) error {
	return c.client.try(call{buf: dst, addr: addr, cb: cb})
}

// TryWrite is [Client.TryWrite] by the cache's own handle.
func (c *Cache) TryWrite(src []byte, addr int64, cb Callback) error {
	return c.client.try(call{buf: src, addr: addr, cb: cb, write: true})
}

// clientThread is the goroutine behind the callback API: it moves calls from the
// batch ring into a session of its own and calls back.
type clientThread struct {
	cache   *Cache
	session *Session
	ring    *batchRing
	under   []call   // under way, by tag
	free    []uint64 // tags not in use
	done    [pollBatch]device.Completion

	// A producer that finds parked set, after its push, wakes the thread; the
	// thread looks at the ring once more after it has set parked. One of the
	// two sees the other.
	parked atomic.Bool
	wake   chan struct{} // holds one token
	// room wakes producers that wait for a full ring: each passes it on.
	room chan struct{} // holds one token

	// A producer raises pushing, then looks at closing; the thread sets closing,
	// then waits for pushing to fall to 0. What is in the ring then is all.
	pushing atomic.Int64
	closing atomic.Bool
	stopped chan error
}

func startClientThread(c *Cache, s *Session) *clientThread {
	t := &clientThread{
		cache: c, session: s, ring: newBatchRing(clientRing),
		under: make([]call, clientDepth), free: make([]uint64, clientDepth),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), stopped: make(chan error, 1),
	}
	for i := range t.free {
		t.free[i] = uint64(i)
	}
	go t.run()
	return t
}

// try checks a call and pushes it.
func (t *clientThread) try(c call) error {
	if c.cb == nil {
		return errors.New("redytier: no callback")
	}
	if n, capacity := int64(len(c.buf)), t.cache.Capacity(); c.addr < 0 || c.addr > capacity-n {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, c.addr, capacity)
	}
	t.pushing.Add(1)
	defer t.pushing.Add(-1)
	if t.closing.Load() || t.cache.deleted.Load() {
		return ErrDeleted
	}
	if !t.ring.push(c) {
		return ErrBusy
	}
	if t.parked.Load() {
		t.rouse()
	}
	return nil
}

// call is try that waits while the ring is full.
func (t *clientThread) call(ctx context.Context, c call) error {
	for {
		err := t.try(c)
		if !errors.Is(err, ErrBusy) {
			offer(t.room) // there may be more room, for another that waits
			return err
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rouse ends the thread's sleep, or the next one.
func (t *clientThread) rouse() {
	offer(t.wake)
	t.cache.mu.Lock()
	t.session.wake()
	t.cache.mu.Unlock()
}

func offer(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// stop ends the thread: everything in it is called back with ErrDeleted first.
// The cache is deleted already.
func (t *clientThread) stop() error {
	t.closing.Store(true)
	t.rouse()
	return <-t.stopped
}

func (t *clientThread) run() {
	idle := 0
	for {
		switch {
		case t.step():
			idle = 0
		case t.closing.Load() && t.pushing.Load() == 0 && t.ring.peek() == nil && t.session.underway == 0:
			offer(t.room)
			t.stopped <- t.session.Close()
			return
		case idle < clientSpins || t.closing.Load():
			idle++
			runtime.Gosched()
		default:
			t.park()
			idle = 0
		}
	}
}

// step takes in waiting calls, submits them, delivers completions, and says
// whether there was anything to do.
func (t *clientThread) step() bool {
	taken := 0
	for len(t.free) > 0 {
		c := t.ring.peek()
		if c == nil || !t.begin(*c) {
			break
		}
		t.ring.drop()
		taken++
	}
	if taken > 0 {
		offer(t.room)
		// After Close of the session only: it is this thread that closes it.
		_ = t.session.Submit()
	}
	n := t.session.Poll(t.done[:])
	for _, d := range t.done[:n] {
		c := t.under[d.Tag]
		t.under[d.Tag] = call{}
		t.free = append(t.free, d.Tag)
		t.callBack(c.cb, d.N, d.Err)
	}
	return taken+n > 0
}

// begin starts a call, or returns false if the session is full.
func (t *clientThread) begin(c call) bool {
	tag := t.free[len(t.free)-1]
	var err error
	if c.write {
		err = t.session.Write(c.buf, c.addr, tag)
	} else {
		err = t.session.Read(c.buf, c.addr, tag)
	}
	if errors.Is(err, device.ErrQueueFull) {
		return false
	}
	if err != nil {
		t.callBack(c.cb, 0, err)
		return true
	}
	t.under[tag] = c
	t.free = t.free[:len(t.free)-1]
	return true
}

func (t *clientThread) callBack(cb Callback, n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.cache.panics.Add(1)
			t.cache.log.Error("callback panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	cb(n, err)
}

// park sleeps until a call comes in, a completion is there, or the cache changes.
func (t *clientThread) park() {
	t.parked.Store(true)
	defer t.parked.Store(false)
	if t.ring.peek() != nil && len(t.free) > 0 || t.closing.Load() {
		return
	}
	if t.session.underway > 0 {
		// Any reason to return is found by the next step.
		_ = t.session.park(context.Background())
		return
	}
	<-t.wake
}
