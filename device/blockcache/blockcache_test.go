package blockcache

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/device/internal/progress"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ssdtier"
)

func TestMain(m *testing.M) { testrun.Main(m) }

func cached(t *testing.T, dev device.Device, opts Options) *Cache {
	t.Helper()
	if opts.Capacity == 0 {
		opts.Capacity = MinCapacity
	}
	c, err := New(dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	for _, block := range []int{512, 4 << 10, 64 << 10} {
		t.Run(fmt.Sprintf("memory, blocks of %d", block), func(t *testing.T) {
			var inner *device.Memory
			devicetest.Run(t, func(t *testing.T) device.Device {
				inner = device.NewMemory()
				return cached(t, inner, Options{Block: block})
			}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device {
				inner = inner.Reopen()
				return cached(t, inner, Options{Block: block})
			}))
		})
	}
	t.Run("ssd", func(t *testing.T) {
		var dir string
		open := func(t *testing.T) device.Device {
			d, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return cached(t, d, Options{})
		}
		devicetest.Run(t, func(t *testing.T) device.Device {
			dir = t.TempDir()
			return open(t)
		}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device { return open(t) }))
	})
	t.Run("below a tier", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) device.Device {
			small := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 300_000})
			return device.NewTiered(small, cached(t, device.NewMemory(), Options{}))
		})
	})
	t.Run("faulty", func(t *testing.T) {
		for seed := range uint64(10) {
			devicetest.Run(t, func(t *testing.T) device.Device {
				return cached(t, device.NewFaulty(device.NewMemory(), device.FaultyOptions{Seed: seed, Delay: 0.5}), Options{})
			}, devicetest.Size(256<<10))
		}
	})
}

// log fills a device with n random bytes.
func log(t *testing.T, dev device.Device, n int) []byte {
	t.Helper()
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(content) // never fails
	if err := dev.Start(0); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, dev, 4)
	defer p.Close()
	for at := 0; at < n; at += 16 << 10 {
		p.Write(bytes.Clone(content[at:min(at+16<<10, n)]), int64(at), nil)
	}
	return content
}

// TestHits: repeated reads are answered from memory, even if the device fails, and other reads
// are not.
func TestHits(t *testing.T) {
	inner := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	c := cached(t, inner, Options{})
	defer closeAll(t, c)
	content := log(t, c, 256<<10)
	want := func(hits, misses uint64) {
		t.Helper()
		c.blocks.Wait()
		if m := c.Metrics(); m.Hits != hits || m.Misses != misses {
			t.Fatalf("%+v, want %d hits and %d misses", m, hits, misses)
		}
	}
	check := func(addr int64, n int) {
		t.Helper()
		dst := make([]byte, n)
		got := devicetest.Read(t, c, dst, addr)
		testrun.Bytes(dst[:got.N], got.Err).Want(t, content[addr:addr+int64(n)], "%d bytes at %d", n, addr)
	}
	check(5000, 100)
	want(0, 1)
	check(4096, 4096)
	want(1, 1)
	check(8000, 9000) // one cached block and three others
	want(1, 2)
	inner.Set(device.FaultyOptions{ReadError: 1})
	check(4100, 12_000)
	want(2, 2)
	if got := devicetest.Read(t, c, make([]byte, 10), 100_000); !errors.Is(got.Err, device.ErrFault) {
		t.Errorf("a block that is not cached, from a device that fails: %+v", got)
	}
	inner.Set(device.FaultyOptions{})
	check(0, 16*4096) // larger than a cached read
	want(2, 3)
	if m := c.Metrics(); m.Bytes != 4*(4096+overhead) || c.CacheMemory() != MinCapacity {
		t.Errorf("%+v", m)
	}

	// Truncation also removes blocks from the cache.
	if err := c.Truncate(6000); err != nil {
		t.Fatal(err)
	}
	if got := devicetest.Read(t, c, make([]byte, 10), 5000); !errors.Is(got.Err, device.ErrNotHeld) {
		t.Errorf("below the begin: %+v", got)
	}
	check(6000, 100) // the block begins below Begin, so it is not read whole
	want(2, 3)
}

func closeAll(t *testing.T, c *Cache) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestLastBlock: a block that the log may write again is not cached, nor one with a pending
// write.
func TestLastBlock(t *testing.T) {
	inner := device.NewMemory()
	c := cached(t, inner, Options{Block: 4096})
	defer closeAll(t, c)
	if err := c.Start(0); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, c, 4)
	defer p.Close()
	block := bytes.Repeat([]byte{1}, 4096)
	short := append(bytes.Repeat([]byte{1}, 1000), make([]byte, 3096)...)
	p.Write(bytes.Clone(short), 0, nil)
	p.Drain()
	for range 2 {
		p.Read(make([]byte, 1000), 0, block[:1000])
		p.Drain()
	}
	p.Write(bytes.Clone(block), 0, nil)
	p.Drain()
	p.Read(make([]byte, 4096), 0, block)
	p.Drain()
	c.blocks.Wait()
	if m := c.Metrics(); m.Hits+m.Misses != 0 {
		t.Fatalf("the block that the log ends in: %+v", m)
	}
	p.Write(bytes.Clone(block), 4096, nil)
	p.Drain()
	for i := range uint64(2) {
		p.Read(make([]byte, 4096), 0, block)
		p.Drain()
		c.blocks.Wait()
		if m := c.Metrics(); m.Misses != 1 || m.Hits != i {
			t.Errorf("after the log has gone on: %+v", m)
		}
	}
}

