package fabrictest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
)

// testAllocations allows one allocation per operation: waits of a network model allocate, and
// so does sealing a TLS record.
func testAllocations(t *testing.T, open Open) { allocations(t, open, 1) }

// RunAllocations checks that operations in the steady state do not allocate, on either side.
// The race detector itself allocates.
func RunAllocations(t *testing.T, open Open) { allocations(t, open, 0.01) }

func allocations(t *testing.T, open Open, most float64) {
	t.Helper()
	if machine.RaceDetector {
		t.Skip("the race detector allocates")
	}
	const depth = 64
	l := connect(t, open, depth)
	_, r := region(t, l.server, l.here, 1<<20)
	ctx := context.Background()
	for _, size := range []int{64, 16 << 10} {
		b := newBatch(l.here, r, size, depth)
		b.run(ctx, t)
		if n := testing.AllocsPerRun(200, func() { b.run(ctx, t) }); n > most*depth {
			t.Errorf("a batch of %d reads of %d bytes allocates %.1f times", depth, size, n)
		}
	}
	message := make([]byte, 64)
	var done [4]fabric.Completion
	exchange := func() { // sends a message, receives it, and writes
		check(t, l.here.WriteImm(message, r, 0, 1, 1))
		check(t, l.here.Write(message, r, 64, 2))
		check(t, l.here.Submit())
		for seen := 0; seen < 2; seen += l.here.Poll(done[:]) {
			check(t, l.here.Wait(ctx))
		}
		for l.there.Poll(done[:]) == 0 {
			check(t, l.there.Wait(ctx))
		}
	}
	exchange()
	if n := testing.AllocsPerRun(200, exchange); n > 2*most {
		t.Errorf("a message and a write allocate %.1f times", n)
	}
}

// batch reads depth times size bytes at random under one doorbell.
type batch struct {
	q    fabric.QueuePair
	r    fabric.Remote
	bufs [][]byte
	rng  *rand.Rand
	done []fabric.Completion
}

func newBatch(q fabric.QueuePair, r fabric.Remote, size, depth int) *batch {
	b := &batch{q: q, r: r, rng: rand.New(rand.NewPCG(1, 2)), done: make([]fabric.Completion, depth)}
	for range depth {
		b.bufs = append(b.bufs, make([]byte, size))
	}
	return b
}

func (b *batch) run(ctx context.Context, t testing.TB) {
	for i, buf := range b.bufs {
		slots := uint64(b.r.Size) / uint64(len(buf))
		if err := b.q.Read(buf, b.r, int64(b.rng.Uint64N(slots))*int64(len(buf)), uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.q.Submit(); err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < len(b.bufs); {
		n := b.q.Poll(b.done)
		if n == 0 {
			if err := b.q.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		seen += n
	}
}

// Benchmark measures random reads of several sizes and depths from a region of 256 MiB. One
// iteration is one read.
func Benchmark(b *testing.B, open Open) {
	l := connect(b, open, 256)
	g, r := region(b, l.server, l.here, 256<<20)
	for i := 0; i < len(g.Bytes()); i += 4096 {
		g.Bytes()[i] = 1 // avoids page faults during the measurement
	}
	ctx := context.Background()
	for _, size := range []int{8, 64, 1 << 10, 4 << 10, 64 << 10} {
		for _, depth := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("size=%d/depth=%d", size, depth), func(b *testing.B) {
				batch := newBatch(l.here, r, size, depth)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for done := 0; done < b.N; done += depth {
					batch.run(ctx, b)
				}
			})
		}
	}
}
