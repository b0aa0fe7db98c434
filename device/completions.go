package device

import "context"

// completions is a bounded FIFO of completions. It belongs to the goroutine of the Queue
// that holds it.
type completions struct {
	buf  []Completion
	head int // index of the oldest
	n    int
}

func newCompletions(capacity int) completions {
	return completions{buf: make([]Completion, capacity)}
}

// push adds c; there must be room.
func (f *completions) push(c Completion) {
	i := f.head + f.n
	if i >= len(f.buf) {
		i -= len(f.buf)
	}
	f.buf[i] = c
	f.n++
}

// pop moves the oldest completions, at most limit of them, into done.
func (f *completions) pop(done []Completion, limit int) int {
	n := min(len(done), limit, f.n)
	for i := range n {
		done[i] = f.buf[f.head]
		f.buf[f.head].Err = nil // an error must not outlive its completion
		if f.head++; f.head == len(f.buf) {
			f.head = 0
		}
	}
	f.n -= n
	return n
}

// instantQueue is the common part of queues whose operations end when they are enqueued:
// their completions wait for Submit and Poll.
type instantQueue struct {
	done      completions
	submitted int // number of done that Poll may return
	closed    bool
}

// admit returns an error if no operation can be added.
func (q *instantQueue) admit() error {
	if q.closed {
		return ErrClosed
	}
	if q.done.n == len(q.done.buf) {
		return ErrQueueFull
	}
	return nil
}

// finish records the outcome of an operation on n bytes.
func (q *instantQueue) finish(tag uint64, n int, err error) {
	if err != nil {
		n = 0
	}
	q.done.push(Completion{Tag: tag, N: n, Err: err})
}

func (q *instantQueue) Submit() error {
	if q.closed {
		return ErrClosed
	}
	q.submitted = q.done.n
	return nil
}

func (q *instantQueue) Poll(done []Completion) int {
	n := q.done.pop(done, q.submitted)
	q.submitted -= n
	return n
}

// Wait returns at once: every pending operation is complete.
func (q *instantQueue) Wait(context.Context) error { return q.Submit() }

func (q *instantQueue) Close() error {
	q.closed = true
	return nil
}
