package resp

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// Limits of a batch: its operations, and the bytes of the values that it reads. The sizes of
// values are predicted from the previous batch. After a large value, batches stay small enough
// for others like it. Once there was one, by a read or a write, the values of all batches together
// may be wrong predictions for unforeseen bytes, beyond one value of each batch.
const (
	maxBatch      = 128
	cautiousBatch = 16 // operations of a batch whose values may all be large
	batchBytes    = 8 << 20
	largeValues   = batchBytes / maxBatch
	unforeseen    = 8 * batchBytes
)

// keptValues is the most bytes of buffers for values that a worker keeps between batches.
const keptValues = 2 << 20

// keptOperands is the most arguments for which a worker keeps room between batches, and keptKeys
// the most bytes of records' keys.
const (
	keptOperands = 1 << 12
	keptKeys     = 64 << 10
)

// worker is a session of the store with the buffers of one batch. A connection borrows it from
// the pool and owns it until it returns it.
type worker struct {
	session *kv.Session
	ops     []kv.Op
	replies []reply // in the order of the commands; some need no operation
	// operands are arguments of the batch's commands that the replies need.
	operands [][]byte
	keys     []byte // records' keys of databases other than 0
	limit    int    // most operations of this batch
	pool     *pool
	granted  int64 // bytes of pool.granted for this batch

	// By the index of the operation, reused by the next batch.
	values [maxBatch][]byte
	mods   [maxBatch]*modification
	by     [maxBatch]uint16 // numbers of the commands that the operations are part of
	held   int              // bytes of values

	// Of the batch:
	defers    bool      // it has changes of hashes or sets, which may be deferred
	deferring bool      // one of them was, and all later operations are
	reads     [4]uint64 // a bit for the hash of each key where it reads a hash or set

	packedMost  int // bytes of a packed collection
	packed      packed
	list        packedList
	sorted      packedSorted
	collections collections
	peeked      []byte // memory for a value that is read before the command runs
	seed        maphash.Seed
}

func newWorker(p *pool) *worker {
	return &worker{
		session: p.store.NewSession(),
		ops:     make([]kv.Op, 0, maxBatch),
		replies: make([]reply, 0, maxBatch),
		limit:   cautiousBatch,
		pool:    p,
		seed:    p.seed, packedMost: p.packedMost,
	}
}

// run runs the whole batch: if a crash loses writes of a connection, it loses the last ones.
// It returns the error of a failed session; errors of operations are in ops.
func (w *worker) run() error {
	if absent(w.ops, w.session.DoWhole(context.Background(), w.ops)) == nil {
		return nil
	}
	return w.session.Err()
}

// changes reports whether the batch may have changed anything.
func (w *worker) changes() bool {
	for i := range w.ops {
		if w.ops[i].Kind != kv.OpRead {
			return true
		}
	}
	return false
}

// noteRead notes that the batch reads a hash or set at a record's key.
func (w *worker) noteRead(key []byte) {
	h := maphash.Bytes(w.seed, key) % 256
	w.reads[h/64] |= 1 << (h % 64)
}

// mayRead reports whether the batch may read a hash or set at a record's key.
func (w *worker) mayRead(key []byte) bool {
	if w.reads == [4]uint64{} {
		return false
	}
	h := maphash.Bytes(w.seed, key) % 256
	return w.reads[h/64]&(1<<(h%64)) != 0
}

// drop drops the batch with all of its memory, which a failed session may still use.
func (w *worker) drop() {
	w.ops, w.replies, w.operands, w.keys = make([]kv.Op, 0, maxBatch), nil, nil, nil
	w.values, w.mods, w.held = [maxBatch][]byte{}, [maxBatch]*modification{}, 0
	w.collections = collections{}
	w.defers, w.deferring, w.reads = false, false, [4]uint64{}
}

// reset prepares the next batch. It drops references to the connection's memory, and large
// buffers.
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
	w.setLimit(largest)
	w.bound()
	w.defers, w.deferring, w.reads = false, false, [4]uint64{}
	w.packed = packed{}
	w.list.forget()
	w.sorted.forget()
	clear(w.ops)
	clear(w.replies)
	clear(w.operands)
	w.ops, w.replies, w.operands, w.keys = w.ops[:0], w.replies[:0], w.operands[:0], w.keys[:0]
	if cap(w.operands) > keptOperands {
		w.operands = nil
	}
	if cap(w.keys) > keptKeys {
		w.keys = nil
	}
}

// setLimit sets the limit of the next batch from the size of the largest value of this one.
func (w *worker) setLimit(largest int) {
	if largest > largeValues {
		w.pool.sawValue(largest)
		w.limit = max(batchBytes/largest, 1)
		return
	}
	most := maxBatch
	if ever := int(w.pool.largest.Load()); ever > largeValues {
		most = max(batchBytes/ever, cautiousBatch)
	}
	w.limit = min(2*w.limit, most)
}

// bound lowers the limit to what the pool grants for values as large as any before.
func (w *worker) bound() {
	w.ungrant()
	size := w.pool.largest.Load()
	if size <= largeValues {
		return
	}
	for {
		granted := w.pool.granted.Load()
		most := max(min((unforeseen-granted)/size, int64(w.limit)), 1)
		if w.pool.granted.CompareAndSwap(granted, granted+most*size) {
			w.granted, w.limit = most*size, int(most)
			return
		}
	}
}

