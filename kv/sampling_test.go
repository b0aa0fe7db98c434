package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/missratio"
)

// accesses is a sequence of operations on keys from 0 to accessKeys-1.
type accesses struct {
	name   string
	writes float64
	next   func(n int, random *rand.Rand) uint64 // the key of operation n
	scans  bool
}

const (
	accessKeys  = 30_000
	accessCount = 200_000
	accessWarm  = 20 << 12 // operations that are not measured
	accessValue = 56
	accessSize  = 72 // of a record in the log
)

// zipfKeys draws ranks below n with Zipf's distribution, and spreads them over the keys.
func zipfKeys(n int, exponent float64) func(*rand.Rand) uint64 {
	sums := make([]float64, n)
	sum := 0.0
	for rank := range sums {
		sum += math.Pow(float64(rank+1), -exponent)
		sums[rank] = sum
	}
	places := rand.New(rand.NewPCG(7, 7)).Perm(n)
	return func(random *rand.Rand) uint64 {
		return uint64(places[min(sort.SearchFloat64s(sums, random.Float64()*sum), n-1)])
	}
}

func accessPatterns() []accesses {
	zipf, part := zipfKeys(accessKeys, 0.99), zipfKeys(accessKeys/10, 0.8)
	return []accesses{
		{"uniform", 0.5, func(_ int, random *rand.Rand) uint64 { return random.Uint64N(accessKeys) }, false},
		{"zipf", 0.2, func(_ int, random *rand.Rand) uint64 { return zipf(random) }, false},
		{"zipf and a scan", 0.2, func(n int, random *rand.Rand) uint64 {
			if n%10 < 3 {
				return uint64(n*3/10) % accessKeys
			}
			return zipf(random)
		}, true},
		{"moving", 0.3, func(n int, random *rand.Rand) uint64 {
			return (part(random) + uint64(n/10)) % accessKeys
		}, false},
	}
}

