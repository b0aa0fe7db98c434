package queue

import "testing"

// Every number is taken once; its entry keeps its value and is empty after its removal.
func TestPending(t *testing.T) {
	const n = 5
	table := NewPending[string](n)
	if table.Has(n) || !table.Has(n-1) {
		t.Errorf("a table of %d entries: entry %d: %v, entry %d: %v", n, n-1, table.Has(n-1), n, table.Has(n))
	}
	for round := range 3 {
		added := make(map[uint64]string)
		for i := range n {
			if table.Len() != i {
				t.Errorf("%d entries, want %d", table.Len(), i)
			}
			what := string(rune('a' + i))
			entry, ok := table.Add(what)
			if _, twice := added[entry]; !ok || twice || !table.Has(entry) {
				t.Fatalf("round %d: entry %d, added before: %v, ok %v", round, entry, twice, ok)
			}
			added[entry] = what
		}
		if _, ok := table.Add("more"); ok {
			t.Error("an entry beyond the last one")
		}
		for entry, want := range added {
			if got := *table.At(entry); got != want {
				t.Errorf("entry %d has %q, want %q", entry, got, want)
			}
			table.Remove(entry)
			if got := *table.At(entry); got != "" {
				t.Errorf("entry %d has %q after its removal", entry, got)
			}
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d entries in the end", table.Len())
	}
}
