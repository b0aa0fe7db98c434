package device_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
)

// BenchmarkRead reads records of 24 bytes at random addresses of a 64 MiB log,
// 64 at a time.
func BenchmarkRead(b *testing.B) {
	half := device.MemoryOptions{Volatile: true, Capacity: 32 << 20}
	for name, open := range map[string]func() device.Device{
		"memory":      func() device.Device { return device.NewMemory() },
		"one tier":    func() device.Device { return device.NewTiered(device.NewMemory()) },
		"two tiers":   func() device.Device { return device.NewTiered(volatile(), device.NewMemory()) },
		"second":      func() device.Device { return device.NewTiered(device.NewNull(), device.NewMemory()) },
		"half second": func() device.Device { return device.NewTiered(device.NewMemoryWith(half), device.NewMemory()) },
	} {
		b.Run(name, func(b *testing.B) { benchmarkRead(b, open()) })
	}
}

func benchmarkRead(b *testing.B, d device.Device) {
	const size, page, depth = 64 << 20, 1 << 20, 64
	started(b, d)
	w := newBench(b, d)
	for at := int64(0); at < size; at += page {
		w.write(string(make([]byte, page)), at)
	}
	q, err := d.NewQueue(depth)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	var dst [depth][24]byte
	done := make([]device.Completion, depth)
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += depth {
		for k := range depth {
			if err := q.Read(dst[k][:], r.Int64N(size-24), uint64(k)); err != nil {
				b.Fatal(err)
			}
		}
		if err := q.Submit(); err != nil {
			b.Fatal(err)
		}
		for n := 0; n < depth; {
			got := q.Poll(done)
			if got == 0 {
				if err := q.Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			for _, c := range done[:got] {
				if c.Err != nil {
					b.Fatal(c.Err)
				}
			}
			n += got
		}
	}
}
