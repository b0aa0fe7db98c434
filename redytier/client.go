package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Callback receives a request's result: bytes read or written, or an error. It runs on a
// client thread of the cache, must not block, and issues further requests by the Try forms
// only. A panic in it is recovered, logged and counted (A7).
type Callback func(n int, err error)

// call is one request of the callback API.
type call struct {
	write bool
	buf   []byte
	addr  int64
	cb    Callback
}

// Client is an application thread's handle for the callback API (A3). Requests of one handle
// on overlapping bytes execute in the order of the calls that returned nil, also across a
// Reconfigure; there is no order between handles. Handles are assigned to the cache's client
// threads round-robin (A5). On many VMs, where a thread's connections would be too many, each
// VM is served by some of the threads, and a handle uses one of them for each VM; a request to
// several VMs is split, and its parts execute at the same time. A handle is safe for concurrent
// use and need not be closed.
type Client struct {
	clients   *clients
	number    uint32
	splitting sync.Mutex // held while a call is split: see trySplit
}

// NewClient returns a new handle.
func (c *Cache) NewClient() *Client { return c.clients.handle() }

// Read fills dst from addr and then calls cb, once. dst belongs to the cache until then. If
// too many requests wait, Read waits until ctx ends.
func (k *Client) Read(ctx context.Context, dst []byte, addr int64, cb Callback) error {
	return k.call(ctx, call{buf: dst, addr: addr, cb: cb})
}

// Write stores src at addr and then calls cb, like Read.
func (k *Client) Write(ctx context.Context, src []byte, addr int64, cb Callback) error {
	return k.call(ctx, call{buf: src, addr: addr, cb: cb, write: true})
}

// TryRead is Read that returns ErrBusy instead of waiting.
func (k *Client) TryRead(dst []byte, addr int64, cb Callback) error {
	_, err := k.try(call{buf: dst, addr: addr, cb: cb})
	return err
}

// TryWrite is Write that returns ErrBusy instead of waiting.
func (k *Client) TryWrite(src []byte, addr int64, cb Callback) error {
	_, err := k.try(call{buf: src, addr: addr, cb: cb, write: true})
	return err
}

// Read is [Client.Read] by the cache's own handle.
func (c *Cache) Read(ctx context.Context, dst []byte, addr int64, cb Callback) error {
	return c.clients.own.Read(ctx, dst, addr, cb)
}

// Write is [Client.Write] by the cache's own handle.
func (c *Cache) Write(ctx context.Context, src []byte, addr int64, cb Callback) error {
	return c.clients.own.Write(ctx, src, addr, cb)
}

// TryRead is [Client.TryRead] by the cache's own handle.
func (c *Cache) TryRead(dst []byte, addr int64, cb Callback) error {
	return c.clients.own.TryRead(dst, addr, cb)
}

// TryWrite is [Client.TryWrite] by the cache's own handle.
func (c *Cache) TryWrite(src []byte, addr int64, cb Callback) error {
	return c.clients.own.TryWrite(src, addr, cb)
}

// try checks a call and pushes it to the handle's thread for its address. It returns the thread,
// or another one that has no room.
func (k *Client) try(c call) (*clientThread, error) {
	cache := k.clients.cache
	if c.cb == nil {
		return nil, errors.New("redytier: no callback")
	}
	if n, capacity := int64(len(c.buf)), cache.Capacity(); c.addr < 0 || c.addr > capacity-n {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, c.addr, capacity)
	}
	for {
		set := k.clients.threadSet.Load()
		t := set.thread(k.number, c.addr)
		if cache.deleted.Load() {
			return t, ErrDeleted
		}
		var result pushed
		switch {
		case set.spans(&c):
			t, result = k.trySplit(set, c)
		case set.routing != nil && t.overflow.some.Load():
			result = pushFull
		default:
			result = t.push(c)
		}
		switch result {
		case pushOK:
			return t, nil
		case pushFull:
			return t, ErrBusy
		}
		// Another set was published before this one's rings were closed, or the cache is
		// deleted.
	}
}

// call is try that waits while the ring is full.
func (k *Client) call(ctx context.Context, c call) error {
	var waited *clientThread
	for {
		t, err := k.try(c)
		if waited != nil && t != waited {
			offer(waited.room) // it has been replaced: all who wait for it go on elsewhere
		}
		if !errors.Is(err, ErrBusy) {
			if t != nil {
				offer(t.room) // another waiting caller may find room too
			}
			return err
		}
		select {
		case <-t.room:
			waited = t
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
