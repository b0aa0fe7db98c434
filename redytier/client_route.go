package redytier

import (
	"sync"
	"sync/atomic"
)

// maxThreadConns is the number of connections that a cache's client threads have at most while
// its regions stay where they are, unless it has more VMs.
const maxThreadConns = 512

// routing says which client threads of a set serve a region. With few VMs every thread serves
// all of them, and a handle has one thread (A5). With many, that would be threads times VMs
// connections, so each VM is served by few of the threads: a call goes to one of those of its
// region's VM, chosen by the handle's number.
//
// A region keeps its threads when it moves, and they connect to its new VM. So the calls of a
// handle on overlapping bytes pass through one thread and keep their order until the set is
// replaced, and then the former set ends before the next one starts.
type routing struct {
	cache   *Cache
	shift   uint // of the table
	serving int  // threads of each VM
	first   atomic.Pointer[[]uint32]

	mu    sync.Mutex // guards changes of first, which only get longer
	bases map[*endpoint]uint32
}

// newRouting returns nil if every thread serves all VMs: if these are few, or all requests are
// in order.
func newRouting(c *Cache, threads int) *routing {
	t, vms := c.table.Load(), map[*endpoint]bool{}
	for _, r := range t.regions.all() {
		if r.endpoint != nil {
			vms[r.endpoint] = true
		}
	}
	most := c.cfg.threadConns
	if c.cfg.StrictOrder || threads*len(vms) <= most {
		return nil
	}
	r := &routing{cache: c, shift: t.shift, serving: max(1, most/len(vms)), bases: map[*endpoint]uint32{}}
	r.first.Store(new([]uint32))
	r.extend(t)
	return r
}

// extend adds the regions of a table that are new.
func (r *routing) extend(t *table) []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := *r.first.Load()
	for i := len(first); i < t.regions.len(); i++ {
		e := t.regions.at(i).endpoint
		base, ok := r.bases[e]
		if !ok {
			base = uint32(len(r.bases) * r.serving)
			r.bases[e] = base
		}
		first = append(first, base)
	}
	r.first.Store(&first)
	return first
}

// of returns the number of the thread for a handle and a region, modulo the number of threads.
func (r *routing) of(handle uint32, region int64) uint32 {
	first := *r.first.Load()
	if region >= int64(len(first)) {
		first = r.extend(r.cache.table.Load())
		region = min(region, int64(len(first))-1) // the end of the cache
	}
	return first[region] + handle%uint32(r.serving)
}

// thread returns the thread for a handle's calls to an address.
func (w *threadSet) thread(handle uint32, addr int64) *clientThread {
	if r := w.routing; r != nil {
		handle = r.of(handle, addr>>r.shift)
	}
	return w.threads[handle%uint32(len(w.threads))]
}

// part is a piece of a call for one thread.
type part struct {
	thread *clientThread
	call   call
}

// parts splits a call by thread. It has at least one part.
func (w *threadSet) parts(handle uint32, c call) (all []part) {
	size, from := int64(1)<<w.routing.shift, 0 // from: begin of the last part
	for at := 0; ; {
		n := int(min(int64(len(c.buf)-at), size-(c.addr+int64(at))&(size-1)))
		if t := w.thread(handle, c.addr+int64(at)); len(all) == 0 || all[len(all)-1].thread != t {
			from = at
			all = append(all, part{t, call{write: c.write, addr: c.addr + int64(at), cb: c.cb}})
		}
		at += n
		all[len(all)-1].call.buf = c.buf[from:at]
		if at == len(c.buf) {
			return all
		}
	}
}

// spans reports whether a call may need several threads.
func (w *threadSet) spans(c *call) bool {
	r := w.routing
	return r != nil && len(c.buf) > 0 && c.addr>>r.shift != (c.addr+int64(len(c.buf))-1)>>r.shift
}

// serves reports whether calls to a region pass through thread i, whatever their handle.
func (w *threadSet) serves(i int, region int64) bool {
	r := w.routing
	if r == nil {
		return true
	}
	n := uint32(len(w.threads))
	return (uint32(i)+n-r.of(0, region)%n)%n < uint32(r.serving)
}

// split is a call whose parts are executed by several threads. Its callback runs on the thread
// that ends the last part, with the error that came first.
type split struct {
	cb   Callback
	n    int
	left atomic.Int32
	err  atomic.Pointer[error]
}

func (s *split) ended(_ int, err error) {
	if err != nil {
		s.err.CompareAndSwap(nil, &err)
	}
	if s.left.Add(-1) > 0 {
		return
	}
	if err := s.err.Load(); err != nil {
		s.cb(0, *err)
		return
	}
	s.cb(s.n, nil)
}

// trySplit is clientThread.push for a call that may need several threads. It returns pushFull, without
// effect, if the first part finds no room, or if an earlier call already waits behind the ring of
// another part. Other parts never fail: without room in its ring, a part goes to the thread's
// overflow.
//
// Calls of a handle on overlapping bytes keep their order. The rings of a set are not closed
// while a call is split, so all parts go to one set. A call is in order with calls that end
// before it starts or start after it has returned: each thread takes its ring first and its
// overflow after that, and while there is an overflow the ring accepts nothing. Calls at the same
// time have no order, but those that are split are the same way round on each thread: they hold
// the handle's lock.
//
// The set has a routing. If another set is published meanwhile, no part is pushed, or all are.
func (k *Client) trySplit(set *threadSet, c call) (*clientThread, pushed) {
	k.splitting.Lock()
	defer k.splitting.Unlock()
	k.clients.splits.RLock()
	defer k.clients.splits.RUnlock()
	all := set.parts(k.number, c)
	if len(all) > 1 {
		s := &split{cb: c.cb, n: len(c.buf)}
		s.left.Store(int32(len(all)))
		for i := range all {
			all[i].call.cb = s.ended
		}
	}
	for _, p := range all {
		if p.thread.overflow.some.Load() {
			return p.thread, pushFull
		}
	}
	first := all[0].thread
	if pushed := first.push(all[0].call); pushed != pushOK {
		return first, pushed
	}
	for _, p := range all[1:] {
		if p.thread.overflow.some.Load() || p.thread.push(p.call) != pushOK {
			p.thread.overflow.add(p.call)
			p.thread.wakeUp()
		}
	}
	return first, pushOK
}

// overflow is a list of calls that a thread executes when its ring is empty. It is used by few
// calls, and so has a lock.
type overflow struct {
	some  atomic.Bool // there are calls: the ring accepts none
	mu    sync.Mutex  // guards calls
	calls []call
}

func (o *overflow) add(c call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, c)
	o.some.Store(true)
}

// peek returns the oldest call, or nil; it stays in the list. The thread only.
func (o *overflow) peek() *call {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) == 0 {
		return nil
	}
	return &o.calls[0]
}

// drop removes the call that peek returned.
func (o *overflow) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls[0] = call{}
	if o.calls = o.calls[1:]; len(o.calls) == 0 {
		o.calls = nil
		o.some.Store(false)
	}
}