// accessStore opens a store with that much memory and inserts all keys.
func accessStore(t *testing.T, memory int64, cache float64, opts Options) *Store {
	t.Helper()
	opts.Device, opts.Memory, opts.ReadCache = device.NewMemory(), memory, cache
	opts.KeySize, opts.ValueSize, opts.Records, opts.PageSize = 8, accessValue, accessKeys, 8<<10
	opts.hashSeed = 1234
	st := open(t, opts)
	t.Cleanup(func() { closeAll(t, st) })
	s := st.NewSession()
	for n := range uint64(accessKeys) {
		if err := s.Upsert(key8(n), make([]byte, accessValue)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

// play carries out the operations, as plain calls and in batches by turns. It calls each after every few thousand.
func (a *accesses) play(t *testing.T, st *Store, each func(n int)) {
	t.Helper()
	s := st.NewSession()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	var dst [accessValue]byte
	value := make([]byte, accessValue)
	batch := make([]Op, 128)
	for n := 0; n < accessCount; {
		if n%(1<<12) == 0 {
			each(n)
		}
		if n>>12%2 == 0 {
			key, write := key8(a.next(n, random)), random.Float64() < a.writes
			n++
			var err error
			if write {
				err = s.Upsert(key, value)
			} else {
				_, err = s.Read(key, dst[:0])
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		for i := range batch {
			batch[i] = Op{Kind: OpRead, Key: key8(a.next(n, random)), Value: batch[i].Value[:0]}
			if n++; random.Float64() < a.writes {
				batch[i].Kind, batch[i].Value = OpUpsert, value
			}
		}
		if err := s.Do(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			if batch[i].Kind == OpUpsert {
				batch[i].Value = nil
			}
		}
	}
}

// readShares returns the shares of reads since before that found their record in memory and in the
// read cache.
func readShares(st *Store, before Metrics) (memory, cache float64) {
	m := st.Metrics()
	reads := float64(m.Operations.Reads - before.Operations.Reads)
	return float64(m.ReadsFrom.Memory-before.ReadsFrom.Memory) / reads, float64(m.ReadsFrom.Cache-before.ReadsFrom.Cache) / reads
}

// The largest differences between predicted and measured shares of reads.
const (
	mostApart        = 0.03
	mostApartScanned = 0.04 // of a read cache with a scan mixed in: see DECISIONS.md
)

// TestMissRatioCurve predicts, from one store, the hit shares of stores of three smaller and larger
// sizes, without a read cache and with one, and compares with what those stores measure.
func TestMissRatioCurve(t *testing.T) {
	patterns := accessPatterns()
	if machine.RaceDetector {
		patterns = patterns[1:2] // one goroutine operates: one pattern shows all there is to find
	}
	for _, c := range []struct {
		cache  float64
		shares []float64 // of the data, that the log's memory and the read cache hold
	}{
		{0, []float64{0.15, 0.5, 1.2}},
		{0.4, []float64{0.2, 0.35, 0.75}},
	} {
		if machine.RaceDetector {
			c.shares = c.shares[:1]
		}
		for _, a := range patterns {
			t.Run(fmt.Sprintf("%s, cache %g", a.name, c.cache), func(t *testing.T) { a.comparePrediction(t, c.cache, c.shares) })
		}
	}
}

// comparePrediction predicts the hit shares of stores whose memory is that share of the data, and compares with
// what they measure.
func (a *accesses) comparePrediction(t *testing.T, cache float64, shares []float64) {
	const log = accessKeys * accessSize
	st := accessStore(t, log/3, cache, Options{
		SampleAccesses: true, samplingRate: 0.25, witnessEvery: 8, stillSampling: true,
	})
	a.play(t, st, func(n int) {
		if n == accessWarm {
			if err := st.SetSampling(true); err != nil { // forgets the accesses up to here
				t.Fatal(err)
			}
		}
		st.epoch.Bump()
	})
	c := st.MissRatioCurve()
	if c.Model == nil {
		t.Fatal("no model")
	}
	mostCached := mostApart
	if a.scans {
		mostCached = mostApartScanned
	}
	for _, share := range shares {
		memory := int64(share * log)
		other := accessStore(t, memory, cache, Options{})
		var before Metrics
		a.play(t, other, func(n int) {
			if n == accessWarm {
				before = other.Metrics()
			}
		})
		warm, cached := readShares(other, before)
		p := st.missRatio(c.Model, memory)
		report := t.Logf
		if math.Abs(p.InMemory-warm) > mostApart || math.Abs(p.InCache-cached) > mostCached {
			report = t.Errorf
		}
		report("memory of %.2f of the data: memory %.3f and cache %.3f predicted, %.3f and %.3f measured",
			share, p.InMemory, p.InCache, warm, cached)
	}
}

// TestSamplingSwitch switches sampling while operations go on.
func TestSamplingSwitch(t *testing.T) {
	st := accessStore(t, 1<<20, 0, Options{})
	a := accessPatterns()[0]
	if c := st.MissRatioCurve(); st.Sampling() || c.Model != nil || c.Now.Memory != 1<<20 {
		t.Fatalf("off: %+v", c)
	}
	on := false
	a.play(t, st, func(int) {
		on = !on
		if err := st.SetSampling(on); err != nil || st.Sampling() != on {
			t.Fatal(err)
		}
	})
	if err := st.SetSampling(true); err != nil {
		t.Fatal(err)
	}
	a.play(t, st, func(int) {})
	if c := st.MissRatioCurve(); c.Model == nil || c.Model.Rate != missratio.DefaultRate || len(c.Points) == 0 {
		t.Fatalf("on: %+v", c)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.SetSampling(true); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}

// BenchmarkSampling measures reads with sampling off and on by turns, and reports the ratio of their
// times. Sampling is paused while it is off, so that its beginning is not measured again and again.
func BenchmarkSampling(b *testing.B) {
	const records, turn = 1 << 22, 1 << 17
	st := open(b, Options{
		Device: device.NewNull(), KeySize: 8, ValueSize: 8, Memory: records * 32, Records: records, SampleAccesses: true,
	})
	s := st.NewSession()
	load(b, s, records)
	random := rand.New(rand.NewPCG(1, 2))
	for _, batch := range []int{1, 256} {
		ops := make([]Op, batch)
		for i := range ops {
			ops[i] = Op{Kind: OpRead, Key: key8(0), Value: make([]byte, 0, 8)}
		}
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			var ratios []float64
			var took [2]time.Duration
			for b.Loop() {
				limit := st.sampling.sampler.Load().Limit()
				for i := range took {
					on := (i + b.N) % 2
					st.sampling.limit.Store(uint64(on) * limit)
					st.epoch.Bump()
					begun := time.Now()
					for range turn / batch {
						for i := range ops {
							binary.LittleEndian.PutUint64(ops[i].Key, random.Uint64N(records))
						}
						var err error
						if batch == 1 {
							_, err = s.Read(ops[0].Key, ops[0].Value[:0])
						} else {
							err = s.Do(context.Background(), ops)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					took[on] = time.Since(begun)
				}
				ratios = append(ratios, float64(took[1])/float64(took[0]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "on/off")
			b.ReportMetric(float64(took[0].Nanoseconds())/turn, "off-ns/read")
		})
	}
	closeAll(b, s, st)
}
