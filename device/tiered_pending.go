package device

import (
	"errors"

	"github.com/redykv/redykv/device/internal/progress"
)

// isWritten reports whether writes are pending.
func (t *Tiered) isWritten() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes.Pending()
}

// isBehind reports whether the last tier may lack writes: some are pending there, or have failed and
// were not repeated. The caller holds mu.
func (t *Tiered) isBehind() bool { return t.last().writes.Load() > 0 || t.writes.Failed() }

// lacks records that the last tier has failed a write, which may still be pending on others.
func (t *Tiered) lacks(n int, addr int64) {
	if !t.keepsWrites() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes.Fail(progress.Span{From: addr, To: addr + int64(n)})
}

// settled is the address below which no tier has a pending write, and the last one holds all.
func (t *Tiered) settled() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes.Settled()
}

// ended records the end of a write on all tiers. It has failed if the last one does not hold it.
func (t *Tiered) ended(n int, addr int64, held bool) {
	if !t.keepsWrites() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes.End(progress.Span{From: addr, To: addr + int64(n)}, held)
}

// lost reports, given the result of a tier's Sync, whether the tier may have lost a write that it had
// committed and that the last tier does not have: a Refiller says that it has lost some, and one that was
// restarted has lost those of before.
func (t *Tiered) lost(tr *tier, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotHeld):
		tr.doubtful = t.tail
	case err != nil:
		return false
	}
	if tr.doubtful > 0 && t.writes.Settled() >= tr.doubtful {
		tr.doubtful = 0
	}
	return tr.doubtful > 0
}
