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
}

func newPool(store *kv.Store, most int) *pool {
	p := &pool{store: store, spare: most}
	p.back = sync.NewCond(&p.mu)
	return p
}

func (p *pool) borrow() *worker {
	p.mu.Lock()
	for len(p.idle) == 0 && p.spare == 0 {
		p.back.Wait()
	}
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

func (p *pool) giveBack(w *worker) {
	p.mu.Lock()
	p.idle = append(p.idle, w)
	p.mu.Unlock()
	p.back.Signal()
}

// discard ends a worker whose session failed.
func (p *pool) discard(w *worker) error {
	err := w.session.Close()
	p.mu.Lock()
	p.spare++
	p.mu.Unlock()
	p.back.Signal()
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
