package kv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// counted is a store with an exact model. The model counts how often a scan finds each key.
type counted struct {
	t    *testing.T
	st   *Store
	rng  *rand.Rand
	now  atomic.Int64
	keys map[uint64]*countedKey
	last uint64 // last value written
}

// countedKey holds what a scan may and must find of a key.
type countedKey struct {
	value, expires uint64 // current; value 0: the key does not exist
	since          uint64 // the key's values since the scan began are at least this
	stays          bool   // it has existed since the scan began
	before         bool   // it existed at some time since the scan began
	found          int
}

func (c *counted) there(k *countedKey) bool {
	return k.value != 0 && (k.expires == 0 || int64(k.expires) > c.now.Load())
}

// put writes a key; expires may be 0.
func (c *counted) put(n, expires uint64) {
	c.t.Helper()
	k := c.keys[n]
	if k == nil {
		k = &countedKey{}
		c.keys[n] = k
	}
	c.last++
	k.value, k.expires, k.before = c.last, expires, true
	if err := c.st.Run(context.Background(), &Op{Kind: OpUpsert, Key: key8(n), Value: key8(c.last), Expires: int64(expires)}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counted) remove(n uint64) {
	c.t.Helper()
	if k := c.keys[n]; k != nil {
		k.value, k.stays = 0, false
	}
	if err := c.st.Delete(context.Background(), key8(n)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counted) commit() {
	c.t.Helper()
	if err := c.st.Commit(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

// begin begins a scan.
func (c *counted) begin() {
	for _, k := range c.keys {
		k.stays = c.there(k)
		k.before, k.since, k.found = k.stays, k.value, 0
	}
}

// visit counts a record that the scan found.
func (c *counted) visit(r Record) {
	n, value := loadWord(r.Key), loadWord(r.Value)
	k := c.keys[n]
	if k == nil || !k.before || value < k.since {
		c.t.Fatalf("found key %d = %d, which was not there since the scan began: %+v", n, value, k)
	}
	k.found++
}

// end checks the counts: no key was found more than most times.
func (c *counted) end(most int) {
	c.t.Helper()
	total, worst := 0, 0
	for n, k := range c.keys {
		if k.found == 0 && k.stays {
			c.t.Errorf("key %d was there all the time and was not found: %+v", n, k)
		}
		total, worst = total+k.found, max(worst, k.found)
	}
	if worst > most {
		c.t.Errorf("a key was found %d times, want %d at most; %d keys %d times", worst, most, len(c.keys), total)
	}
}

// scans are the ways to scan. They call between after each record or step.
var scans = map[string]func(c *counted, between func()){
	"whole": func(c *counted, between func()) {
		for r, err := range c.st.Scan() {
			if err != nil {
				c.t.Fatal(err)
			}
			c.visit(r)
			between()
		}
	},
	"steps": func(c *counted, between func()) {
		steps := 0
		for at, begun := Cursor(0), false; !begun || at != 0; begun = true {
			var err error
			if at, err = c.st.ScanFrom(at, 10, func(r Record) bool { c.visit(r); return true }); err != nil {
				c.t.Fatal(err)
			}
			if at >= 1<<53 {
				c.t.Fatalf("cursor %d is none that clients with floating-point numbers can keep", at)
			}
			for range 10 {
				between()
			}
			if steps++; steps > 10000 {
				c.t.Fatal("the scan does not end")
			}
		}
	},
}

// eachCounted runs a test for each layout of a store and each way to scan.
func eachCounted(t *testing.T, test func(t *testing.T, c *counted, scan func(between func()))) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
		for way, scan := range scans {
			t.Run(name+"/"+way, func(t *testing.T) {
				c := &counted{t: t, rng: rand.New(rand.NewPCG(1, 2)), keys: map[uint64]*countedKey{}}
				c.now.Store(MinExpires + 1000)
				opts := small(device.NewMemory(), sizes[0], sizes[1])
				opts.now = c.now.Load
				c.st = open(t, opts)
				test(t, c, func(between func()) { scan(c, between) })
				closeAll(t, c.st)
			})
		}
	}
}

// TestScanFindsACounterOnce scans while every write of a key is committed, so that the key has
// hundreds of versions below and above the scan's end.
func TestScanFindsACounterOnce(t *testing.T) {
	eachCounted(t, func(_ *testing.T, c *counted, scan func(between func())) {
		const counter = 1 << 32
		write := func() { c.put(counter, 0); c.commit() }
		for n := range uint64(600) {
			c.put(n, 0)
			if n%3 == 0 {
				write()
			}
		}
		c.begin()
		scan(write)
		c.end(1)
	})
}

// TestScanCountsBesideWrites scans during writes of all kinds, growth of the index, and
// compactions. Keys that exist throughout are found once, or at most twice if compaction moves
// them.
func TestScanCountsBesideWrites(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compact=%v", compact), func(t *testing.T) {
			eachCounted(t, func(t *testing.T, c *counted, scan func(between func())) {
				const keys = 500
				change := func() {
					n := c.rng.Uint64N(keys)
					switch hot := c.rng.IntN(10); {
					case hot < 5: // a few keys are written most
						n %= 10
						fallthrough
					case hot < 8:
						c.put(n, 0)
					case n >= keys*3/4: // a quarter is deleted and written again
						c.remove(n)
					case n >= keys/2: // a quarter has an expiry, but is written again before
						c.put(n, uint64(c.now.Load())+1e6+c.rng.Uint64N(1e6))
					default:
						c.put(n, 0)
					}
					if c.rng.IntN(4) == 0 {
						c.commit()
					}
				}
				for n := range uint64(keys) {
					c.put(n, 0)
				}
				rounds := testrun.Raced(6, 1)
				for range rounds {
					for range keys {
						change()
					}
					most, n := 1, 0
					if compact {
						most = 2
					}
					c.begin()
					scan(func() {
						change()
						switch n++; {
						case n == 100 && c.rng.IntN(3) == 0:
							if err := c.st.GrowIndex(context.Background()); err != nil && c.st.index.Load().Bits() < 20 {
								t.Fatal(err)
							}
						case compact && n%(1+c.rng.IntN(100)) == 0:
							opts := CompactOptions{Method: compactMethods[n%len(compactMethods)]}
							if n%3 > 0 {
								opts.Bytes = c.rng.Int64N(16 << 10)
							}
							mustCompact(t, c.st, opts)
						case n%50 == 0:
							c.now.Add(1000)
						}
					})
					c.end(most)
				}
			})
		})
	}
}

