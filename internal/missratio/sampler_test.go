package missratio

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
)

func TestHistogram(t *testing.T) {
	for bucket := range buckets {
		start := int64(startOf(bucket))
		if got := bucketOf(start); got != bucket {
			t.Errorf("distance %d: bucket %d, want %d", start, got, bucket)
		}
		if bucket > 0 && bucketOf(start-1) != bucket-1 {
			t.Errorf("distance %d: bucket %d, want %d", start-1, bucketOf(start-1), bucket-1)
		}
	}
	var all tally
	all[0], all[9] = 1, 2
	h := all.histogram()
	for limit, want := range map[float64]float64{0: 0, 2048: 0.5, 4096: 1, 8192: 1, 8704: 2, 9216: 3, 1e15: 3} {
		if got := h.Below(limit); math.Abs(got-want) > 1e-6 {
			t.Errorf("below %g: %g, want %g", limit, got, want)
		}
	}
	if len(h) != 10 || h.Sum() != 3 {
		t.Errorf("%v", h)
	}
}

const testPage = 16 << 10

// TestUniformReads: of records that are read at random and never written, memory has a share of its size.
func TestUniformReads(t *testing.T) {
	const keys, size = 100_000, 100
	r := NewReplay(Options{Memory: keys * size / 4, PageSize: testPage})
	for n := range uint64(keys) {
		r.Access(Write, Hash(n), size)
	}
	random := rand.New(rand.NewPCG(1, 2))
	r.Sampler.Forget()
	for range 10 * keys {
		r.Access(Read, Hash(random.Uint64N(keys)), size)
	}
	m := r.Sampler.Model()
	if m.Keys > DefaultKeys || m.Rate >= 0.1 || m.Reads < 0.999 || m.Hot > 0.01 {
		t.Fatalf("%d keys, rate %g, reads %g, hot %g", m.Keys, m.Rate, m.Reads, m.Hot)
	}
	for _, share := range []float64{0.1, 0.3, 0.5, 0.8} {
		s := m.Predict(Setting{Memory: int64(share * keys * size)})
		if math.Abs(s.Memory-share) > 0.03 || math.Abs(s.Memory+s.Beyond-1) > 1e-3 {
			t.Errorf("memory of %g: %+v", share, s)
		}
		// A tier that holds twice as much of the log.
		s = m.Predict(Setting{Memory: int64(share * keys * size), Tier: int64(2 * share * keys * size)})
		if want := min(2*share, 1) - share; math.Abs(s.Tier-want) > 0.05 {
			t.Errorf("memory of %g and a tier: %+v, want %g", share, s, want)
		}
		// A read cache of the same size holds fewer records, as each takes more space there.
		s = m.Predict(Setting{Memory: int64(share * keys * size), Cache: int64(share * keys * size)})
		if want := min(0.8*share, 1-share); share <= 0.5 && math.Abs(s.Cache-want) > 0.06 {
			t.Errorf("memory of %g and a read cache: %+v, want %g", share, s, want)
		}
	}
}

// TestAbsent: reads of keys without a record need no device.
func TestAbsent(t *testing.T) {
	s := New(Options{Memory: 1 << 20, PageSize: testPage, MaxRate: 1})
	if s.Model() != nil {
		t.Error("a model of nothing")
	}
	for n := range uint64(1000) {
		s.Add(Access{Kind: Read, Hash: Hash(n), Distance: -1})
	}
	m := s.Model()
	if p := m.Predict(Setting{Memory: 1 << 20}); p.Memory != 1 || m.Absent != 1 {
		t.Errorf("%+v, absent %g", p, m.Absent)
	}
}

// TestLimit: the limit falls, and keys above it are not followed.
func TestLimit(t *testing.T) {
	s := New(Options{Memory: 1 << 20, PageSize: testPage, MaxRate: 1, MaxKeys: 100})
	limit := s.Limit()
	for n := range uint64(10_000) {
		next := s.Add(Access{Kind: Write, Hash: Hash(n), Size: 100, Distance: -1})
		if next > limit {
			t.Fatalf("the limit rises from %d to %d", limit, next)
		}
		limit = next
	}
	stats := s.Stats()
	if stats.Keys > 100 || stats.Keys < 50 || math.Abs(stats.Rate*10_000-float64(stats.Keys)) > 30 {
		t.Errorf("%+v", stats)
	}
	for _, k := range s.keys {
		if k.hash >= limit || int(s.slots[k.hash]) >= len(s.keys) {
			t.Errorf("key %d above %d", k.hash, limit)
		}
	}
	before := s.Stats().Accesses
	s.Add(Access{Hash: math.MaxUint64})
	if s.Stats().Accesses != before {
		t.Error("a key above the limit is counted")
	}
}

// TestMemory: a sampler takes at most 8 MiB.
func TestMemory(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s := New(Options{Memory: 8 << 20, PageSize: testPage, MaxRate: 1})
	random := rand.New(rand.NewPCG(3, 4))
	for n := range int64(1_500_000) {
		kind := Kind(random.Uint64N(3))
		hash := Hash(uint64(float64(1_000_000) * math.Pow(random.Float64(), 3)))
		a := Access{Kind: kind, Hash: hash, Size: 100, Distance: int64(random.Uint64N(100 << 20)), Tail: 1<<40 + n}
		s.Add(a)
		s.Witness(a)
	}
	if took := heap() - before; took > 8<<20 {
		t.Errorf("%d bytes", took)
	}
	runtime.KeepAlive(s)
}

// TestJSON: a model is the same after it was sent as JSON.
func TestJSON(t *testing.T) {
	r := NewReplay(Options{Memory: 1 << 20, PageSize: testPage})
	random := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		r.Access(Kind(random.Uint64N(3)), Hash(random.Uint64N(20_000)), 200)
	}
	m := r.Sampler.Model()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got Model
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, m) {
		t.Error("the model has changed")
	}
	if len(text) > 1<<20 {
		t.Errorf("%d bytes", len(text))
	}
}

// TestCheck: a model with which Predict would not work is refused.
func TestCheck(t *testing.T) {
	r := NewReplay(Options{Memory: 1 << 20, PageSize: testPage})
	r.Access(Write, Hash(1), 100)
	for name, spoil := range map[string]func(*Model){
		"":                    func(*Model) {},
		"no page size":        func(m *Model) { m.PageSize = 0 },
		"huge pages":          func(m *Model) { m.PageSize = math.MaxInt64 },
		"no mutable fraction": func(m *Model) { m.MutableFraction = 0 },
		"no sizes":            func(m *Model) { m.Sizes = nil },
		"no memory":           func(m *Model) { m.Sizes[0].Memory = -1 },
		"huge memory":         func(m *Model) { m.Sizes[sizes-1].Memory = math.MaxInt64 },
		"equal sizes":         func(m *Model) { m.Sizes[1].Memory = m.Sizes[0].Memory },
	} {
		m := r.Sampler.Model()
		spoil(m)
		if err := m.Check(); (err != nil) != (name != "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
