package core

import (
	"bytes"
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

func TestHandles(t *testing.T) {
	var h Handles[string]
	a, err := h.Put("a")
	if err != nil {
		t.Fatal(err)
	}
	if v := h.Get(a); v == nil || *v != "a" {
		t.Fatalf("got %v", v)
	}
	if v, ok := h.Delete(a); !ok || v != "a" {
		t.Fatalf("deleted %q, %v", v, ok)
	}
	if _, ok := h.Delete(a); ok {
		t.Error("deleted twice")
	}
	b, err := h.Put("b")
	if err != nil {
		t.Fatal(err)
	}
	if b == a || h.Get(a) != nil || *h.Get(b) != "b" {
		t.Errorf("handle %x was reused for %x", a, b)
	}
	c, err := h.Offer("c")
	if err != nil || h.Get(c) != nil {
		t.Errorf("offered: %v, %v", h.Get(c), err)
	}
	if h.Adopt(); h.Get(c) == nil || *h.Get(c) != "c" {
		t.Error("adopted, and not found")
	}
	for range maxHandles - 2 {
		if _, err := h.Put("more"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Put("too many"); !errors.Is(err, ErrManyImports) {
		t.Errorf("beyond the limit: %v", err)
	}
}

func TestImmRing(t *testing.T) {
	words := make([]uint64, ImmRingWords)
	producer, consumer := NewImmRing(words), NewImmRing(words)
	out := make([]fabric.Completion, 100)
	pushed, popped := uint32(0), uint32(0)
	for range 50 {
		for {
			ok, err := producer.Push(pushed, int(pushed)*3)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			pushed++
		}
		if pushed-popped != ImmEntries {
			t.Fatalf("full with %d", pushed-popped)
		}
		n, wake, err := consumer.Pop(out)
		if err != nil || n != len(out) || !wake {
			t.Fatalf("popped %d, wake %v, %v", n, wake, err)
		}
		for _, c := range out {
			if c.Imm != popped || c.N != int(popped)*3 || c.Op != fabric.OpRecv {
				t.Fatalf("popped %+v, want %d", c, popped)
			}
			popped++
		}
	}
	if producer.TakeParked() {
		t.Error("nobody parked")
	}
	consumer.Park()
	if !producer.TakeParked() || producer.TakeParked() {
		t.Error("one wish, one wake-up")
	}
}

// TestImmRingCorrupt makes the other side write impossible marks.
func TestImmRingCorrupt(t *testing.T) {
	for _, mark := range []uint64{ImmEntries + 1, 1 << 63, ^uint64(0)} {
		words := make([]uint64, ImmRingWords)
		words[wordTail] = mark
		consumer := NewImmRing(words)
		if _, _, err := consumer.Pop(make([]fabric.Completion, 1)); !errors.Is(err, ErrCorruptRing) {
			t.Errorf("tail %d: %v", mark, err)
		}
		words[wordHead] = mark - 1<<20
		producer := NewImmRing(words)
		if _, err := producer.Push(1, 1); !errors.Is(err, ErrCorruptRing) {
			t.Errorf("head %d: %v", mark, err)
		}
	}
}

func TestCheckBounds(t *testing.T) {
	for _, c := range []struct {
		offset int64
		n      int
		size   int64
		in     bool
	}{
		{0, 0, 0, true}, {0, 8, 8, true}, {8, 0, 8, true}, {1, 8, 8, false}, {9, 0, 8, false},
		{-1, 1, 8, false}, {-1 << 63, 1 << 62, 8, false}, {1<<63 - 1, 8, 1<<63 - 1, false},
	} {
		if err := CheckBounds(c.offset, c.n, c.size); (err == nil) != c.in {
			t.Errorf("%d bytes at %d of %d: %v", c.n, c.offset, c.size, err)
		}
	}
}

// TestRegionClose revokes a region while a user is inside the gate.
func TestRegionClose(t *testing.T) {
	r := NewRegistry(false)
	var gate Gate
	r.AddGate(&gate)
	g, err := r.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	gate.Enter()
	b, err := g.Access(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	for !g.revoked.Load() {
		if _, err := g.Access(0, 1); err != nil && !errors.Is(err, fabric.ErrBadToken) {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(b, make([]byte, 4096)) { // still mapped, because the user is inside
		t.Error("memory is not zeroed")
	}
	gate.Leave()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find(g.Token()); !errors.Is(err, fabric.ErrBadToken) {
		t.Errorf("find: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Alloc(1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("alloc: %v", err)
	}
}

// FuzzImmRing makes the other side of both ends write anything into the words. An end accepts
// possible values and refuses impossible ones. It never leaves the ring or reports more
// entries than the ring holds.
func FuzzImmRing(f *testing.F) {
	f.Add(uint64(1), uint64(0), uint64(5<<32|7))
	f.Add(uint64(ImmEntries), uint64(ImmEntries), uint64(0))
	f.Add(uint64(1)<<63, ^uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, tail, head, entry uint64) {
		words := make([]uint64, ImmRingWords)
		for i := wordEntries; i < len(words); i++ {
			words[i] = entry
		}
		consumer, producer := NewImmRing(words), NewImmRing(words)
		words[wordTail] = tail
		out := make([]fabric.Completion, 2*ImmEntries)
		n, _, err := consumer.Pop(out)
		if (err == nil) != (tail <= ImmEntries) || err == nil && n != int(tail) {
			t.Fatalf("popped %d, %v with a tail of %d", n, err, tail)
		}
		for _, c := range out[:n] {
			if c.Op != fabric.OpRecv || c.N < 0 || c.Imm != uint32(entry>>32) {
				t.Fatalf("popped %+v", c)
			}
		}
		words[wordHead] = head
		for range 2 * ImmEntries {
			if pushed, err := producer.Push(1, 1); err != nil || !pushed {
				break
			}
		}
		if producer.mine > ImmEntries+min(head, ImmEntries) {
			t.Fatalf("pushed %d with a head of %d", producer.mine, head)
		}
	})
}
