package redytier

import (
	"context"
	"encoding/binary"
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
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
)

// forDevices runs a test over transports and configurations.
func forDevices(t *testing.T, vms int, memory int64, test func(t *testing.T, c *cluster, configuration Configuration)) {
	for _, name := range transporttest.Names(t) {
		for _, configuration := range configurations {
			t.Run(fmt.Sprintf("%s,s=%d,b=%d", name, configuration.ServerThreads, configuration.BatchSize), func(t *testing.T) {
				test(t, newCluster(t, name, vms, memory), configuration)
			})
		}
	}
}

func (c *cluster) open(t testing.TB, capacity int64, configuration Configuration) *Device {
	t.Helper()
	d, err := Open(t.Context(), c.client, Config{
		Capacity: capacity, Configuration: configuration, RegionSize: 16 << 10, Logger: slog.New(slog.DiscardHandler),
		ServerTimeout: testServerTimeout, reconnect: briefly,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// connected is a device whose queues have their connections and regions. The tests write many
// times the ring at once: writes that still waited for them would be lapped by later ones, which
// are then holes.
type connected struct{ *Device }

func (d connected) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	c, s := d.cache, q.(*deviceQueue).s.(*Session)
	for i, r := range c.table.Load().regions.all() {
		if err := c.prepare(c.ctx, s, r.endpoint, []place{{i, r.endpoint, r.index}}, controlTimeout); err != nil {
			return nil, errors.Join(err, q.Close())
		}
	}
	return q, nil
}

func TestDeviceConformance(t *testing.T) {
	for _, capacity := range []int64{300_000, 2 << 20} { // of the 1 MiB that the tests write
		t.Run(fmt.Sprintf("capacity=%d", capacity), func(t *testing.T) {
			forDevices(t, 2, 2<<20, func(t *testing.T, c *cluster, configuration Configuration) {
				devicetest.Run(t, func(t *testing.T) device.Device { return connected{c.open(t, capacity, configuration)} })
				c.nothingLeft(t)
			})
		})
	}
}

// word returns the eight bytes of the log at addr.
func word(addr int64) uint64 { return uint64(addr)*0x9e3779b97f4a7c15 + 1 }

// A log wraps many times around a small ring, written through two queues, while readers read
// everything that the device holds. A read returns the log's bytes or ErrNotHeld, never those
// of another lap.
func TestDeviceWrapsAround(t *testing.T) {
	forDevices(t, 2, 1<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		d := c.open(t, 100_000, configuration)
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}()
		const start, page, pages = 1 << 20, 3 << 10, 400
		if err := d.Start(start); err != nil {
			t.Fatal(err)
		}
		if begin := d.Begin(); d.Missing() != start-begin || start-begin > 100_000 || start-begin < 90_000 {
			t.Fatalf("Begin is %d and %d bytes are missing after Start(%d)", begin, d.Missing(), start)
		}
		var readers, writers sync.WaitGroup
		var written [pages]atomic.Bool
		var latest atomic.Int64
		writing, stop := context.WithCancel(t.Context())
		for id := range 2 {
			q := openQueue(t, d, 3)
			writers.Go(func() {
				defer closeQueue(t, q)
				for i := id; i < pages; i += 2 {
					src := make([]byte, page)
					addr := int64(start + page*i)
					for at := 0; at < page; at += 8 {
						binary.LittleEndian.PutUint64(src[at:], word(addr+int64(at)))
					}
					finish(t, q, func() error { return q.Write(src, addr, uint64(i)) }, func(c device.Completion) {
						// The other writer may be a lap ahead, or behind.
						if !errors.Is(c.Err, device.ErrNotHeld) && (c.Err != nil || c.N != page) {
							t.Errorf("write at %d: %+v", addr, c)
						}
					})
					written[i].Store(true)
					latest.Store(int64(i))
				}
			})
		}
		held := make([]int, 3)
		for id := range held {
			q := openQueue(t, d, 8)
			r := rand.New(rand.NewPCG(uint64(id), 4))
			readers.Go(func() {
				defer closeQueue(t, q)
				buf := make([]byte, 8*64)
				for writing.Err() == nil || held[id] == 0 {
					i := latest.Load() - r.Int64N(40)
					if i < 0 || !written[i].Load() {
						time.Sleep(10 * time.Microsecond)
						continue
					}
					n := 8 * (1 + r.IntN(64))
					addr := start + page*i + 8*r.Int64N((page-int64(n))/8+1)
					finish(t, q, func() error { return q.Read(buf[:n], addr, 1) }, func(c device.Completion) {
						// A writer a lap ahead makes a hole of the bytes before it raises Begin.
						for tries := 0; errors.Is(c.Err, device.ErrNotHeld) && tries < 1000; tries++ {
							if addr < d.Begin() || d.Missing() > 0 {
								return
							}
							time.Sleep(10 * time.Microsecond)
						}
						if c.Err != nil {
							t.Errorf("read at %d: %v", addr, c.Err)
							return
						}
						for at := 0; at < n; at += 8 {
							if got := binary.LittleEndian.Uint64(buf[at:]); got != word(addr+int64(at)) {
								t.Errorf("%v address %d reads %#x", testrun.ErrWrong, addr+int64(at), got)
								return
							}
						}
						held[id]++
					})
				}
			})
		}
		writers.Wait()
		stop()
		readers.Wait()
	})
}

