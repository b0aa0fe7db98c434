package device

import (
	"errors"
	"slices"
)

// isWritten reports whether writes are pending.
func (t *Tiered) isWritten() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.writing) > 0
}

// settled is the address below which no tier has a pending write.
func (t *Tiered) settled() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lowestPending()
}

// lowestPending is the lowest address of a pending write, at most the tail. The caller holds mu.
func (t *Tiered) lowestPending() int64 {
	low := t.tail
	for _, addr := range t.writing {
		low = min(low, addr)
	}
	return low
}

// ended removes a write from the pending ones.
func (t *Tiered) ended(addr int64) {
	if !t.keepsWriting() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.writing, addr); i >= 0 {
		last := len(t.writing) - 1
		t.writing[i] = t.writing[last]
		t.writing = t.writing[:last]
	}
}

// lost reports, given the result of a Refiller's Sync, whether the tier may have lost a
// write that is still pending on the last tier.
func (t *Tiered) lost(tr *tier, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotHeld):
		tr.doubt = true
	case err != nil:
		return false
	}
	doubt := tr.doubt
	if t.last().writes.Load() == 0 {
		tr.doubt = false
	}
	return doubt
}
