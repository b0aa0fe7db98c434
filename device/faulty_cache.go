package device

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// writeCache holds the writes of a Faulty that were not synced, as a disk's memory does.
type writeCache struct {
	inner Device

	flushing sync.Mutex // one flush at a time; taken before mu
	mu       sync.Mutex
	extents  []extent // oldest first
}

// extent is one write. Its bytes never change.
type extent struct {
	addr int64
	data []byte
}

func (e extent) end() int64 { return e.addr + int64(len(e.data)) }

// add keeps a copy of src.
func (c *writeCache) add(src []byte, addr int64) {
	data := AlignedBuffer(len(src), c.inner.Alignment())
	copy(data, src)
	c.mu.Lock()
	c.extents = append(c.extents, extent{addr, data})
	c.mu.Unlock()
}

// drop forgets all writes.
func (c *writeCache) drop() {
	c.mu.Lock()
	c.extents = nil
	c.mu.Unlock()
}

// over returns the extents that overlap n bytes at addr, oldest first, and the part of the
// range to read from the inner device: what extents do not cover at either end.
func (c *writeCache) over(n int, addr int64) (found []extent, from, to int64) {
	from, to = addr, addr+int64(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.extents {
		if e.addr < to && e.end() > from {
			found = append(found, e)
		}
	}
	for moved := true; moved && from < to; {
		moved = false
		for _, e := range found {
			if e.addr <= from && e.end() > from {
				from, moved = e.end(), true
			}
			if e.addr < to && e.end() >= to {
				to, moved = e.addr, true
			}
		}
	}
	return found, from, max(from, to)
}

// patch copies the extents over dst, which was read from addr.
func patch(dst []byte, addr int64, over []extent) {
	for _, e := range over {
		if skip := addr - e.addr; skip >= 0 {
			copy(dst, e.data[skip:])
		} else {
			copy(dst[-skip:], e.data)
		}
	}
}

// flush stores everything that is in the cache now.
func (c *writeCache) flush() error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.mu.Lock()
	all := slices.Clone(c.extents)
	c.mu.Unlock()
	if err := c.write(all); err != nil {
		return err
	}
	c.mu.Lock()
	// Start may have dropped them meanwhile.
	c.extents = c.extents[min(len(all), len(c.extents)):]
	c.mu.Unlock()
	return nil
}

// crash stores the extents that keep says, makes them durable, and forgets the
// rest.
func (c *writeCache) crash(keep func() bool) error {
	c.mu.Lock()
	kept := slices.DeleteFunc(c.extents, func(extent) bool { return !keep() })
	c.extents = nil
	c.mu.Unlock()
	return errors.Join(c.write(kept), c.inner.Sync())
}

// write stores extents on the inner device, one after another, so that the
// later one wins where they overlap.
func (c *writeCache) write(extents []extent) error {
	if len(extents) == 0 {
		return nil
	}
	q, err := c.inner.NewQueue(1)
	if err != nil {
		return err
	}
	for _, e := range extents {
		if err = Finish(context.Background(), q, q.Write(e.data, e.addr, 0)); err != nil {
			break
		}
	}
	return errors.Join(err, q.Close())
}
