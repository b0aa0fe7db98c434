package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// soon is a context that ends soon.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func enter(t *testing.T, g *Gate) Section {
	t.Helper()
	s, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// While a barrier waits for a section that takes long, others begin and end; the barrier comes when it
// has ended.
func TestOthersGoOn(t *testing.T) {
	var g Gate
	long := enter(t, &g)
	shut := make(chan error, 1)
	go func() { shut <- g.Shut(t.Context()) }()
	testrun.Until(t, "the barrier waits", g.Waiting)
	for range 1000 {
		g.Leave(enter(t, &g))
	}
	select {
	case err := <-shut:
		t.Fatalf("a barrier cut a section: %v", err)
	default:
	}
	g.Leave(long)
	if err := testrun.Receive(t, "the barrier begins", shut); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Enter(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a section during a barrier: %v", err)
	}
	entered := make(chan Section)
	go func() { entered <- enter(t, &g) }()
	g.Open()
	g.Leave(testrun.Receive(t, "the gate opens", entered))
}

// A barrier whose context has ended leaves nothing behind.
func TestBarrierGivesUp(t *testing.T) {
	var g Gate
	for range 3 {
		long := enter(t, &g)
		if err := g.Shut(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a barrier beside a section: %v", err)
		}
		if g.Waiting() {
			t.Error("a barrier that gave up still waits")
		}
		other := enter(t, &g)
		g.Leave(long)
		if err := g.Shut(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a barrier beside another section: %v", err)
		}
		g.Leave(other)
		if err := g.Shut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Shut(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second barrier: %v", err)
		}
		g.Open()
	}
}

// Barriers come to pass beside sections that never leave the gate empty, and cut none.
func TestBarriersBesideSections(t *testing.T) {
	var g Gate
	var inside, begun atomic.Int64
	var sections sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		sections.Go(func() {
			for n := 0; ; n++ {
				s := enter(t, &g)
				inside.Add(1)
				if begun.Add(1); n%64 == i { // longer than the barrier's first patience
					time.Sleep(2 * firstPatience)
				}
				inside.Add(-1)
				g.Leave(s)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	var barriers sync.WaitGroup
	for range 2 {
		barriers.Go(func() {
			for range 50 {
				if err := g.Shut(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if n := inside.Load(); n != 0 {
					t.Errorf("a barrier beside %d sections", n)
				}
				g.Open()
			}
		})
	}
	barriers.Wait()
	close(done)
	sections.Wait()
	if g.state.Load()&^second != 0 {
		t.Errorf("the state is %x at last", g.state.Load())
	}
}
