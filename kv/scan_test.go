package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/testrun/property"
	"github.com/redykv/redykv/kv/internal/index"
	"pgregory.net/rapid"
)

// TestParseCursor converts cursors to text and back.
func TestParseCursor(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		position := rapid.Uint64Range(0, index.Positions-1).Draw(t, "position")
		c := newCursor(position, rapid.Uint16().Draw(t, "turn"))
		if parsed, err := ParseCursor(c.String()); err != nil || parsed != c || c.position() != position {
			t.Fatalf("%v parses as %v, %v", c, parsed, err)
		}
	})
	for _, text := range []string{"", "-1", "x", "4503599627370496", "18446744073709551616"} {
		if c, err := ParseCursor(text); err == nil {
			t.Errorf("%q parses as %v", text, c)
		}
	}
}

// TestScanContext: a scan whose context ends visits few more records, and its error is the context's cause.
func TestScanContext(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	const keys = 10 * scanBatch
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	why, n := errors.New("why"), 0
	var err error
	for _, err = range st.ScanContext(ctx) {
		cancel(why)
		n++
	}
	if !errors.Is(err, why) || n > 2*scanBatch {
		t.Errorf("%d records of %d, %v", n, keys, err)
	}
	for _, err := range st.Scan() { // its session is as good as before
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < keys {
		t.Errorf("%d records in all", n)
	}
	closeAll(t, st)
}

// TestScanFromAnyCursor uses cursors that no scan has returned. All records found are in the
// store, and the scan ends.
func TestScanFromAnyCursor(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			st := open(t, small(device.NewMemory(), sizes[0], sizes[1]))
			for n := range uint64(1000) {
				if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			property.Check(t, func(t *rapid.T) {
				c := newCursor(rapid.Uint64Range(0, index.Positions-1).Draw(t, "position"), rapid.Uint16().Draw(t, "turn"))
				steps := 0
				for more := true; more; more = c != 0 {
					if steps++; steps > 100 {
						t.Fatalf("the scan does not end: %v", c)
					}
					var err error
					if c, err = st.ScanFrom(c, 20, func(r Record) bool {
						if !bytes.Equal(r.Key, r.Value) || len(r.Key) != 8 {
							t.Fatalf("found %x = %x", r.Key, r.Value)
						}
						return true
					}); err != nil {
						t.Fatal(err)
					}
				}
			})
			if c, err := st.ScanFrom(0, 0, nil); err == nil {
				t.Errorf("a step of no records leads to %v", c)
			}
			if c, err := st.ScanFrom(newCursor(index.Positions, 0), 1, nil); err == nil {
				t.Errorf("a cursor beyond all leads to %v", c)
			}
			closeAll(t, st)
		})
	}
}

// TestRecords finds all records ever written, in order, and checks their fields.
func TestRecords(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	const keys = 400
	for n := range uint64(keys) {
		op := Op{Kind: OpUpsert, Key: key8(n % 50), Value: key8(n), Expires: int64(n%2) * 1e15}
		if n%10 == 9 {
			op = Op{Kind: OpDelete, Key: key8((n - 1) % 50)}
		}
		if err := s.Run(&op); err != nil {
			t.Fatal(err)
		}
		if err := st.Commit(context.Background()); err != nil { // prevents updates in place
			t.Fatal(err)
		}
	}
	var addresses []int64
	n := uint64(0)
	for r, err := range st.ScanLog(0, 0) {
		key, tombstone := key8(n%50), n%10 == 9
		if tombstone {
			key = key8((n - 1) % 50)
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case !bytes.Equal(r.Key, key) || r.Tombstone != tombstone,
			!tombstone && (!bytes.Equal(r.Value, key8(n)) || r.Expires != int64(n%2)*1e15):
			t.Fatalf("record %d: %+v", n, r)
		}
		addresses = append(addresses, r.Address)
		n++
	}
	if n != keys {
		t.Errorf("%d records of %d", n, keys)
	}
	found := 0
	for r, err := range st.ScanLog(addresses[100], addresses[200]) {
		if err != nil || r.Address != addresses[100+found] {
			t.Fatalf("record %d at %d: %v", 100+found, r.Address, err)
		}
		if found++; found == 60 {
			break
		}
	}
	if found != 60 {
		t.Errorf("found %d of 60 records in between", found)
	}
	closeAll(t, s, st)
	for _, err := range st.ScanLog(0, 0) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("records of a closed store: %v", err)
		}
	}
}