// TestScanStepsFindAsManyAsAsked scans in steps a log that consists nearly only of old
// records.
func TestScanStepsFindAsManyAsAsked(t *testing.T) {
	const keys, times, count = 1000, 30, 10
	st := open(t, small(device.NewMemory(), 0, 0))
	for i := range uint64(keys * times) {
		if err := st.Upsert(context.Background(), key8(i*7919%keys), key8(i)); err != nil {
			t.Fatal(err)
		}
	}
	steps, all := 0, 0
	for at, begun := Cursor(0), false; !begun || at != 0; begun = true {
		var err error
		found := 0
		if at, err = st.ScanFrom(at, count, func(Record) bool { found++; return true }); err != nil {
			t.Fatal(err)
		}
		if found < count && at != 0 || found > 2*count+bucketEntries {
			t.Errorf("step %d finds %d records, want about %d", steps, found, count)
		}
		all += found
		steps++
	}
	if all != keys || steps > keys/count+1 {
		t.Errorf("%d steps find %d keys, want at most %d that find %d", steps, all, keys/count+1, keys)
	}
	closeAll(t, st)
}

// TestScanStepsAreBounded scans during compaction and across restarts, with steps of a few
// records and much longer chains. The scan ends, and finds every key, once unless a cursor is
// used twice.
func TestScanStepsAreBounded(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{"spread": nil, "collide": func([]byte) uint64 { return 42 }} {
		for _, twice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/twice=%v", name, twice), func(t *testing.T) {
				const keys, stepRecords = 200, 16
				rng := rand.New(rand.NewPCG(3, 4))
				dev := device.NewMemory()
				opts := small(dev, 0, 0)
				opts.hash, opts.stepRecords = hash, stepRecords
				st := open(t, opts)
				put := func(n uint64) {
					if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				for n := range uint64(keys) {
					put(n)
					for range 5 {
						put(n % 3)
						if err := st.Commit(context.Background()); err != nil {
							t.Fatal(err)
						}
					}
				}
				found, empty, steps := map[uint64]int{}, 0, 0
				for at, begun := Cursor(0), false; !begun || at != 0; begun = true {
					n := 0
					step := func() Cursor {
						next, err := st.ScanFrom(at, 10, func(r Record) bool { found[loadWord(r.Key)]++; n++; return true })
						if err != nil {
							t.Fatal(err)
						}
						return next
					}
					next := step()
					if n > stepRecords {
						t.Errorf("a step finds %d records, may look at %d", n, stepRecords)
					}
					if twice && rng.IntN(20) == 0 {
						if again := step(); rng.IntN(2) == 0 {
							next = again
						}
					}
					if twice && rng.IntN(100) == 0 {
						mustCompact(t, st, CompactOptions{Bytes: 2 << 10})
						closeAll(t, st)
						dev = dev.Reopen()
						opts.Device = dev
						st = open(t, opts)
					}
					at = next
					if n == 0 {
						empty++
					}
					if steps++; steps > 100*keys {
						t.Fatal("the scan does not end")
					}
				}
				for n := range uint64(keys) {
					if times := found[n]; times == 0 || times > 1 && !twice {
						t.Errorf("key %d is found %d times", n, times)
					}
				}
				if empty == 0 && !twice {
					t.Error("no step ended in the middle of a chain")
				}
				closeAll(t, st)
			})
		}
	}
}

