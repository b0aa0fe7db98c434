package redytier

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// Several goroutines write and read a log while parts of the memory below it are lost,
// restored as zeros, and refilled. Every read is correct, and at the end nothing is missing.
func TestRefillUnderLoad(t *testing.T) {
	forDevices(t, 2, 1<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		const page, pages, capacity = 4 << 10, 250, 300_000
		log := make([]byte, pages*page)
		r := rand.New(rand.NewPCG(8, 8))
		for i := range log {
			log[i] = byte(1 + r.IntN(255))
		}
		d := &shaky{Device: c.open(t, capacity, configuration)}
		tiered := device.NewTieredWith(device.TieredOptions{
			Logger: slog.New(slog.DiscardHandler), RefillRate: 1 << 40,
		}, d, device.NewMemory())
		if err := tiered.Start(0); err != nil {
			t.Fatal(err)
		}
		var settled atomic.Int64 // may be read below it
		var reads atomic.Int64
		var work, chaos sync.WaitGroup
		var stop atomic.Bool
		work.Go(func() {
			p := devicetest.NewPump(t, tiered, 8)
			defer p.Close()
			for at := 0; at < len(log); at += page {
				p.Write(append([]byte(nil), log[at:at+page]...), int64(at), nil)
				if at/page%4 == 3 {
					p.Drain()
					settled.Store(int64(at + page))
					for n := reads.Load() + 30; reads.Load() < n && !t.Failed(); { // so that the readers keep up
						time.Sleep(10 * time.Microsecond)
					}
				}
			}
			p.Drain()
			settled.Store(int64(len(log)))
		})
		for id := range 2 {
			work.Go(func() {
				p := devicetest.NewPump(t, tiered, 16)
				defer p.Close()
				r := rand.New(rand.NewPCG(uint64(id), 9))
				for end := 0; end < len(log); {
					end = int(settled.Load())
					if end == 0 {
						time.Sleep(10 * time.Microsecond)
						continue
					}
					addr := r.IntN(end)
					if r.IntN(4) > 0 {
						addr = max(0, end-1-r.IntN(capacity))
					}
					n := 1 + r.IntN(min(2*page, end-addr))
					p.Read(make([]byte, n), int64(addr), log[addr:addr+n])
					reads.Add(1)
				}
			})
		}
		chaos.Go(func() {
			s := newSession(t, d.Cache(), 1)
			r := rand.New(rand.NewPCG(3, 3))
			for !stop.Load() {
				from := r.Int64N(capacity)
				at := span{from, min(capacity, from+1+r.Int64N(capacity/3))}
				d.lose(at)
				for end := settled.Load(); end == settled.Load() && !stop.Load(); {
					time.Sleep(10 * time.Microsecond)
				}
				d.restore(t, s, at)
				if r.IntN(2) == 0 {
					for end := settled.Load() + 8*page; settled.Load() < end && !stop.Load(); {
						time.Sleep(10 * time.Microsecond)
					}
				}
			}
		})
		work.Wait()
		stop.Store(true)
		chaos.Wait()
		// All of the bytes lost so far may have been overwritten before they were restored.
		at := span{0, capacity / 3}
		d.lose(at)
		d.restore(t, newSession(t, d.Cache(), 1), at)
		testrun.Until(t, "all missing bytes are refilled", func() bool { m := tiered.Metrics()[0]; return m.Missing == 0 && m.Refilled > 0 })
		m := tiered.Metrics()
		if !m[0].Healthy || m[0].Refilled == 0 || m[0].Hits == 0 || m[1].Hits == 0 {
			t.Errorf("metrics %+v", m)
		}
		p := devicetest.NewPump(t, d, 4)
		for at := int(d.Begin()); at < len(log); {
			n := min(page, len(log)-at)
			p.Read(make([]byte, n), int64(at), log[at:at+n])
			at += n
		}
		p.Close()
		if err := tiered.Close(); err != nil {
			t.Error(err)
		}
	})
}

// shaky is a Device whose memory can be lost.
type shaky struct {
	*Device
	mu   sync.RWMutex
	gone spans
}

