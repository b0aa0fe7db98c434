package slots

import (
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// Every slot is taken once, keeps what it was filled with, and is empty when it is free.
func TestTable(t *testing.T) {
	const n = 5
	table := New[string](n)
	if table.Has(n) || !table.Has(n-1) {
		t.Errorf("a table of %d slots: slot %d: %v, slot %d: %v", n, n-1, table.Has(n-1), n, table.Has(n))
	}
	for round := range 3 {
		taken := make(map[uint64]string)
		for i := range n {
			if table.Used() != i {
				t.Errorf("%d slots are used, want %d", table.Used(), i)
			}
			what := string(rune('a' + i))
			slot, err := table.Take(what)
			if _, twice := taken[slot]; err != nil || twice || !table.Has(slot) {
				t.Fatalf("round %d: slot %d, taken before: %v, error %v", round, slot, twice, err)
			}
			taken[slot] = what
		}
		if _, err := table.Take("more"); !errors.Is(err, device.ErrQueueFull) {
			t.Errorf("beyond the last slot: %v", err)
		}
		for slot, want := range taken {
			if got := *table.At(slot); got != want {
				t.Errorf("slot %d has %q, want %q", slot, got, want)
			}
			table.Release(slot)
			if got := *table.At(slot); got != "" {
				t.Errorf("slot %d has %q after its release", slot, got)
			}
		}
	}
	if table.Used() != 0 {
		t.Errorf("%d slots are used in the end", table.Used())
	}
}
