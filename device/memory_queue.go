package device

import "context"

// memoryQueue writes at once. It reads in two steps: Submit prefetches everything that was
// enqueued, and Poll copies it. A load whose address is not in the TLB delays what follows,
// unless that is another such load: so the lines of many reads are prefetched in one loop
// that does nothing else.
type memoryQueue struct {
	instantQueue // for the writes
	m            *Memory
	// reads is a ring of the pending reads, from head on: the first asked ones were
	// submitted, those up to enqueued were not.
	reads                 []memoryRead
	head, asked, enqueued int
}

type memoryRead struct {
	dst  []byte
	addr int64
	tag  uint64
}

func (q *memoryQueue) admit() error {
	if q.closed {
		return ErrClosed
	}
	if q.done.n+q.enqueued == len(q.reads) {
		return ErrQueueFull
	}
	return nil
}

// read returns pending read i; i is at most enqueued.
func (q *memoryQueue) read(i int) *memoryRead {
	if i += q.head; i >= len(q.reads) {
		i -= len(q.reads)
	}
	return &q.reads[i]
}

func (q *memoryQueue) Read(dst []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	r := q.read(q.enqueued)
	r.dst, r.addr, r.tag = dst, addr, tag
	q.enqueued++
	return nil
}

func (q *memoryQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	q.finish(tag, len(src), q.m.store(src, addr))
	return nil
}

func (q *memoryQueue) Submit() error {
	if err := q.instantQueue.Submit(); err != nil {
		return err
	}
	for ; q.asked < q.enqueued; q.asked++ {
		r := q.read(q.asked)
		q.m.prefetch(r.addr, len(r.dst))
	}
	return nil
}

func (q *memoryQueue) Poll(done []Completion) int {
	n := q.instantQueue.Poll(done)
	for ; n < len(done) && q.asked > 0; n++ {
		r := &q.reads[q.head]
		done[n] = Completion{Tag: r.tag, N: len(r.dst), Err: q.m.load(r.dst, r.addr)}
		if done[n].Err != nil {
			done[n].N = 0
		}
		r.dst = nil
		q.asked, q.enqueued = q.asked-1, q.enqueued-1
		if q.head++; q.head == len(q.reads) {
			q.head = 0
		}
	}
	return n
}

func (q *memoryQueue) Wait(context.Context) error { return q.Submit() }
