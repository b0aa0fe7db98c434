package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// BenchmarkCompact compacts the older half of a log that is about six times as large as memory
// and has a share of dead records. It reports the cost per record of that half: by lookup a
// read for each dead one, by scan a pass over the other half.
func BenchmarkCompact(b *testing.B) {
	for _, on := range []string{"memory", "ssd"} {
		for _, dead := range []int{10, 50, 90} {
			for _, method := range []kv.CompactMethod{kv.CompactByLookup, kv.CompactByScan} {
				b.Run(fmt.Sprintf("%s/dead=%d/%v", on, dead, method), func(b *testing.B) {
					records := uint64(0)
					for b.Loop() {
						b.StopTimer()
						st, until := benchmarkLog(b, on, dead)
						b.StartTimer()
						info, err := st.Compact(context.Background(), kv.CompactOptions{Until: until, Method: method})
						b.StopTimer()
						if err == nil {
							err = st.Close()
						}
						if err != nil {
							b.Fatal(err)
						}
						records += info.Records
						b.StartTimer()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
				})
			}
		}
	}
}

// benchmarkLog returns a store whose log has a number of keys, and then as many again, some of
// which repeat keys of the first half. until is the end of the first half.
func benchmarkLog(b *testing.B, on string, dead int) (st *kv.Store, until int64) {
	b.Helper()
	const half = 400_000
	var dev device.Device = device.NewMemory()
	if on == "ssd" {
		ssd, err := ssdtier.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		dev = ssd
	}
	st, err := kv.Open(kv.Options{Device: dev, KeySize: 8, ValueSize: 8, Records: 2 * half, Memory: 3 << 20})
	if err != nil {
		b.Fatal(err)
	}
	s := st.NewSession()
	rng := rand.New(rand.NewPCG(1, 1))
	key := make([]byte, 8)
	put := func(n uint64) {
		binary.LittleEndian.PutUint64(key, n)
		if err := s.Upsert(key, key); err != nil {
			b.Fatal(err)
		}
	}
	for n := range uint64(half) {
		put(n)
	}
	until = st.Metrics().Log.Tail
	for n := range uint64(half) {
		if rng.IntN(100) < dead {
			put(n)
		} else {
			put(half + n)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if err := st.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
	return st, until
}
