package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// TestGrowthUnderEveryOperation inserts, reads, changes and deletes keys while the index
// doubles repeatedly, by itself and on demand. Each session has its own keys and compares them
// with a map.
func TestGrowthUnderEveryOperation(t *testing.T) {
	for name, tc := range map[string]struct {
		sizes  [2]int
		memory int64
		hash   func([]byte) uint64
	}{
		"words":          {sizes: [2]int{8, 8}, memory: 1 << 20},
		"words, cold":    {sizes: [2]int{8, 8}, memory: 8 << 10},
		"wide, cold":     {sizes: [2]int{8, 24}, memory: 8 << 10},
		"variable, cold": {memory: 8 << 10},
		"all collide":    {sizes: [2]int{8, 8}, memory: 64 << 10, hash: func([]byte) uint64 { return 0x1234567 }},
		"one bucket":     {sizes: [2]int{8, 8}, memory: 1 << 20, hash: func(k []byte) uint64 { return oneHash.Of(k) &^ 0xff }},
	} {
		t.Run(name, func(t *testing.T) {
			const sessions = 4
			keys, rounds := uint64(2000), testrun.Raced(20_000, 5000)
			if name == "all collide" { // chains are long
				keys, rounds = 30, rounds/10
			}
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: tc.sizes[0], ValueSize: tc.sizes[1],
				Memory: tc.memory, PageSize: 1 << 10, QueueDepth: 8, indexBits: 2, hash: tc.hash,
			})
			var wg sync.WaitGroup
			for i := range uint64(sessions) {
				wg.Go(func() {
					s := st.NewSession()
					defer closeAll(t, s)
					play := growthPlay{s: s, first: i * keys, keys: keys, size: max(tc.sizes[1], 8), want: map[uint64]uint64{}}
					play.run(t, rand.New(rand.NewPCG(i, 1)), rounds)
				})
			}
			wg.Wait()
			if st.indexBits() < 5 {
				t.Errorf("an index of %d bits", st.indexBits())
			}
			closeAll(t, st)
		})
	}
}

// growthPlay is the run of one session on its own keys.
type growthPlay struct {
	s           *Session
	first, keys uint64
	size        int
	want        map[uint64]uint64
}

func (p *growthPlay) value(n uint64) []byte { return append(key8(n), make([]byte, p.size-8)...) }

