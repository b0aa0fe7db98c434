package resp

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// cacheOf returns options of a store and a server that are a cache of max bytes.
func cacheOf(max, keys int64) (kv.Options, Options) {
	mode := NewCacheMode(max, keys)
	store := inMemory()
	store.Memory, store.PageSize, store.Eviction = max/2, 64<<10, mode.Eviction()
	return store, Options{Cache: mode}
}

// TestCacheMode: the log stays short, what is used stays, and whoever asked is told what went.
func TestCacheMode(t *testing.T) {
	s, addr := startCache(t, 4<<20, 1<<16)
	p, sub, reader := dial(t, addr), dial(t, addr), dial(t, addr)
	p.do("CONFIG", "SET", "notify-keyspace-events", "Ee")
	sub.do("SUBSCRIBE", "__keyevent@0__:evicted")
	reader.do("HELLO", "3")
	reader.do("CLIENT", "TRACKING", "ON")
	p.do("SET", "cold", "v")
	p.do("SET", "hot", "v")
	watcher := dial(t, addr)
	watcher.do("WATCH", "cold")
	if got := reader.do("GET", "cold"); got != `"v"` { // one more chance
		t.Error(got)
	}
	value := strings.Repeat("v", 1000)
	for round := 0; s.store.Metrics().Eviction.Keys < 20_000; round++ {
		var b strings.Builder
		for i := range 100 {
			b.WriteString(encode("SET", fmt.Sprint("key", round, ":", i), value))
		}
		b.WriteString(encode("GET", "hot"))
		p.goOn()
		p.send(b.String())
		for range 100 {
			if got := p.reply(); got != "+OK" {
				t.Fatal(got)
			}
		}
		if got := p.reply(); got != `"v"` {
			t.Fatalf("hot: %s", got)
		}
	}
	if got := p.do("GET", "cold"); got != "nil" {
		t.Error(got)
	}
	for sub.goOn(); sub.reply() != `["message" "__keyevent@0__:evicted" "cold"]`; sub.goOn() {
	}
	if got := reader.reply(); got != `push["invalidate" ["cold"]]` {
		t.Error(got)
	}
	watcher.do("MULTI")
	if got := watcher.do("EXEC"); got != "nil[]" {
		t.Errorf("a watched key was evicted: %s", got)
	}
	for _, command := range [][2]string{{"maxmemory", "4194304"}, {"maxmemory-policy", "allkeys-lru"}} {
		if got := p.do("CONFIG", "GET", command[0]); got != fmt.Sprintf("[%q %q]", command[0], command[1]) {
			t.Error(got)
		}
	}
	if got := p.do("INFO", "stats"); strings.Contains(got, "evicted_keys:0") {
		t.Error(got)
	}
	keys := 0
	for _, err := range s.store.Scan() {
		if err != nil {
			t.Fatal(err)
		}
		keys++
	}
	// Eviction may go on.
	if all, _, _ := s.store.KeyCount(); all > int64(keys) || all == 0 {
		t.Errorf("%d keys are counted, %d were found before", all, keys)
	}
}

// startCache starts a cache.
func startCache(t *testing.T, max, keys int64) (*Server, string) {
	t.Helper()
	store, opts := cacheOf(max, keys)
	return start(t, store, opts)
}

// TestUses counts uses and spends them.
func TestUses(t *testing.T) {
	c := NewCacheMode(1<<20, 1)
	type place struct {
		word  *atomic.Uint64
		shift uint
	}
	model := make(map[place]int) // keys may share a count
	rng := rand.New(rand.NewPCG(5, 5))
	for range 10_000 {
		key := []byte(fmt.Sprint("key", rng.IntN(50)))
		word, shift := c.place(key)
		at := place{word, shift}
		if rng.IntN(2) == 0 {
			c.use(key)
			model[at] = min(model[at]+1, mostUses)
			continue
		}
		if got := c.spend(key); got != (model[at] > 0) {
			t.Fatalf("%s: %t with %d uses", key, got, model[at])
		}
		model[at] = max(model[at]-1, 0)
	}
}

var hitRateOps = flag.Int("cache.ops", 300_000, "requests of the comparison of hit rates")

// zipf draws numbers below the length of a table of cumulative probabilities.
func zipf(n int, exponent float64) (table []float64) {
	sum := 0.0
	for i := range n {
		sum += 1 / math.Pow(float64(i+1), exponent)
		table = append(table, sum)
	}
	for i := range table {
		table[i] /= sum
	}
	return table
}

// TestHitRateAsRedis: with the same bytes, the server's cache has at least the hit rate of Redis with
// allkeys-lru. Clients read by a Zipf distribution, mixed with scans through all keys, and store what they
// did not find.
func TestHitRateAsRedis(t *testing.T) {
	testrun.SkipRaced(t, "one client at a time, whose rate is the same")
	const bytes, keys, batch = 8 << 20, 200_000, 100
	redis, _ := startRedis(t)
	_, addr := startCache(t, bytes, keys)
	ours := dial(t, addr)
	used := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(redis.do("INFO", "memory"))
	base, err := strconv.Atoi(used[1])
	if err != nil {
		t.Fatal(err)
	}
	redis.do("CONFIG", "SET", "maxmemory", strconv.Itoa(base+bytes))
	redis.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	table := zipf(keys, 0.99)
	value := strings.Repeat("v", 200)
	var rates [2]float64
	for n, p := range []*peer{redis, ours} {
		rng := rand.New(rand.NewPCG(11, 12))
		scan, hits, all := 0, 0, 0
		for op := 0; op < *hitRateOps; op += batch {
			var names []string
			scanning := rng.IntN(10) == 0
			for range batch {
				if scanning {
					scan = (scan + 1) % keys
					names = append(names, fmt.Sprintf("key:%08d", scan))
					continue
				}
				at := sort.SearchFloat64s(table, rng.Float64())
				// Popular keys are spread over the scan's order.
				names = append(names, fmt.Sprintf("key:%08d", at*7919%keys))
			}
			var gets, sets strings.Builder
			for _, name := range names {
				gets.WriteString(encode("GET", name))
			}
			p.goOn()
			p.send(gets.String())
			missing := 0
			for _, name := range names {
				found := p.reply() != "nil"
				if !found {
					missing++
					sets.WriteString(encode("SET", name, value))
				}
				if !scanning && op >= *hitRateOps/2 { // the cache is full by then
					all++
					if found {
						hits++
					}
				}
			}
			p.send(sets.String())
			for range missing {
				if got := p.reply(); got != "+OK" {
					t.Fatal(got)
				}
			}
		}
		rates[n] = float64(hits) / float64(all)
	}
	t.Logf("hit rate %.4f, Redis %.4f", rates[1], rates[0])
	if rates[1] < rates[0] {
		t.Errorf("hit rate %.4f, Redis %.4f", rates[1], rates[0])
	}
}
