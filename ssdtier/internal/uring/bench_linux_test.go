package uring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRead reads blocks of 4 KiB of a file with direct I/O.
func BenchmarkRead(b *testing.B) {
	const block, size = 4096, 256 << 20
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o666); err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	for _, depth := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			r, err := New(depth)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			memory := alignedBuffer((depth+1)*block, block)
			done := make([]Completion, depth)
			free := make([]uint64, 0, depth)
			for i := range depth {
				free = append(free, uint64(i))
			}
			b.ReportAllocs()
			began := cpu(b)
			for n := 0; n < b.N; {
				for _, tag := range free {
					if !r.Read(int(f.Fd()), memory[tag*block:][:block], rand.Int64N(size/block)*block, tag) {
						b.Fatal("no room")
					}
				}
				free = free[:0]
				if err := r.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				k := r.Reap(done)
				n += k
				for _, c := range done[:k] {
					if c.Res != block {
						b.Fatal(c)
					}
					free = append(free, c.Tag)
				}
			}
			b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns the processor time of this process in nanoseconds.
func cpu(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func alignedBuffer(size, align int) []byte {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return m
}