func (p *growthPlay) run(t *testing.T, rng *rand.Rand, rounds int) {
	ops := make([]Op, 20)
	for round := 0; round < rounds && !t.Failed(); round++ {
		if p.first == 0 && round%(rounds/3) == 0 {
			if err := p.s.store.GrowIndex(context.Background()); err != nil {
				t.Error(err)
			}
		}
		key := p.first + rng.Uint64N(p.keys)
		var err error
		switch n := rng.Uint64(); rng.IntN(7) {
		case 0, 1:
			p.want[key] = n
			err = p.s.Upsert(key8(key), p.value(n))
		case 2:
			delete(p.want, key)
			err = p.s.Delete(key8(key))
		case 3:
			err = p.s.RMW(key8(key), modifier(func(dst, old []byte, found bool) []byte {
				if found {
					n = binary.LittleEndian.Uint64(old) + 1
				}
				return append(dst, p.value(n)...)
			}))
			if was, ok := p.want[key]; ok && n != was+1 {
				t.Errorf("key %d: from %d to %d", key, was, n)
			}
			p.want[key] = n
		case 4:
			err = p.s.Insert(key8(key), p.value(n))
			if was, ok := p.want[key]; ok != errors.Is(err, ErrExists) {
				t.Errorf("key %d, inserted over %d, %v: %v", key, was, ok, err)
			} else if ok {
				err = nil
			} else {
				p.want[key] = n
			}
		case 5:
			p.batch(t, rng, ops)
		case 6:
			p.check(t, key)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for key := p.first; key < p.first+p.keys && !t.Failed(); key++ {
		p.check(t, key)
	}
}

// batch upserts keys in a batch, and reads others.
func (p *growthPlay) batch(t *testing.T, rng *rand.Rand, ops []Op) {
	for i := range ops {
		key := p.first + rng.Uint64N(p.keys)
		ops[i] = Op{Kind: OpUpsert, Key: key8(key), Value: p.value(key + 7)}
		if i%2 == 0 {
			ops[i].Kind, ops[i].Value = OpRead, nil
		} else {
			p.want[key] = key + 7
		}
	}
	if err := p.s.Do(context.Background(), ops); err != nil {
		t.Error(err)
	}
}

func (p *growthPlay) check(t *testing.T, key uint64) {
	got, err := p.s.Read(key8(key), nil)
	want, ok := p.want[key]
	switch {
	case !ok && !errors.Is(err, ErrNotFound):
		t.Errorf("key %d, which is not there: %x, %v", key, got, err)
	case ok && (err != nil || !bytes.Equal(got, p.value(want))):
		t.Errorf("key %d: %x, %v, want %d", key, got, err, want)
	}
}

// TestGrowthLosesNoInsert inserts the same new keys in several sessions at once. A duplicate
// entry would lose increments.
func TestGrowthLosesNoInsert(t *testing.T) {
	const keys, sessions = 20_000, 4
	st := open(t, Options{
		Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 4 << 20, indexBits: 4,
	})
	var wg sync.WaitGroup
	for i := range uint64(sessions) {
		wg.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			for n := range uint64(keys) {
				if err := s.RMW(key8(n^i), add(1)); err != nil { // neighboring keys, in different orders
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for n := range uint64(keys) {
		if v, err := st.Read(context.Background(), key8(n), nil); err != nil || binary.LittleEndian.Uint64(v) != sessions {
			t.Fatalf("key %d: %x, %v", n, v, err)
		}
	}
	st.background.Wait()
	if table := st.index.Load(); table.Crowded() || table.Mask()+1 < keys/bucketEntries/2 {
		t.Errorf("%d buckets, %d overflow buckets for %d keys", table.Mask()+1, table.Overflow(), keys)
	}
	if m, index := st.Metrics(), st.index.Load(); m.Index.Bytes != index.Bytes() {
		t.Errorf("an index of %d bytes, counted as %d", index.Bytes(), m.Index.Bytes)
	}
	closeAll(t, st)
}

// TestGrownStoreReopens checks that a store that has grown is opened with an index that
// distinguishes at least as many keys, whatever its options, and that recovery grows an index
// that was too small.
func TestGrownStoreReopens(t *testing.T) {
	const keys = 5000
	dev := device.NewMemory()
	opts := Options{Device: dev, KeySize: 8, ValueSize: 8, Memory: 8 << 10, PageSize: 1 << 10, indexBits: 2}
	st := open(t, opts)
	s := st.NewSession()
	for n := range uint64(keys) {
		if err := s.Upsert(key8(n), key8(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	st.background.Wait()
	bits := st.indexBits()
	if bits < 9 {
		t.Fatalf("an index of %d bits for %d keys", bits, keys)
	}
	closeAll(t, s, st)
	meta, err := manifest.Read(dev.Reopen())
	if err != nil || meta.IndexBits != bits {
		t.Fatalf("metadata %+v, %v, want %d bits", meta, err, bits)
	}
	for _, atFirst := range []int{0, bits} { // with the recorded size of the index, and without
		dev = dev.Reopen()
		meta.IndexBits -= atFirst
		opts.Device = dev
		st := open(t, opts)
		for n := range uint64(keys) {
			readBack(st.Read(context.Background(), key8(n), nil)).Want(t, key8(n+1), "key %d", n)
		}
		closeAll(t, st)
	}
}

func TestGrowIndexIsWholeOrNotAtAll(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, indexBits: 3, FixedIndex: true})
	ctx, cancel := context.WithCancel(context.Background())
	st.resizing.Lock() // keeps the index from growing
	grown := make(chan error)
	go func() { grown <- st.GrowIndex(ctx) }()
	cancel()
	if err := testrun.Receive(t, "GrowIndex ends", grown); !errors.Is(err, context.Canceled) {
		t.Errorf("GrowIndex that had not begun: %v", err)
	}
	st.resizing.Unlock()
	if err := st.GrowIndex(ctx); !errors.Is(err, context.Canceled) || st.indexBits() != 3 {
		t.Errorf("GrowIndex with a context that has ended: %v, %d bits", err, st.indexBits())
	}
	for n := range tagBits {
		if err := st.GrowIndex(context.Background()); err != nil || st.indexBits() != 4+n {
			t.Fatalf("doubled %d times: %v, %d bits", n, err, st.indexBits())
		}
	}
	if err := st.GrowIndex(context.Background()); err == nil {
		t.Error("it grew beyond its tags")
	}
	closeAll(t, st)
	if err := st.GrowIndex(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("GrowIndex of a closed store: %v", err)
	}
}

// BenchmarkGrowth reads from a store, with and without growth of its index.
func BenchmarkGrowth(b *testing.B) {
	const keys = 4 << 20
	for _, growing := range []bool{false, true} {
		b.Run(map[bool]string{false: "resting", true: "growing"}[growing], func(b *testing.B) {
			st := open(b, Options{
				Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 256 << 20, Records: keys / 2, FixedIndex: true,
			})
			s := st.NewSession()
			ops := make([]Op, 256)
			for n := uint64(0); n < keys; n += uint64(len(ops)) {
				for i := range ops {
					ops[i] = Op{Kind: OpUpsert, Key: key8(n + uint64(i)), Value: key8(n)}
				}
				if err := s.Do(context.Background(), ops); err != nil {
					b.Fatal(err)
				}
			}
			rng := rand.New(rand.NewPCG(1, 1))
			for i := range ops {
				ops[i] = Op{Kind: OpRead, Key: make([]byte, 8), Value: make([]byte, 8)}
			}
			var left atomic.Bool
			left.Store(growing)
			if growing {
				go func() {
					defer left.Store(false)
					if err := st.GrowIndex(context.Background()); err != nil {
						b.Error(err)
					}
				}()
			}
			b.ResetTimer()
			n := 0
			for ; n < b.N || left.Load(); n += len(ops) {
				for i := range ops {
					binary.LittleEndian.PutUint64(ops[i].Key, rng.Uint64N(keys))
				}
				if err := s.Do(context.Background(), ops); err != nil {
					b.Fatal(err)
				}
				if growing && !left.Load() {
					break
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/read")
			b.ReportMetric(b.Elapsed().Seconds()*1000, "ms")
			closeAll(b, s, st)
		})
	}
}
