package resp

import (
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// Bounds of a batch: its operations, and the bytes of the values that it reads.
// How large those are is known only afterwards, so the values of the batch
// before foretell it. Where a large one was ever seen, the surprise is kept
// small as well.
const (
	maxBatch    = 128
	wariness    = 16 // operations of a batch whose values may all be large
	batchBytes  = 8 << 20
	largeValues = batchBytes / maxBatch
)

// keptValues is how many bytes a worker keeps to read values into.
const keptValues = 2 << 20

// keptOperands is how many arguments a worker keeps room for.
const keptOperands = 1 << 12

// worker is a session of the store and the buffers of one batch in it. A
// connection borrows it from the pool, and owns it until it gives it back.
type worker struct {
	session *kv.Session
	ops     []kv.Op
	replies []reply // in the order of the commands; some need no operation
	// operands are arguments of the batch's commands that are looked at when it
	// has been carried out.
	operands [][]byte
	limit    int // operations of this batch
	largest  *atomic.Int64

	// By the number of the operation, for use again:
	values [maxBatch][]byte
	mods   [maxBatch]*modification
	held   int // bytes of values
}

func newWorker(p *pool) *worker {
	return &worker{
		session: p.store.NewSession(),
		ops:     make([]kv.Op, 0, maxBatch),
		replies: make([]reply, 0, maxBatch),
		limit:   wariness,
		largest: &p.largest,
	}
}

// run carries the batch out, whole: of a connection's writes, the first ones survive a
// crash. An error says that the session is of no use any more; those of operations are in
// the operations.
func (w *worker) run() error {
	if w.session.DoWhole(w.ops) == nil {
		return nil
	}
	return w.session.Err()
}

// changes says whether the batch may have changed anything.
func (w *worker) changes() bool {
	for i := range w.ops {
		if w.ops[i].Kind != kv.OpRead {
			return true
		}
	}
	return false
}

// forsake leaves the batch, and all memory that it may use, to the session, which has
// failed with operations under way.
func (w *worker) forsake() {
	w.ops, w.replies, w.operands = make([]kv.Op, 0, maxBatch), nil, nil
	w.values, w.mods, w.held = [maxBatch][]byte{}, [maxBatch]*modification{}, 0
}

// reset makes room for the next batch. It lets go of what the connection owns,
// and of more memory than is good to keep.
func (w *worker) reset() {
	largest := 0
	for i := range w.ops {
		op := &w.ops[i]
		if op.Kind == kv.OpRead {
			largest = max(largest, len(op.Value))
			w.held += cap(op.Value) - cap(w.values[i])
			w.values[i] = op.Value
		}
		if m := w.mods[i]; m != nil {
			m.forget()
		}
	}
	if w.held > keptValues {
		clear(w.values[:])
		w.held = 0
	}
	w.foresee(largest)
	clear(w.ops)
	clear(w.replies)
	clear(w.operands)
	w.ops, w.replies, w.operands = w.ops[:0], w.replies[:0], w.operands[:0]
	if cap(w.operands) > keptOperands {
		w.operands = nil
	}
}

// foresee sets the size of the next batch after one whose largest value had that
// many bytes.
func (w *worker) foresee(largest int) {
	if largest > largeValues {
		raise(w.largest, int64(largest))
		w.limit = max(batchBytes/largest, 1)
		return
	}
	most := maxBatch
	if ever := int(w.largest.Load()); ever > largeValues {
		most = max(batchBytes/ever, wariness)
	}
	w.limit = min(2*w.limit, most)
}

// raise makes a at least n.
func raise(a *atomic.Int64, n int64) {
	for old := a.Load(); old < n && !a.CompareAndSwap(old, n); old = a.Load() {
	}
}