// TestScanBesideWriters scans in steps of all sizes, across restarts, while sessions write and
// compaction runs. Every scan finds the keys that stay, and none of those deleted before.
func TestScanBesideWriters(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
		for _, compact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/compact=%v", name, compact), func(t *testing.T) {
				const (
					stay    = 300 // keys that stay, half of them untouched
					gone    = 100 // keys that are deleted before
					writers = 2
				)
				opts := small(device.NewMemory(), sizes[0], sizes[1])
				st := open(t, opts)
				for n := range uint64(stay + gone) {
					if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				for n := range uint64(gone) {
					if err := st.Delete(context.Background(), key8(stay+n)); err != nil {
						t.Fatal(err)
					}
				}
				// disturb writes and compacts while one scan runs.
				disturb := func(round uint64) *sync.WaitGroup {
					var wg sync.WaitGroup
					for id := range uint64(writers) {
						wg.Go(func() {
							rng := rand.New(rand.NewPCG(round, id))
							for range 200 {
								n := stay/2 + rng.Uint64N(stay/2)
								if rng.IntN(2) == 0 { // a key that is written and deleted
									n = 1000 + rng.Uint64N(100)
								}
								err := st.Upsert(context.Background(), key8(n), key8(n))
								if n >= 1000 && rng.IntN(2) == 0 {
									err = st.Delete(context.Background(), key8(n))
								}
								if err != nil {
									t.Error(err)
									return
								}
							}
						})
					}
					wg.Go(func() {
						for i := 0; compact && i < 4; i++ {
							method := compactMethods[i%len(compactMethods)]
							if _, err := st.Compact(context.Background(), CompactOptions{Method: method, Bytes: 4 << 10}); err != nil {
								t.Error(err)
								return
							}
						}
					})
					return &wg
				}
				rng := rand.New(rand.NewPCG(9, 9))
				rounds := testrun.Raced(40, 10)
				found, scans := 0, 0
				for ; scans < rounds && !t.Failed(); scans++ {
					seen, stopped := map[string]int{}, false
					disturbed := disturb(uint64(scans))
					visit := func(r Record) bool {
						if !bytes.Equal(r.Key, r.Value) {
							t.Errorf("found %x = %x", r.Key, r.Value)
						}
						seen[string(r.Key)]++
						found++
						runtime.Gosched()
						if rng.IntN(1000) == 0 {
							stopped = true
							return false
						}
						return true
					}
					if scans%3 == 0 {
						for r, err := range st.Scan() {
							if err != nil {
								t.Fatal(err)
							}
							visit(r)
						}
						stopped = false
					} else {
						var c Cursor
						for begun := false; !begun || c != 0; begun = true {
							var err error
							if c, err = ParseCursor(c.String()); err != nil {
								t.Fatal(err)
							}
							if c, err = st.ScanFrom(c, 1+rng.IntN(1000), visit); err != nil {
								t.Fatal(err)
							}
						}
					}
					disturbed.Wait()
					most := 1
					switch {
					case stopped: // the keys found in the last group of buckets are found again
						most = math.MaxInt
					case compact && scans%3 == 0:
						most = 2
					}
					for n := range uint64(stay) {
						if times := seen[string(key8(n))]; times == 0 || times > most {
							t.Errorf("scan %d finds key %d %d times, want %d at most", scans, n, times, most)
						}
					}
					for n := range uint64(gone) {
						if seen[string(key8(stay+n))] != 0 {
							t.Errorf("scan %d finds the deleted key %d", scans, stay+n)
						}
					}
				}
				t.Logf("%.0f records found in a scan", float64(found)/float64(scans))
				closeAll(t, st)
			})
		}
	}
}

// TestScanGoesOnAfterARestart closes and opens the store between steps.
func TestScanGoesOnAfterARestart(t *testing.T) {
	dev := device.NewMemory()
	opts := small(dev, 8, 8)
	st := open(t, opts)
	const keys = 500
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	var c Cursor
	for begun := false; !begun || c != 0; begun = true {
		var err error
		if c, err = st.ScanFrom(c, 30, func(r Record) bool { seen[string(r.Key)]++; return true }); err != nil {
			t.Fatal(err)
		}
		mustCompact(t, st, CompactOptions{Bytes: 512})
		closeAll(t, st)
		dev = dev.Reopen()
		opts.Device = dev
		st = open(t, opts)
	}
	for n := range uint64(keys) {
		if seen[string(key8(n))] == 0 {
			t.Errorf("the scan misses key %d", n)
		}
	}
	closeAll(t, st)
}