// TestWritesUnderWay: blocks are final up to the first pending write.
func TestWritesUnderWay(t *testing.T) {
	c := cached(t, device.NewMemory(), Options{})
	defer closeAll(t, c)
	if err := c.Start(100); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		begin bool
		addr  int64
		want  int64
	}{
		{true, 0, 100}, {true, 4096, 100}, {true, 8192, 100}, {false, 4096, 100}, {false, 0, 8192},
		{true, 12288, 8192}, {false, 8192, 12288}, {false, 12288, 12288}, {true, 16384, 12288}, {true, 20480, 12288},
		{false, 20480, 16384},
	} {
		w := progress.Span{From: step.addr, To: step.addr + 4096}
		if step.begin {
			c.begin(w)
		} else {
			c.end(w, true)
		}
		if got := c.final.Load(); got != step.want {
			t.Errorf("step %d, %+v: final up to %d", i, step, got)
		}
	}
}

// TestFailedWrite: blocks of a failed write are cached once it was repeated, and those after it.
func TestFailedWrite(t *testing.T) {
	c := cached(t, device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 2}), Options{})
	defer closeAll(t, c)
	if err := c.Start(0); err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, step := range []struct{ addr, final int64 }{
		{0, 0}, {4096, 4096}, {8192, 4096}, {4096, 4096}, {8192, 8192}, {12288, 12288},
	} {
		err := device.Finish(t.Context(), q, q.Write(make([]byte, 4096), step.addr, 0))
		if failed := i == 1; errors.Is(err, device.ErrFault) != failed || !failed && err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := c.final.Load(); got != step.final {
			t.Errorf("step %d, %+v: final up to %d", i, step, got)
		}
	}
}

// TestRefillForgets: a write below the end of the log, as a refill makes it, replaces what was cached.
func TestRefillForgets(t *testing.T) {
	c := cached(t, device.NewMemory(), Options{})
	defer closeAll(t, c)
	content := log(t, c, 64<<10)
	check := func() {
		t.Helper()
		dst := make([]byte, 1000)
		got := devicetest.Read(t, c, dst, 6000)
		testrun.Bytes(dst, got.Err).Want(t, content[6000:7000], "a read")
		c.blocks.Wait()
	}
	check()
	copy(content[6100:], "what the device lacked")
	p := devicetest.NewPump(t, c, 2)
	p.Write(bytes.Clone(content[4096:8192]), 4096, nil)
	p.Close()
	check()
}

// TestStartForgets: Start invalidates the cache.
func TestStartForgets(t *testing.T) {
	inner := device.NewMemory()
	c := cached(t, inner, Options{})
	defer closeAll(t, c)
	content := log(t, c, 64<<10)
	dst := make([]byte, 100)
	devicetest.Read(t, c, dst, 5000)
	c.blocks.Wait()
	if err := c.Start(4096); err != nil {
		t.Fatal(err)
	}
	if got := devicetest.Read(t, c, dst, 5000); !errors.Is(got.Err, device.ErrNotHeld) {
		t.Errorf("above the end of a log that was started again: %+v", got)
	}
	p := devicetest.NewPump(t, c, 1)
	defer p.Close()
	other := bytes.Repeat([]byte{5}, 16<<10)
	p.Write(bytes.Clone(other), 4096, nil)
	p.Drain()
	p.Write(bytes.Clone(other), 4096+16<<10, nil)
	p.Drain()
	p.Read(make([]byte, 100), 5000, other[:100])
	p.Read(make([]byte, 100), 1000, content[1000:1100])
}

// TestDamagedNeighbour: a damaged block does not fail reads of other blocks.
func TestDamagedNeighbour(t *testing.T) {
	inner := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	c := cached(t, inner, Options{})
	defer closeAll(t, c)
	content := log(t, c, 64<<10)
	inner.Set(device.FaultyOptions{FailRead: 1})
	dst := make([]byte, 100)
	got := devicetest.Read(t, c, dst, 5000)
	testrun.Bytes(dst, got.Err).Want(t, content[5000:5100], "the block beside")
}

// TestEvicts: the cache stays within its capacity.
func TestEvicts(t *testing.T) {
	c := cached(t, device.NewMemory(), Options{})
	defer closeAll(t, c)
	content := log(t, c, 4<<20)
	p := devicetest.NewPump(t, c, 16)
	defer p.Close()
	r := rand.New(rand.NewPCG(4, 4))
	for range 5000 {
		addr := r.Int64N(int64(len(content)) - 64<<10)
		p.Read(make([]byte, 100), addr, content[addr:addr+100])
	}
	p.Drain()
	c.blocks.Wait()
	if m := c.Metrics(); m.Bytes > MinCapacity || m.Bytes < MinCapacity/2 || m.Hits == 0 {
		t.Errorf("%+v", m)
	}
}

func TestOptions(t *testing.T) {
	for _, opts := range []Options{
		{}, {Capacity: MinCapacity - 1}, {Capacity: MinCapacity, Block: 1000}, {Capacity: MinCapacity, Block: 256},
		{Capacity: MinCapacity, Block: 1 << 20}, {Capacity: 1 << 40, Block: 8 << 20},
	} {
		if c, err := New(device.NewMemory(), opts); err == nil {
			t.Errorf("%+v: no error", opts)
			closeAll(t, c)
		}
	}
}