func (d *shaky) lose(at span) {
	d.mu.Lock()
	d.gone = d.gone.add(at)
	d.mu.Unlock()
	d.lost(at)
}

// restore replaces lost memory with zeros.
func (d *shaky) restore(t *testing.T, s *Session, at span) {
	finish(t, s, func() error { return s.Write(make([]byte, at.to-at.from), at.from, 0) }, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	d.restored(at)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.gone.cut(at)
}

func (d *shaky) NewQueue(depth int) (device.Queue, error) { return d.NewRefillQueue(depth) }

func (d *shaky) NewRefillQueue(depth int) (device.RefillQueue, error) {
	s, err := d.Cache().newSession(depth, d.segments.size)
	if err != nil {
		return nil, err
	}
	return newDeviceQueue(d.Device, &shakySession{Session: s, d: d, at: make([]extent, depth)}, depth), nil
}

// shakySession fails operations that overlap lost memory when they begin or end.
type shakySession struct {
	*Session
	d  *shaky
	at []extent // by tag
}

type extent struct {
	addr int64
	n    int
}

func (s *shakySession) Read(dst []byte, addr int64, tag uint64) error {
	s.at[tag] = extent{addr, len(dst)}
	return s.Session.Read(dst, addr, tag)
}

func (s *shakySession) Write(src []byte, addr int64, tag uint64) error {
	s.at[tag] = extent{addr, len(src)}
	if s.lost(tag) {
		src = nil // must not reach the new memory
		s.at[tag].n = -s.at[tag].n
	}
	return s.Session.Write(src, addr, tag)
}

func (s *shakySession) Poll(done []device.Completion) int {
	n := s.Session.Poll(done)
	for i := range done[:n] {
		if tag := done[i].Tag; s.at[tag].n < 0 || s.lost(tag) {
			done[i].N, done[i].Err = 0, fmt.Errorf("%w: lost", ErrRegionUnavailable)
		}
	}
	return n
}

func (s *shakySession) lost(tag uint64) bool {
	a, size := s.at[tag], s.d.segments.size
	s.d.mu.RLock()
	defer s.d.mu.RUnlock()
	end := a.addr + int64(a.n)
	return s.d.gone.overlap(span{a.addr, min(end, size)}) || s.d.gone.overlap(span{0, end - size})
}

// A queue that is opened while a VM is lost, before the cache knows it, uses the other VMs.
func TestQueueWhileMemoryIsLost(t *testing.T) {
	forDevices(t, 2, 1<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		const capacity = 200_000
		d := c.open(t, capacity, configuration)
		if err := d.Start(0); err != nil {
			t.Fatal(err)
		}
		first := openQueue(t, d, 1)
		buf := make([]byte, capacity)
		finish(t, first, func() error { return first.Write(buf[:1000], 0, 1) }, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		_ = c.servers[1].Close() // the cleanup reports its error
		opened := make(chan device.Queue, 1)
		go func() {
			q, err := d.NewQueue(1)
			if err != nil {
				t.Error(err)
			}
			opened <- q
		}()
		// A write to the lost VM detects the loss, unless NewQueue does.
		wrote := false
		finish(t, first, func() error { return first.Write(buf[1000:190_000], 1000, 1) }, func(c device.Completion) {
			if c.Err != nil && !errors.Is(c.Err, device.ErrNotHeld) {
				t.Errorf("write to lost memory: %+v", c)
			}
			wrote = c.Err == nil
		})
		if wrote { // NewQueue has detected the loss, and the memory was replaced before the write
			got := make([]byte, 189_000)
			finish(t, first, func() error { return first.Read(got, 1000, 1) }, func(c device.Completion) {
				if !errors.Is(c.Err, device.ErrNotHeld) {
					testrun.Bytes(got, c.Err).Want(t, buf[1000:190_000], "what was written")
				}
			})
		}
		if second := testrun.Receive(t, "the second queue opens", opened); second != nil {
			finish(t, second, func() error { return second.Read(buf[:1000], 0, 1) }, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
			})
			closeQueue(t, second)
		}
		closeQueue(t, first)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}