// TestScanFollowsExpiry finds records whose expiry is extended during the scan, and no expired
// ones except those that it has examined before.
func TestScanFollowsExpiry(t *testing.T) {
	for way, whole := range map[string]bool{"whole": true, "steps": false} {
		t.Run(way, func(t *testing.T) {
			var now atomic.Int64
			now.Store(MinExpires + 1000)
			opts := small(device.NewMemory(), 8, 8)
			opts.now = now.Load
			st := open(t, opts)
			const keys = 3 * scanBatch
			for n := range uint64(keys) {
				putUntil(t, storeRunner{st}, n, MinExpires+2000)
			}
			seen := map[string]bool{}
			before := map[string]bool{} // seen by a scan when none had expired
			begun := func() {
				for n := uint64(1); n < keys; n += 2 {
					putUntil(t, storeRunner{st}, n, MinExpires+3000)
				}
				now.Store(MinExpires + 2500)
			}
			if whole {
				for r, err := range st.Scan() {
					if err != nil {
						t.Fatal(err)
					}
					if len(seen) == 0 {
						begun()
					}
					if seen[string(r.Key)] = true; len(seen) <= scanBatch {
						before[string(r.Key)] = true
					}
				}
			} else {
				visit := func(r Record) bool { seen[string(r.Key)] = true; return true }
				c, err := st.ScanFrom(0, 1, visit)
				if err != nil {
					t.Fatal(err)
				}
				before = maps.Clone(seen)
				for begun(); c != 0; {
					if c, err = st.ScanFrom(c, 50, visit); err != nil {
						t.Fatal(err)
					}
				}
			}
			for n := range uint64(keys) {
				key := key8(n)
				if seen[string(key)] != (n%2 == 1) && !before[string(key)] {
					t.Errorf("key %d: found %v", n, seen[string(key)])
				}
			}
			closeAll(t, st)
		})
	}
}

// TestScanAsksAgainForWhatMayHaveLived walks over records in memory, extends their expiry in
// place, and evicts pages before the index is asked. The copies have expired, but the records
// have not.
func TestScanAsksAgainForWhatMayHaveLived(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{"spread": nil, "collide": func([]byte) uint64 { return 42 }} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(MinExpires + 1000)
			opts := small(device.NewMemory(), 8, 8)
			opts.now, opts.hash = now.Load, hash
			st := open(t, opts)
			s := st.NewSession()
			const keys = 10
			for n := range uint64(keys) {
				putUntil(t, s, n, MinExpires+2000)
			}
			var b traceBatch
			end := st.log.SettleTo(0)
			if err := s.walk(context.Background(), 0, end, func(address int64, im hlog.Image) bool {
				trace := newTrace(address, end)
				trace.early = true
				b.add(opNewest, trace, im)
				return true
			}); err != nil {
				t.Fatal(err)
			}
			for n := uint64(1); n < keys; n += 2 {
				putUntil(t, s, n, MinExpires+3000)
			}
			if st.log.Tail() != end {
				t.Fatal("lives were not prolonged in place")
			}
			for n := range uint64(500) {
				putUntil(t, s, 1000+n, 0)
			}
			now.Store(MinExpires + 2500)
			if err := b.run(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			for n := range b.ops {
				if op := &b.ops[n]; (op.Err == nil) != (n%2 == 1) || op.Err == nil && op.Expires != MinExpires+3000 {
					t.Errorf("key %d: %v, expires %d", n, op.Err, op.Expires)
				}
			}
			closeAll(t, s, st)
		})
	}
}

// pendingReads is a device that counts the reads that its queues have not polled.
type pendingReads struct {
	device.Device
	pending atomic.Int64
	reads   atomic.Int64 // ever
}

func (d *pendingReads) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &pendingReadsQueue{Queue: q, d: d}, err
}

type pendingReadsQueue struct {
	device.Queue // of reads only, or of writes only
	d            *pendingReads
	reads        bool
}

func (q *pendingReadsQueue) Read(dst []byte, addr int64, tag uint64) error {
	err := q.Queue.Read(dst, addr, tag)
	if err == nil {
		q.reads = true
		q.d.pending.Add(1)
		q.d.reads.Add(1)
	}
	return err
}

func (q *pendingReadsQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	if q.reads {
		q.d.pending.Add(-int64(n))
	}
	return n
}

// No reads are pending while a slow caller of an iteration has a record, nor after an iteration or
// a compaction: it may be long until they are polled, and a device may wait for that.
func TestNoReadsPendingBetweenRecords(t *testing.T) {
	defer func(before time.Duration) { callerTime = before }(callerTime)
	callerTime = 0 // all are slow
	dev := &pendingReads{Device: device.NewMemory()}
	opts := small(dev, 0, 0)
	opts.PageSize, opts.Memory = 32<<10, 128<<10 // larger pages than the first pieces that are read ahead
	st := open(t, opts)
	defer closeAll(t, st)
	for n := range uint64(4000) {
		if err := st.Upsert(t.Context(), key8(n%2000), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		if n := dev.pending.Load(); n != 0 {
			t.Fatalf("%d reads are pending %s", n, when)
		}
	}
	for name, all := range map[string]iter.Seq2[Record, error]{"Scan": st.Scan(), "ScanLog": st.ScanLog(0, 0)} {
		for _, most := range []int{10, 1000, math.MaxInt} {
			n, before := 0, dev.reads.Load()
			for _, err := range all {
				if err != nil {
					t.Fatal(err)
				}
				check("during " + name)
				if n++; n == most {
					break
				}
			}
			check("after " + name)
			if dev.reads.Load() == before {
				t.Errorf("%s has read nothing", name)
			}
		}
	}
	if _, err := st.Compact(t.Context(), CompactOptions{Bytes: st.log.Head() / 2}); err != nil {
		t.Fatal(err)
	}
	check("after a compaction")
}
