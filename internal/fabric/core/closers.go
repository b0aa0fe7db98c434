package core

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// Closers is the set of objects that a provider closes with itself. It is safe for
// concurrent use.
type Closers struct {
	mu     sync.Mutex
	closed bool
	all    map[io.Closer]struct{}
}

// Add adds x. After Close it returns false and adds nothing.
func (c *Closers) Add(x io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.all == nil {
		c.all = map[io.Closer]struct{}{}
	}
	c.all[x] = struct{}{}
	return true
}

// Remove removes x.
func (c *Closers) Remove(x io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, x)
}

// Append appends the objects to dst, in no order.
func (c *Closers) Append(dst []io.Closer) []io.Closer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.AppendSeq(dst, maps.Keys(c.all))
}

// Close closes all objects, in no order.
func (c *Closers) Close() (err error) {
	c.mu.Lock()
	c.closed = true
	left := c.all
	c.all = nil
	c.mu.Unlock()
	for x := range left {
		err = errors.Join(err, x.Close())
	}
	return err
}
