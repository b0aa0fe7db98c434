package resp

import (
	"testing"

	"github.com/redykv/redykv/kv"
)

// TestUnforeseenValues: once there was a large value, the batches of all workers together expect no more than
// unforeseen bytes of such values, beyond one each.
func TestUnforeseenValues(t *testing.T) {
	st, err := kv.Open(inMemory())
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(40)
	p.store = st
	var lent []*worker
	borrow := func(n int) (bytes int64) {
		for range n {
			w := p.borrow()
			lent = append(lent, w)
			if w.limit < 1 {
				t.Fatalf("a batch of %d operations", w.limit)
			}
			bytes += int64(w.limit) * p.largest.Load()
		}
		return bytes
	}
	giveBack := func() {
		for _, w := range lent {
			if err := p.giveBack(w); err != nil {
				t.Error(err)
			}
		}
		lent = nil
	}
	borrow(40)
	for range 5 { // all values are small
		for _, w := range lent {
			w.reset()
		}
	}
	for _, w := range lent {
		if w.limit != maxBatch {
			t.Fatalf("batches of %d for small values", w.limit)
		}
	}
	giveBack()
	for _, size := range []int{largeValues, largeValues + 1, 1 << 20, 15 << 20} {
		p.sawValue(size)
		if got := borrow(40); size > largeValues && got > unforeseen+40*int64(size) {
			t.Errorf("values of %d: batches may read %d bytes", size, got)
		}
		for _, w := range lent {
			w.reset()
		}
		if got := p.granted.Load(); got > unforeseen+40*int64(size) {
			t.Errorf("values of %d: the next batches may read %d bytes", size, got)
		}
		giveBack()
		if got := p.granted.Load(); got != 0 {
			t.Errorf("values of %d: %d bytes stay granted", size, got)
		}
	}
	lent = []*worker{p.borrow()}
	for range 5 { // small values
		lent[0].reset()
	}
	if got := lent[0].limit; got != unforeseen/(15<<20) {
		t.Errorf("the only batch is of %d", got)
	}
	giveBack()
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