// TestScanEndsBesideCompaction compacts, and writes, faster than a scan in steps follows a
// chain. The scan ends, and finds each key once.
func TestScanEndsBesideCompaction(t *testing.T) {
	const keys, stepRecords = 200, 16
	opts := small(device.NewMemory(), 0, 0)
	opts.hash, opts.stepRecords = func([]byte) uint64 { return 42 }, stepRecords
	st := open(t, opts)
	written := uint64(0)
	put := func(n uint64) {
		written++
		if err := st.Upsert(context.Background(), key8(n), key8(written)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		for n := range uint64(keys) {
			put(n)
		}
	}
	found := map[uint64]int{}
	steps, compactions := 0, uint64(0)
	for at, begun := Cursor(0), false; !begun || at != 0; begun = true {
		var err error
		if at, err = st.ScanFrom(at, 10, func(r Record) bool { found[loadWord(r.Key)]++; return true }); err != nil {
			t.Fatal(err)
		}
		if steps++; steps > 10*keys {
			t.Fatal("the scan does not end")
		}
		if steps%8 == 0 {
			if info := mustCompact(t, st, CompactOptions{Bytes: int64(st.log.PageSize())}); info.Until > info.From {
				compactions++
			}
			put(compactions % keys)
		}
	}
	for n := range uint64(keys) {
		if found[n] != 1 {
			t.Errorf("key %d is found %d times", n, found[n])
		}
	}
	if compactions < 3 {
		t.Errorf("%d compactions in %d steps", compactions, steps)
	}
	closeAll(t, st)
}

// TestScanInALargerIndex repeatedly opens a store with a larger index, in which keys of
// several entries share chains of old records, and continues a scan that was begun in the
// smaller one.
func TestScanInALargerIndex(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine operates")
	const keys = 1000
	dev := device.NewMemory()
	opts := small(dev, 0, 0)
	opts.indexBits, opts.FixedIndex, opts.stepRecords = 6, true, 4
	opts.hash = func(key []byte) uint64 { // its bits from 6+tagBits on distinguish keys only in larger indexes
		n := loadWord(key) * 0x9e3779b97f4a7c15
		return n>>61 | n>>32<<(6+tagBits)
	}
	var st *Store
	var begun Cursor
	before := map[uint64]bool{}
	for round := uint64(0); opts.indexBits <= 12; opts.indexBits, round = opts.indexBits+2, round+1 {
		st = open(t, opts)
		deleted := func(n uint64) bool { return (n+round)%5 == 0 }
		for n := range uint64(3 * keys) {
			err := st.Upsert(context.Background(), key8(n%keys), key8(n+round))
			if deleted(n%keys) && n >= 2*keys {
				err = st.Delete(context.Background(), key8(n%keys))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, from := range []Cursor{begun, 0} {
			found := map[uint64]int{}
			var next Cursor
			for at, first := from, true; first || at != 0; first = false {
				var err error
				at, err = st.ScanFrom(at, 1, func(r Record) bool {
					if n := loadWord(r.Key); deleted(n) || loadWord(r.Value) != 2*keys+n+round {
						t.Errorf("found key %d = %d", loadWord(r.Key), loadWord(r.Value))
					}
					found[loadWord(r.Key)]++
					return true
				})
				if err != nil {
					t.Fatal(err)
				}
				if from == 0 && first {
					next, before = at, map[uint64]bool{}
					for n := range found {
						before[n] = true
					}
				}
			}
			for n := range uint64(keys) {
				if from != 0 && (n+round-1)%5 == 0 {
					continue // it did not exist when the scan began
				}
				want := 1
				if deleted(n) || from != 0 && before[n] {
					want = 0
				}
				if middle := from != newCursor(from.position(), 0); found[n] != want && (!middle || !before[n]) {
					t.Errorf("index of 1<<%d buckets: from %v, key %d is found %d times, want %d", opts.indexBits, from, n, found[n], want)
				}
			}
			if from == 0 {
				begun = next
			}
		}
		closeAll(t, st)
		dev = dev.Reopen()
		opts.Device = dev
	}
}
