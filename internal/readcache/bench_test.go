package readcache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// cacher is a cache under comparison.
type cacher interface {
	Get(dst []byte, addr int64) ([]byte, bool)
	Add(addr int64, record []byte)
	settle() // returns when added records can be found
}

type ours struct{ *Cache }

func (ours) settle() {}

// peer is ristretto with the same total budget: each entry is charged peerOverhead bytes of
// heap beside its record.
type peer struct {
	c *ristretto.Cache[uint64, []byte]
}

const peerOverhead = 190

func newPeer(b *testing.B, budget int64, record int) peer {
	entries := budget / int64(record+peerOverhead)
	c, err := NewRistretto(entries, entries, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return peer{c}
}

func (p peer) Get(dst []byte, addr int64) ([]byte, bool) {
	record, ok := p.c.Get(uint64(addr))
	return append(dst, record...), ok
}

func (p peer) Add(addr int64, record []byte) {
	p.c.Set(uint64(addr), append([]byte(nil), record...), 1)
}

func (p peer) settle() { p.c.Wait() }

// zipf draws from [0, n) with exponent theta, as YCSB does, scattered.
type zipf struct {
	n                       float64
	theta, alpha, zeta, eta float64
	rng                     *rand.Rand
}

func newZipf(n int, theta float64) *zipf {
	z := &zipf{n: float64(n), theta: theta, alpha: 1 / (1 - theta), rng: rand.New(rand.NewPCG(1, 2))}
	for i := 1; i <= n; i++ {
		z.zeta += math.Pow(float64(i), -theta)
	}
	two := 1 + math.Pow(2, -theta)
	z.eta = (1 - math.Pow(2/z.n, 1-theta)) / (1 - two/z.zeta)
	return z
}

func (z *zipf) next() int64 {
	u := z.rng.Float64()
	rank := z.n * math.Pow(z.eta*u-z.eta+1, z.alpha)
	switch uz := u * z.zeta; {
	case uz < 1:
		rank = 0
	case uz < 1+math.Pow(0.5, z.theta):
		rank = 1
	}
	return int64(mix(int64(min(rank, z.n-1))+1) % uint64(z.n))
}

// BenchmarkCompare measures the cache and ristretto with a tenth of the data's
// bytes on Zipf 0.99. docs/readcache.md shows the results.
//
//	hit%      of fetches, after the cache has seen ten times the records
//	scan%     of what was there before a scan of all records, after it
//	ns/hit    of a Get that finds its record, uniform over those cached
//	B/entry   beside the record: of the table's memory, or of the heap
//	gc-ms     of one forced collection
func BenchmarkCompare(b *testing.B) {
	for _, value := range []int{8, 100, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10} {
		size := 16 + value
		n := min(1_000_000, 512<<20/size)
		budget := int64(n) * int64(size) / 10
		for _, which := range []string{"table", "ristretto"} {
			b.Run(fmt.Sprintf("cache=%s/value=%d", which, value), func(b *testing.B) {
				before := heap()
				var c cacher
				if which == "table" {
					c = ours{newCache(b, Options{Capacity: budget, RecordSize: size, Threshold: MaxThreshold})}
				} else {
					c = newPeer(b, budget, size)
				}
				compare(b, c, n, size, before)
			})
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func compare(b *testing.B, c cacher, n, size int, before uint64) {
	z := newZipf(n, 0.99)
	data, buf := make([]byte, size), make([]byte, 0, size)
	addr := func(i int64) int64 { return 64 + i*int64(size+7)&^7 }
	fetch := func(i int64) int {
		if _, ok := c.Get(buf, addr(i)); ok {
			return 1
		}
		c.Add(addr(i), data)
		return 0
	}
	fetches := func(k int) (hits int) {
		for i := range k {
			hits += fetch(z.next())
			if i%256 == 0 { // a session would wait for its device here
				c.settle()
			}
		}
		c.settle()
		return hits
	}
	fetches(10 * n)
	resident := func() (at []int64) {
		for i := range int64(n) {
			if _, ok := c.Get(buf, addr(i)); ok {
				at = append(at, addr(i))
			}
		}
		return at
	}
	hits := fetches(n)
	at := resident()
	perEntry := float64(heap()-before) / float64(len(at))
	if t, ok := c.(ours); ok {
		perEntry = float64(t.Metrics().Capacity) / float64(len(at))
	}
	start := time.Now()
	runtime.GC()
	gc := time.Since(start)

	for i := range int64(n) {
		fetch(i)
		if i%256 == 0 {
			c.settle()
		}
	}
	c.settle()
	there := 0
	for _, a := range at {
		if _, ok := c.Get(buf, a); ok {
			there++
		}
	}

	at = resident()
	rand.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	i := 0
	for b.Loop() {
		c.Get(buf, at[i])
		if i++; i == len(at) {
			i = 0
		}
	}
	b.ReportMetric(100*float64(hits)/float64(n), "hit%")
	b.ReportMetric(100*float64(there)/float64(max(len(at), 1)), "scan%")
	b.ReportMetric(perEntry-float64(size), "B/entry")
	b.ReportMetric(float64(gc.Microseconds())/1000, "gc-ms")
}
