package ycsb

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// loaded opens a small store on a device and loads it.
func loaded(t *testing.T, name Device, shape Shape) *Target {
	t.Helper()
	l, err := newInProcess(t.Context(), opening{Device: name, Shape: shape, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return l.target
}

// runOnce runs a short experiment.
func runOnce(t *testing.T, target *Target, shape Shape) Result {
	t.Helper()
	spec := Spec{Shape: shape, Device: Memory, Distribution: Uniform, Threads: 1, Duration: 30 * time.Millisecond}
	result, err := Run(t.Context(), target, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestValueSizes(t *testing.T) {
	for _, size := range []int{1, 7, 8, 9, 100, 1024} {
		shape := Shape{Records: 10_000, ValueSize: size, Depth: 16, Memory: DefaultMemory(LogBytes(10_000, size))}
		if r := runOnce(t, loaded(t, Memory, shape), shape); r.Ops == 0 || r.Errors > 0 {
			t.Errorf("values of %d bytes: %d of %d reads went wrong: %s", size, r.Errors, r.Ops, r.FirstError)
		}
	}
}

// TestWrongValuesAreCounted checks that wrong and missing values are counted as errors.
func TestWrongValuesAreCounted(t *testing.T) {
	const records = 1000
	shape := Shape{Records: records, ValueSize: 24, Depth: 16, Memory: 1 << 20}
	for _, tc := range []struct {
		name  string
		spoil func(*kv.Session, uint64) error
		want  string
	}{
		{"of another record", func(s *kv.Session, n uint64) error {
			value := make([]byte, shape.ValueSize)
			record.FillValue(value, n+1)
			return s.Upsert(key(n), value)
		}, "byte 0 of the value"},
		{"wrong at the end", func(s *kv.Session, n uint64) error {
			value := make([]byte, shape.ValueSize)
			record.FillValue(value, n)
			value[23]++
			return s.Upsert(key(n), value)
		}, "byte 23 of the value"},
		{"wrong in the middle", func(s *kv.Session, n uint64) error {
			value := make([]byte, shape.ValueSize)
			record.FillValue(value, n)
			value[12]++
			return s.Upsert(key(n), value)
		}, "byte 12 of the value"},
		{"missing", func(s *kv.Session, n uint64) error { return s.Delete(key(n)) }, "not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target := loaded(t, Memory, shape)
			session := target.Store.NewSession()
			for n := range uint64(records) {
				if err := tc.spoil(session, n); err != nil {
					t.Fatal(err)
				}
			}
			if err := session.Close(); err != nil {
				t.Fatal(err)
			}
			r := runOnce(t, target, shape)
			if r.Errors == 0 || !strings.Contains(r.FirstError, tc.want) {
				t.Errorf("%d of %d reads went wrong, the first: %q; want %q", r.Errors, r.Ops, r.FirstError, tc.want)
			}
		})
	}
}

func key(n uint64) []byte {
	k := make([]byte, KeySize)
	record.PutKey(k, n)
	return k
}

func TestRunRefuses(t *testing.T) {
	shape := Shape{Records: 10, ValueSize: 8, Depth: 1, Memory: 1 << 20}
	target := loaded(t, Memory, shape)
	spec := Spec{Shape: shape, Device: Memory, Distribution: Uniform, Threads: 2, Duration: time.Second}
	for what, spoil := range map[string]func(*Spec){
		"no threads":      func(s *Spec) { s.Threads = 0 },
		"no distribution": func(s *Spec) { s.Distribution = "normal" },
		"no time":         func(s *Spec) { s.Duration = 0 },
	} {
		bad := spec
		spoil(&bad)
		if _, err := Run(t.Context(), target, bad, nil); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// TestHeapStaysFlat checks that the data are not in the Go heap.
func TestHeapStaysFlat(t *testing.T) {
	testrun.SkipUnlessAll(t, "it loads a million records")
	testrun.SkipRaced(t, "the race detector moves them to the Go heap")
	const records = 1_000_000
	shape := Shape{Records: records, ValueSize: 8, Depth: 32, Memory: DefaultMemory(LogBytes(records, 8))}
	target := loaded(t, SSD, shape)
	const allowed = 4 << 20 // an eighth of the records' size as Go strings
	for try := range 3 {    // what other goroutines allocate meanwhile counts, too
		result := runOnce(t, target, shape)
		grown := int64(result.HeapBytesAfter) - int64(result.HeapBytesBefore)
		if grown <= allowed {
			break
		}
		if try == 2 {
			t.Errorf("the Go heap grew by %d bytes, from %d to %d", grown, result.HeapBytesBefore, result.HeapBytesAfter)
		}
	}
}

func TestReaderAllocatesNothing(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	shape := Shape{Records: 2000, ValueSize: 8, Depth: 16, Memory: 16 << 10}
	target := loaded(t, Memory, shape)
	numbers, err := Uniform.Generator(shape.Records, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(shape.ValueSize, shape.Depth, numbers)
	r.session = target.Store.NewSession()
	defer func() { _ = r.session.Close() }()
	step := func() {
		if _, err := r.submit(burst); err != nil {
			t.Fatal(err)
		}
		for len(r.free) < len(r.ops) {
			if r.poll() == 0 {
				if err := r.session.Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	step()
	if allocs := testrun.AllocsPerRun(200, step); allocs > 0 {
		t.Errorf("%v allocations in up to %d reads", allocs, burst)
	}
	if r.errors > 0 {
		t.Error(r.first)
	}
}

func BenchmarkReader(b *testing.B) {
	shape := Shape{Records: 100_000, ValueSize: 8, Depth: 64, Memory: 64 << 20}
	store, err := OpenStore(device.NewMemory(), shape)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := Load(b.Context(), store, shape, 1, nil); err != nil {
		b.Fatal(err)
	}
	numbers, err := Uniform.Generator(shape.Records, 1)
	if err != nil {
		b.Fatal(err)
	}
	r := newReader(shape.ValueSize, shape.Depth, numbers)
	r.session = store.NewSession()
	defer func() { _ = r.session.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.submit(burst); err != nil {
			b.Fatal(err)
		}
		r.poll()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(r.count), "ns/read")
}

// TestOpenLoop checks that an open loop begins no more reads than its rate, and that latencies
// count from the time at which a read is due.
func TestOpenLoop(t *testing.T) {
	shape := Shape{Records: 10_000, ValueSize: 8, Depth: 16, Memory: 1 << 20}
	target := loaded(t, Memory, shape)
	const rate = 2000
	r, err := Run(t.Context(), target, Spec{
		Shape: shape, Device: Memory, Distribution: Zipfian, Threads: 2, Duration: 200 * time.Millisecond, Rate: rate,
	}, nil)
	if err != nil || r.Errors > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Each thread may begin its last read after the end.
	if most := rate*r.Seconds + 4; float64(r.Ops) > most || r.Ops < 2 || r.TargetRate != rate {
		t.Errorf("%d reads in %v s at %d a second", r.Ops, r.Seconds, rate)
	}
	if r.P50Micros > r.P95Micros || r.P95Micros > r.P99Micros || r.P99Micros > r.P999Micros || r.P999Micros > r.MaxMicros*1.01 || r.MaxMicros <= 0 {
		t.Errorf("%+v", r)
	}
	// More than the store can do: reads wait longer and longer.
	slow, err := Run(t.Context(), target, Spec{
		Shape: shape, Device: Memory, Distribution: Uniform, Threads: 1, Duration: 100 * time.Millisecond, Rate: MaxRate,
	}, nil)
	if err != nil || slow.MaxMicros < 1e6*slow.Seconds/4 {
		t.Errorf("%+v, %v: at a rate that nothing keeps up with, the last reads wait for about as long as it lasts", slow, err)
	}
	for _, bad := range []float64{-1, 2 * MaxRate} {
		if _, err := Run(t.Context(), target, Spec{Shape: shape, Device: Memory, Distribution: Uniform, Threads: 1, Duration: time.Millisecond, Rate: bad}, nil); err == nil {
			t.Errorf("a rate of %g", bad)
		}
	}
}

// Operations that failed are no throughput.
func TestFailuresAreNoThroughput(t *testing.T) {
	total := newTally()
	total.count, total.errors = 5_000_000, 2_000_000
	var r Result
	if r.measured(total, 2*time.Second); r.Mops != 1.5 || r.Ops != 5_000_000 || r.Errors != 2_000_000 {
		t.Errorf("%+v", r)
	}
}
