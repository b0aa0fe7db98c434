package ssdtier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
)

// BenchmarkRandomRead reads blocks of a 256 MiB log at random addresses, depth
// at a time.
func BenchmarkRandomRead(b *testing.B) {
	const size = 256 << 20
	d := mustOpen(b, b.TempDir(), Options{})
	if err := d.Start(0); err != nil {
		b.Fatal(err)
	}
	q, err := d.NewQueue(128)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	done := make([]device.Completion, 128)
	reap := func(need int) int {
		n := q.Poll(done)
		for n < need {
			if err := q.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			n += q.Poll(done[n:])
		}
		for _, c := range done[:n] {
			if c.Err != nil {
				b.Fatal(c.Err)
			}
		}
		return n
	}
	src := device.AlignedBuffer(4<<20, d.Alignment())
	for at := 0; at < size; at += len(src) {
		if err := q.Write(src, int64(at), 0); err != nil {
			b.Fatal(err)
		}
		reap(1)
	}
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	for _, block := range []int{512, 4096} {
		for _, depth := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("block=%d/depth=%d", block, depth), func(b *testing.B) {
				b.ReportAllocs()
				dst := make([]byte, block) // not aligned, like a reader's memory
				r := rand.New(rand.NewPCG(1, 2))
				pending := 0
				for range b.N {
					if err := q.Read(dst, int64(r.IntN(size-block)), 0); err != nil {
						b.Fatal(err)
					}
					if pending++; pending == depth {
						if err := q.Submit(); err != nil {
							b.Fatal(err)
						}
						pending -= reap(1)
					}
				}
				if pending > 0 {
					reap(pending)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
			})
		}
	}
}

// BenchmarkSequentialWrite writes a log in 1 MiB pages, eight at a time.
func BenchmarkSequentialWrite(b *testing.B) {
	const page, depth, pages = 1 << 20, 8, 256
	d := mustOpen(b, b.TempDir(), Options{})
	if err := d.Start(0); err != nil {
		b.Fatal(err)
	}
	q, err := d.NewQueue(depth)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	src := device.AlignedBuffer(page, d.Alignment())
	_, _ = rand.NewChaCha8([32]byte{}).Read(src) // never fails
	b.SetBytes(page)
	pending := 0
	reap := func(n int) {
		for target := pending - n; pending > target; {
			if err := q.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			var done [depth]device.Completion
			for _, c := range done[:q.Poll(done[:])] {
				if pending--; c.Err != nil {
					b.Fatal(c.Err)
				}
			}
		}
	}
	for i := range b.N {
		if err := q.Write(src, int64(i%pages)*page, 0); err != nil {
			b.Fatal(err)
		}
		if pending++; pending == depth {
			reap(1)
		}
	}
	reap(pending)
}

// BenchmarkSync writes a page and syncs, as a commit does.
func BenchmarkSync(b *testing.B) {
	for _, page := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			d := mustOpen(b, b.TempDir(), Options{})
			if err := d.Start(0); err != nil {
				b.Fatal(err)
			}
			q, err := d.NewQueue(1)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = q.Close() }()
			src := device.AlignedBuffer(page, d.Alignment())
			for i := range b.N {
				err := errors.Join(q.Write(src, int64(i*page), 0), q.Submit(), q.Wait(context.Background()))
				var done [1]device.Completion
				q.Poll(done[:])
				if err := errors.Join(err, done[0].Err, d.Sync()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkObject creates objects of 256 MiB and reads them.
func BenchmarkObject(b *testing.B) {
	const size, piece = 256 << 20, 1 << 20
	d := mustOpen(b, b.TempDir(), Options{})
	data := make([]byte, piece)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			w, err := d.CreateObject("x")
			if err != nil {
				b.Fatal(err)
			}
			for range size / piece {
				if _, err := w.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Commit(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		o, err := d.OpenObject("x")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = o.Close() }()
		for range b.N {
			for off := int64(0); off < size; off += piece {
				if _, err := o.ReadAt(data, off); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
