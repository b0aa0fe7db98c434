package readcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/testrun/property"
)

// record returns the bytes at addr. The address determines the length, and every word.
func record(dst []byte, addr int64, sizes int) []byte {
	size := 1 + int(mix(addr^1<<40)%uint64(sizes))
	for at := 0; at < size; at += 8 {
		dst = binary.LittleEndian.AppendUint64(dst, mix(addr+int64(at)<<20))
	}
	return dst[:len(dst)-(-size&7)]
}

func newCache(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Free(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// fetch acts as a store: it reads from the cache, and adds the record after a miss.
func fetch(t interface{ Errorf(string, ...any) }, c *Cache, buf []byte, addr int64, sizes int) (hit bool) {
	got, hit := c.Get(buf[:0], addr)
	want := record(nil, addr, sizes)
	if !hit {
		c.Add(addr, want)
	} else if !bytes.Equal(got, want) {
		t.Errorf("at %d: %x, want %x", addr, got, want)
	}
	return hit
}

// TestModel makes random calls on caches of random shape. After each it checks that hits are
// exact and that the table is consistent.
func TestModel(t *testing.T) {
	property.Check(t, func(rt *rapid.T) {
		sizes := rapid.SampledFrom([]int{1, 24, 100, 700}).Draw(rt, "sizes")
		c, err := New(Options{
			Capacity:   rapid.Int64Range(MinCapacity, 16<<10).Draw(rt, "capacity"),
			RecordSize: rapid.SampledFrom([]int{0, 1, 24, 1000}).Draw(rt, "record size"),
			Threshold:  rapid.SampledFrom([]int{0, 30, 300}).Draw(rt, "threshold"),
			LargeShare: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "large share"),
		})
		if err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if err := c.Free(); err != nil {
				rt.Error(err)
			}
		}()
		addrs := rapid.Int64Range(1, 600)
		rt.Repeat(map[string]func(*rapid.T){
			"":      func(rt *rapid.T) { check(rt, c) },
			"fetch": func(rt *rapid.T) { fetch(rt, c, nil, addrs.Draw(rt, "addr")*8, sizes) },
			"scan": func(rt *rapid.T) {
				for from, n := addrs.Draw(rt, "from"), int64(0); n < 100; n++ {
					fetch(rt, c, nil, (from+n)*8, sizes)
				}
			},
			"resize": func(rt *rapid.T) {
				if err := c.Resize(rapid.Int64Range(MinCapacity, 16<<10).Draw(rt, "to")); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

// check walks every shard: the counts match the records that have an entry, each entry is in
// the bucket of its address, and head is at most a lap behind tail.
func check(t interface{ Fatalf(string, ...any) }, c *Cache) {
	wait(t, c)
	tb := c.small.Load()
	if tb == nil {
		return
	}
	for i := range tb.shards {
		s := &tb.shards[i]
		var entries, bytes int64
		head := place(s.head.Load())
		if s.tail < head || s.tail > head+1<<tb.wordBits {
			t.Fatalf("head %#x, tail %#x", head, s.tail)
		}
		for p := head; p != s.tail; {
			n := tb.noteAt(s, p)
			if n.address() == 0 {
				p = tb.after(p, tb.ringWords)
				continue
			}
			if tb.entryOf(s, n.address(), p) != nil {
				entries, bytes = entries+1, bytes+int64(n.length())
			}
			p = tb.after(p, n.words())
		}
		used := int64(0)
		for b := range tb.buckets {
			for i := range bucketEntries {
				if *entryAt(unsafe.Add(s.base, b*bucketSize), i) != 0 {
					used++
				}
			}
		}
		if used != entries || entries != s.entries || bytes != s.bytes {
			t.Fatalf("%d slots used, %d records of %d bytes have one; counted %d of %d bytes", used, entries, bytes, s.entries, s.bytes)
		}
	}
}

// TestTorture fetches slightly more addresses than the cache holds from several goroutines,
// with every size of record and while the cache is resized. Copies must be whole.
func TestTorture(t *testing.T) {
	for _, sizes := range []int{8, 100, 3000} {
		t.Run(fmt.Sprintf("sizes=%d", sizes), func(t *testing.T) {
			rounds := 200_000
			if sizes > 1000 || machine.RaceDetector {
				rounds /= 10
			}
			c := newCache(t, Options{Capacity: 64 << 10, RecordSize: sizes / 2, Threshold: 2000, LargeShare: 0.5})
			var hits, done atomic.Uint64
			var wg sync.WaitGroup
			const workers = 4
			for w := range uint64(workers) {
				wg.Go(func() {
					defer done.Add(1)
					rng := rand.New(rand.NewPCG(w, 1))
					buf := make([]byte, 0, 3008)
					for range rounds {
						n := rng.Int64N(4 * 64 << 10 / int64(sizes+40))
						if fetch(t, c, buf, 8+8*n*rng.Int64N(2), sizes) {
							hits.Add(1)
						}
						if t.Failed() {
							return
						}
					}
				})
			}
			rng := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
			for n := int64(0); done.Load() < workers; n++ {
				if err := c.Resize((32 + n*17%64) << 10); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
				for range 100 {
					fetch(t, c, nil, 8+8*rng.Int64N(100), sizes)
				}
			}
			wg.Wait()
			check(t, c)
			if hits.Load() == 0 {
				t.Error("no hits: nothing was tested")
			}
		})
	}
}

func TestWhatFitsStays(t *testing.T) {
	const sizes, n = 100, 2000
	c := newCache(t, Options{Capacity: n * 120, RecordSize: 56})
	for addr := int64(8); addr <= n*8; addr += 8 {
		fetch(t, c, nil, addr, sizes)
	}
	hits := 0
	for addr := int64(8); addr <= n*8; addr += 8 {
		if fetch(t, c, nil, addr, sizes) {
			hits++
		}
	}
	if hits < n*95/100 {
		t.Errorf("%d of %d records are there", hits, n)
	}
	m := c.Metrics()
	if m.Entries < int64(hits) || m.Bytes < int64(hits)*sizes/3 || m.Bytes > m.Capacity {
		t.Errorf("%+v after %d records", m, hits)
	}
}

// TestScanPushesNothingOut reads a working set, and then all other records once.
func TestScanPushesNothingOut(t *testing.T) {
	const sizes, n = 24, 2000
	c := newCache(t, Options{Capacity: n * 60, RecordSize: 12})
	hot := func() (hits int) {
		for addr := int64(1); addr <= n; addr++ {
			if fetch(t, c, nil, addr*8, sizes) {
				hits++
			}
		}
		return hits
	}
	for range 5 {
		hot()
	}
	before := hot()
	for addr := int64(n); addr < 100*n; addr++ {
		fetch(t, c, nil, addr*8, sizes)
	}
	if after := hot(); before < n*9/10 || after < before*98/100 {
		t.Errorf("of %d records %d were there before the scan, %d after", n, before, after)
	}
}

// wait returns when the layout no longer changes.
func wait(t interface{ Fatalf(string, ...any) }, c *Cache) {
	end := time.Now().Add(testrun.Patience(testrun.Bound))
	for c.reshaping.Load() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: the layout is changed", testrun.Patience(testrun.Bound))
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// TestGuessIsMended fills caches with records much smaller or larger than expected. They must
// hold about as many as with the right RecordSize.
func TestGuessIsMended(t *testing.T) {
	const sizes, capacity = 100, 256 << 10 // the mean is 50
	held := func(guess int) int64 {
		c := newCache(t, Options{Capacity: capacity, RecordSize: guess})
		for range 3 {
			for addr := int64(8); addr < 8*capacity/40; addr += 8 {
				fetch(t, c, nil, addr, sizes)
				wait(t, c)
			}
		}
		check(t, c)
		return c.Metrics().Entries
	}
	right := held(50)
	for _, guess := range []int{1, 400, 4000} {
		if n := held(guess); n < right*8/10 {
			t.Errorf("with a guess of %d bytes it holds %d records, else %d", guess, n, right)
		}
	}
}

func TestLargeRecords(t *testing.T) {
	c := newCache(t, Options{Capacity: 8 << 20, Threshold: 1000, LargeShare: 0.5})
	big := func(addr int64) []byte { return bytes.Repeat(record(nil, addr, 1), 5000) }
	c.Add(8, big(8)) // the first large record makes the cache reserve space
	wait(t, c)
	for addr := int64(8); addr < 100*8; addr += 8 {
		c.Add(addr, big(addr))
	}
	c.large.cache.Wait()
	for addr := int64(8); addr < 100*8; addr += 8 {
		if got, ok := c.Get([]byte("x"), addr); !ok || !bytes.Equal(got, append([]byte("x"), big(addr)...)) {
			t.Fatalf("at %d: %v, %d bytes", addr, ok, len(got))
		}
	}
	if m := c.Metrics(); m.Entries != 99 || m.Bytes < 99*5000 || m.Added != 99 {
		t.Errorf("%+v", m)
	}
	if err := c.Resize(4 << 10); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.Get(nil, 8); ok {
		t.Errorf("%d bytes in a cache too small for them", len(got))
	}
}

// TestResizeKeepsWhatFits also checks that the rest is released at once.
func TestResizeKeepsWhatFits(t *testing.T) {
	const sizes, n = 100, 20_000
	c := newCache(t, Options{Capacity: 4 << 20, RecordSize: 56})
	for addr := int64(8); addr <= n*8; addr += 8 {
		fetch(t, c, nil, addr, sizes)
	}
	hits := func() (hits int) {
		for addr := int64(8); addr <= n*8; addr += 8 {
			if got, ok := c.Get(nil, addr); ok {
				hits++
				if !bytes.Equal(got, record(nil, addr, sizes)) {
					t.Fatalf("at %d: %x", addr, got)
				}
			}
		}
		return hits
	}
	before := hits()
	old := c.small.Load()
	if err := c.Resize(8 << 20); err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if larger := hits(); larger < before*99/100 {
		t.Errorf("%d of %d records survived growth", larger, before)
	}
	if n, err := mem.ResidentOf(old.memory); n > 0 || err != nil {
		t.Errorf("%d bytes of the old table are still resident, %v", n, err)
	}
	if err := c.Resize(512 << 10); err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if smaller := hits(); smaller < before/5 || smaller > before/2 {
		t.Errorf("%d of %d records in a third of the space that they took", smaller, before)
	}
	runtime.KeepAlive(old)
}

// TestMemoryGoesWithItsReaders checks that the collector unmaps a replaced table, and not
// before its last reader has left.
func TestMemoryGoesWithItsReaders(t *testing.T) {
	freed := make(chan struct{})
	c := newCache(t, Options{Capacity: 1 << 20})
	runtime.AddCleanup(c.small.Load(), func(freed chan struct{}) { close(freed) }, freed)
	if err := c.Resize(2 << 20); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the memory is unmapped", func() bool {
		runtime.GC()
		select {
		case <-freed: // cleanups run in another goroutine
			return true
		default:
			return false
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	c := newCache(t, Options{Capacity: 1 << 20, RecordSize: 100})
	want, buf := record(nil, 8, 100), make([]byte, 0, 128)
	c.Add(8, want)
	addr := int64(8)
	for _, x := range []struct {
		name string
		call func()
	}{
		{"hit", func() {
			if _, ok := c.Get(buf, 8); !ok {
				t.Error("a miss")
			}
		}},
		{"miss", func() { c.Get(buf, 16) }},
		// Last, because it may evict the record that the others hit.
		{"add", func() { addr += 8; c.Prefetch(addr); c.PrefetchRecord(addr); c.Add(addr, want); c.Add(addr, want) }},
	} {
		x.call()
		if n := testrun.AllocsPerRun(20_000, x.call); n != 0 {
			t.Errorf("%s: %g allocations", x.name, n)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, o := range []Options{
		{Capacity: -1},
		{Capacity: MinCapacity - 1},
		{Capacity: 1 << 20, LargeShare: 2},
		{Capacity: 1 << 20, Threshold: MaxThreshold + 1},
		{Capacity: 1 << 20, RecordSize: -1},
		{Capacity: 1 << 62},
	} {
		if c, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
			if err := c.Free(); err != nil {
				t.Error(err)
			}
		}
	}
	c := newCache(t, Options{Capacity: 1 << 20})
	c.Add(8, make([]byte, 10))
	if err := c.Resize(3); err == nil {
		t.Error("resized to 3 bytes")
	}
	for _, addr := range []int64{0, -8, 7, 1 << 48} {
		c.Add(addr, make([]byte, 10))
		if _, ok := c.Get(nil, addr); ok {
			t.Errorf("a record at %d", addr)
		}
	}
	if _, ok := c.Get(nil, 8); !ok {
		t.Error("an error of Resize emptied the cache")
	}
	if err := c.Free(); err != nil {
		t.Error(err)
	}
	if _, ok := c.Get(nil, 8); ok {
		t.Error("a hit after Free")
	}
	c.Add(8, make([]byte, 10))
	if err := c.Resize(1 << 20); err == nil {
		t.Error("resized after Free")
	}
}

func TestShardsDoNotShareLines(t *testing.T) {
	if size := unsafe.Sizeof(shard{}); size%64 != 0 || unsafe.Offsetof(shard{}.declined) != 64 {
		t.Errorf("a shard takes %d bytes, what writers count begins at %d", size, unsafe.Offsetof(shard{}.declined))
	}
}