func openQueue(t *testing.T, d *Device, depth int) device.Queue {
	t.Helper()
	q, err := d.NewQueue(depth)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func closeQueue(t *testing.T, q device.Queue) {
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// finish executes one operation alone. A refusal counts as a completion.
func finish(t testing.TB, q device.Queue, start func() error, check func(device.Completion)) {
	if err := start(); err != nil {
		check(device.Completion{Err: err})
		return
	}
	if err := waitPatiently(q); err != nil {
		t.Error(err)
		return
	}
	var done [1]device.Completion
	if q.Poll(done[:]) != 1 {
		t.Error("Wait returned and Poll has nothing")
		return
	}
	check(done[0])
}

// A device whose whole memory is lost continues, and holds nothing, until its cache is
// deleted.
func TestDeviceLosesMemory(t *testing.T) {
	forDevices(t, 1, 1<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		d := c.open(t, 100_000, configuration)
		if err := d.Start(0); err != nil {
			t.Fatal(err)
		}
		q := openQueue(t, d, 4)
		page := make([]byte, 1000)
		write := func() error { return q.Write(page, 0, 1) }
		finish(t, q, write, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		_ = c.servers[0].Close() // the cleanup reports its error
		finish(t, q, func() error { return q.Read(page, 0, 2) }, func(c device.Completion) {
			if !errors.Is(c.Err, ErrRegionUnavailable) {
				t.Errorf("read of lost memory: %+v", c)
			}
		})
		finish(t, q, write, func(c device.Completion) {
			if !errors.Is(c.Err, ErrRegionUnavailable) {
				t.Errorf("write to lost memory: %+v", c)
			}
		})
		finish(t, q, func() error { return q.Read(page[:1], 999, 2) }, func(c device.Completion) {
			if !errors.Is(c.Err, device.ErrNotHeld) {
				t.Errorf("read of what was not stored: %+v", c)
			}
		})
		if d.Begin() != 0 || d.Missing() != 1000 {
			t.Errorf("Begin is %d, %d bytes are missing after a write of 1000 at 0 failed", d.Begin(), d.Missing())
		}
		testrun.Until(t, "the cache knows the loss", func() bool { return d.Cache().Err() != nil })
		if err := d.Start(5000); err != nil || d.Missing() != 5000 {
			t.Errorf("Start: %v; %d bytes are missing", err, d.Missing())
		}
		if hole := d.Hole(maxLog, 1<<20); hole.From != hole.To {
			t.Errorf("hole %+v where there is no memory", hole)
		}
		closeQueue(t, q)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Start(6000); !errors.Is(err, ErrDeleted) {
			t.Errorf("Start on a deleted cache: %v", err)
		}
	})
}

// What was written to the log while the device was started again is a hole, which can be filled.
func TestDeviceMissesWhatWasWritten(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	d := c.open(t, 64<<10, configurations[0])
	if err := d.Start(1000); err != nil {
		t.Fatal(err)
	}
	d.Missed(1000, 1000)
	d.Missed(1000, 3000)
	q := openQueue(t, d, 1)
	page := make([]byte, 1000)
	read := func(addr int64, want error) {
		t.Helper()
		finish(t, q, func() error { return q.Read(page, addr, 2) }, func(c device.Completion) {
			if !errors.Is(c.Err, want) {
				t.Errorf("read at %d: %+v, want %v", addr, c, want)
			}
		})
	}
	finish(t, q, func() error { return q.Write(page, 3000, 1) }, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	read(1000, device.ErrNotHeld)
	read(2000, device.ErrNotHeld)
	read(3000, nil)
	hole := d.Hole(maxLog, 3000)
	if hole.From != 0 || hole.To != 3000 || d.Missing() != 3000 {
		t.Errorf("the hole is %+v, and %d bytes are missing", hole, d.Missing())
	}
	refill := func() error { return q.(device.RefillQueue).Refill(make([]byte, 3000), hole, 3) }
	finish(t, q, refill, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	read(1000, nil)
	read(2000, nil)
	closeQueue(t, q)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A write whose place is still being written with the previous lap becomes a hole, which can
// be filled when that write has ended.
func TestDeviceMissesWhatItCannotPlace(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	d := c.open(t, 64<<10, configurations[0])
	slow, fast := openQueue(t, d, 1), openQueue(t, d, 1)
	page := make([]byte, 1000)
	if err := slow.Write(page, 0, 1); err != nil { // and not polled
		t.Fatal(err)
	}
	again := int64(64 << 10)
	finish(t, fast, func() error { return fast.Write(page, again, 1) }, func(c device.Completion) {
		if !errors.Is(c.Err, device.ErrNotHeld) || c.N != 0 {
			t.Errorf("write in the way: %+v", c)
		}
	})
	if d.Begin() != 2<<10 || d.Missing() != 1000 { // a segment, and the write
		t.Errorf("Begin is %d, %d bytes are missing", d.Begin(), d.Missing())
	}
	read := func(want error) {
		t.Helper()
		finish(t, fast, func() error { return fast.Read(page, again, 2) }, func(c device.Completion) {
			if !errors.Is(c.Err, want) {
				t.Errorf("read of it: %+v, want %v", c, want)
			}
		})
	}
	read(device.ErrNotHeld)
	hole := d.Hole(maxLog, 1<<20)
	if hole.From != again || hole.To != again+1000 {
		t.Errorf("the hole is %+v", hole)
	}
	refill := func(want error) {
		t.Helper()
		q := fast.(device.RefillQueue)
		finish(t, fast, func() error { return q.Refill(page, hole, 3) }, func(c device.Completion) {
			if !errors.Is(c.Err, want) {
				t.Errorf("refill: %+v, want %v", c, want)
			}
		})
	}
	refill(device.ErrNotHeld)
	closeQueue(t, slow)
	refill(nil)
	read(nil)
	refill(device.ErrNotHeld) // the hole is filled
	closeQueue(t, fast)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A tiered log continues without an error when its cache dies.
func TestTieredOutlivesCache(t *testing.T) {
	forDevices(t, 2, 1<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		const page, pages = 4 << 10, 200
		tiered := device.NewTieredWith(device.TieredOptions{Logger: slog.New(slog.DiscardHandler)},
			c.open(t, 500_000, configuration), device.NewMemory())
		if err := tiered.Start(0); err != nil {
			t.Fatal(err)
		}
		p := devicetest.NewPump(t, tiered, 16)
		r := rand.New(rand.NewPCG(6, 6))
		log := make([]byte, pages*page)
		for i := range log {
			log[i] = byte(r.Uint32())
		}
		for i := range pages {
			if i == pages/2 {
				_ = c.servers[1].Close() // the cleanup reports its error
			}
			at := i * page
			p.Write(append([]byte(nil), log[at:at+page]...), int64(at), nil)
			p.Drain()
			for range 20 {
				addr := r.IntN(at + page)
				n := 1 + r.IntN(min(2*page, at+page-addr))
				p.Read(make([]byte, n), int64(addr), log[addr:addr+n])
			}
		}
		p.Close()
		if err := tiered.Close(); err != nil {
			t.Error(err)
		}
	})
}
