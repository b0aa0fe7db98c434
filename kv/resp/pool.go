package resp

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// pool lends workers. It makes one when none is idle, up to a number; whoever
// comes then waits. The one given back last is lent first: it is in the CPU's
// cache.
type pool struct {
	store   *kv.Store
	largest atomic.Int64 // bytes of the largest value seen, where that is large

	mu    sync.Mutex
	back  *sync.Cond // on mu: a worker came back, or may be made
	idle  []*worker
	spare int // workers that may still be made
	lent  int
	// seized says that nobody is lent one, but who has seized the pool.
	seized bool
}

func newPool(store *kv.Store, most int) *pool {
	p := &pool{store: store, spare: most}
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

// tryBorrow is borrow for who cannot wait for a batch to end: nil.
func (p *pool) tryBorrow() *worker {
	p.mu.Lock()
	for p.seized {
		p.back.Wait()
	}
	if len(p.idle) == 0 && p.spare == 0 {
		p.mu.Unlock()
		return nil
	}
	return p.lend()
}

// lend lends a worker, of which there is one or may be. It unlocks the pool.
func (p *pool) lend() *worker {
	p.lent++
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return w
	}
	p.spare--
	p.mu.Unlock()
	return newWorker(p)
}

// seize lends a worker when nobody else has one, and lends no other until release.
// The caller has none.
func (p *pool) seize() *worker {
	p.mu.Lock()
	p.seizeAll()
	return p.lend()
}

// seizeAll returns when no worker is lent, and none will be.
func (p *pool) seizeAll() {
	for p.seized {
		p.back.Wait()
	}
	p.seized = true
	for p.lent > 0 {
		p.back.Wait()
	}
}

func (p *pool) release() {
	p.mu.Lock()
	p.seized = false
	p.mu.Unlock()
	p.back.Broadcast()
}

// quiesce returns when every batch has ended that was begun before. The caller has
// no worker.
func (p *pool) quiesce() {
	p.mu.Lock()
	p.seizeAll()
	p.mu.Unlock()
	p.release()
}

func (p *pool) giveBack(w *worker) {
	p.mu.Lock()
	p.idle = append(p.idle, w)
	p.lent--
	seized := p.seized
	p.mu.Unlock()
	p.wake(seized)
}

// wake wakes who may go on now that a worker is back: if the pool is seized, some
// wait for all workers and some for the end of that.
func (p *pool) wake(seized bool) {
	if seized {
		p.back.Broadcast()
	} else {
		p.back.Signal()
	}
}

// discard ends a worker whose session failed.
func (p *pool) discard(w *worker) error {
	err := w.session.Close()
	p.mu.Lock()
	p.spare++
	p.lent--
	seized := p.seized
	p.mu.Unlock()
	p.wake(seized)
	return err
}

// close ends all workers, which have been given back.
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
