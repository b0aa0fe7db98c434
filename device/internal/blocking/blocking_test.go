package blocking

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/queue"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// gated is a Storage whose operations block until the test releases them.
type gated struct {
	gate chan struct{}
	mu   sync.Mutex
	most int
	now  int
}

var errOdd = errors.New("an odd address")

func (g *gated) ReadAt(dst []byte, addr int64) error {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	<-g.gate
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
	for i := range dst {
		dst[i] = byte(addr)
	}
	if addr%2 == 1 {
		return errOdd
	}
	return nil
}

func (g *gated) WriteAt(src []byte, addr int64) error { return g.ReadAt(src[:0], addr) }

// At most as many operations run as there are workers. Each completes once, with its own
// result. Wait ends with its context. Operations after Close end with ErrClosed.
func TestQueue(t *testing.T) {
	const depth, workers = 50, 7
	g := &gated{gate: make(chan struct{})}
	e := New("test", g, workers)
	q, err := e.NewQueue(depth)
	if err != nil {
		t.Fatal(err)
	}
	var bufs [depth][4]byte
	for round := range 3 {
		for i := range uint64(depth) {
			do := q.Read
			if i%5 == 0 {
				do = q.Write
			}
			if err := do(bufs[i][:], int64(i), i); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Read(bufs[0][:], 0, depth); !errors.Is(err, device.ErrQueueFull) {
			t.Fatalf("beyond the depth: %v", err)
		}
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		given, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Wait(given); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait for what does not end: %v", err)
		}
		go func() {
			for range depth {
				g.gate <- struct{}{}
			}
		}()
		var seen [depth]bool
		for got := 0; got < depth; {
			if err := q.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			var done [3]device.Completion
			n := q.Poll(done[:])
			if n == 0 {
				t.Fatal("Wait returned, and Poll has nothing")
			}
			for _, c := range done[:n] {
				odd := c.Tag%2 == 1
				if seen[c.Tag] || errors.Is(c.Err, errOdd) != odd || odd != (c.N == 0) {
					t.Errorf("round %d: %+v, seen %v", round, c, seen[c.Tag])
				}
				if c.Tag%5 != 0 && bufs[c.Tag][3] != byte(c.Tag) {
					t.Errorf("operation %d has bytes %v", c.Tag, bufs[c.Tag])
				}
				seen[c.Tag] = true
			}
			got += n
		}
	}
	if g.most > workers {
		t.Errorf("%d operations at once, want %d at most", g.most, workers)
	}
	e.Close()
	if err := errors.Join(q.Read(bufs[0][:], 0, 1), q.Read(bufs[0][:], -1, 2), q.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	var done [4]device.Completion
	for n := 0; n < 2; {
		got := q.Poll(done[:])
		for _, c := range done[:got] {
			if c.Err == nil || errors.Is(c.Err, device.ErrClosed) != (c.Tag == 1) {
				t.Errorf("%+v", c)
			}
		}
		n += got
	}
	if err := errors.Join(q.Close(), q.Close()); err != nil {
		t.Error(err)
	}
	if err := q.Read(nil, 0, 0); !errors.Is(err, device.ErrClosed) {
		t.Errorf("on a closed queue: %v", err)
	}
	for _, depth := range []int{-1, 0, queue.MaxDepth + 1} {
		if _, err := e.NewQueue(depth); err == nil {
			t.Errorf("a queue of depth %d", depth)
		}
	}
}