// ungrant gives back what bound was granted.
func (w *worker) ungrant() {
	if w.granted != 0 {
		w.pool.granted.Add(-w.granted)
		w.granted = 0
	}
}

// mayBeLarge reports whether a command reads several keys, and its reply may be too large to be kept until
// it is whole, as a loop does.
func (p *pool) mayBeLarge(cmd *command, r request) bool {
	size := p.largest.Load()
	return size > largeValues && cmd != nil && cmd.keys == allKeys && cmd.flags&flagReadOnly != 0 && int64(r.len()-1)*size > batchBytes
}

// sawValue notes a large value.
func (p *pool) sawValue(size int) {
	if size > largeValues {
		raise(&p.largest, int64(size))
	}
}

// raise sets a to at least n.
func raise(a *atomic.Int64, n int64) {
	for old := a.Load(); old < n && !a.CompareAndSwap(old, n); old = a.Load() {
	}
}

// pool lends workers. It makes one if none is idle, up to a limit; then callers wait. The
// worker that was returned last is lent first, since it is in the processor's cache.
type pool struct {
	store      *kv.Store
	largest    atomic.Int64 // bytes of the largest value seen, if large
	granted    atomic.Int64 // bytes of values for batches that have begun: see worker.bound
	seed       maphash.Seed // of workers
	packedMost int          // of workers
	manySorted atomic.Bool  // some sorted set has very many entries: see removesMany

	mu    sync.Mutex // guards the fields below
	back  *sync.Cond // on mu: a worker was returned, or may be made
	idle  []*worker
	spare int // workers that may still be made
	lent  int // workers that are lent and may have a batch
	// seized is set while the pool lends workers only to the connection that seized it.
	seized bool
	// busy is the number of scripts that run for long. While there are some, nobody waits until no
	// worker is lent.
	busy int
}

// newPool returns a pool of at most most workers.
func newPool(most int) *pool {
	p := &pool{spare: most, seed: maphash.MakeSeed()}
	p.back = sync.NewCond(&p.mu)
	return p
}

func (p *pool) borrow() *worker {
	p.mu.Lock()
	for p.seized || len(p.idle) == 0 && p.spare == 0 {
		p.back.Wait()
	}
	return p.lend()
}

// tryBorrow is borrow that returns nil instead of waiting for the end of a batch or of a script that
// runs for long.
func (p *pool) tryBorrow() *worker {
	p.mu.Lock()
	for p.seized && p.busy == 0 {
		p.back.Wait()
	}
	if p.seized || len(p.idle) == 0 && p.spare == 0 {
		p.mu.Unlock()
		return nil
	}
	return p.lend()
}

// lend lends a worker and unlocks the pool. One must be idle, or allowed to be made.
func (p *pool) lend() *worker {
	p.lent++
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		w.bound()
		return w
	}
	p.spare--
	p.mu.Unlock()
	w := newWorker(p)
	w.bound()
	return w
}

// seize waits until no worker is lent, then lends one and no other until release. The caller
// must have none. It returns nil if it would wait for a script that runs for long.
func (p *pool) seize() *worker {
	p.mu.Lock()
	if !p.seizeAll() {
		p.mu.Unlock()
		return nil
	}
	return p.lend()
}

// seizeAll waits until no worker is lent, and keeps the pool from lending. It reports false if it
// would wait for a script that runs for long.
func (p *pool) seizeAll() bool {
	for p.seized && p.busy == 0 {
		p.back.Wait()
	}
	if p.seized {
		return false
	}
	p.seized = true
	for p.lent > 0 {
		if p.busy > 0 {
			p.seized = false
			p.back.Broadcast()
			return false
		}
		p.back.Wait()
	}
	return true
}

// count adds to the number of workers that are lent and may have a batch.
func (p *pool) count(n int) {
	p.mu.Lock()
	p.lent += n
	p.mu.Unlock()
	p.back.Broadcast()
}

// setBusy adds to the number of scripts that run for long.
func (p *pool) setBusy(n int) {
	p.mu.Lock()
	p.busy += n
	p.mu.Unlock()
	p.back.Broadcast()
}

func (p *pool) release() {
	p.mu.Lock()
	p.seized = false
	p.mu.Unlock()
	p.back.Broadcast()
}

// whileIdle calls do, which is short, unless a worker is lent.
func (p *pool) whileIdle(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent == 0 {
		do()
	}
}

// quiesce waits for all batches that have begun. The caller must have no worker. It reports false if
// it would wait for a script that runs for long.
func (p *pool) quiesce() bool {
	p.mu.Lock()
	ok := p.seizeAll()
	p.mu.Unlock()
	if ok {
		p.release()
	}
	return ok
}

// giveBack returns a worker. It closes one whose session has failed.
func (p *pool) giveBack(w *worker) (err error) {
	w.ungrant()
	failed := w.session.Err() != nil
	if failed {
		err = w.session.Close()
	}
	p.mu.Lock()
	if failed {
		p.spare++
	} else {
		p.idle = append(p.idle, w)
	}
	p.lent--
	seized := p.seized
	p.mu.Unlock()
	if seized { // some callers wait for all workers, and some for release
		p.back.Broadcast()
	} else {
		p.back.Signal()
	}
	return err
}

// close closes all workers, which must have been returned.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, w := range p.idle {
		errs = append(errs, w.session.Close())
	}
	p.spare += len(p.idle)
	p.idle = nil
	return errors.Join(errs...)
}
