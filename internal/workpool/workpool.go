// Package workpool runs jobs that block, on a bounded number of goroutines and
// without an allocation for each: the jobs are parts of what they belong to.
package workpool

import "sync"

// Job is a piece of work. It may be given to a Pool again once it has run.
type Job struct {
	// Run does the work; or, if the pool was closed before it took the job, ends it
	// without.
	Run  func(closed bool)
	next *Job // in the list that it is on
}

// List is jobs in order. The zero List is empty.
type List struct {
	first, last *Job
	n           int
}

// Push adds a job to the end.
func (l *List) Push(j *Job) {
	if l.first == nil {
		l.first = j
	} else {
		l.last.next = j
	}
	l.last = j
	l.n++
}

// pop takes the first job of a list that is not empty.
func (l *List) pop() *Job {
	j := l.first
	l.first, j.next = j.next, nil
	l.n--
	return j
}

// Len is how many jobs are in the list.
func (l *List) Len() int { return l.n }

// Pool is a bounded number of goroutines that take jobs from one list, in order.
// They are started when there is more to do than idle ones can take, and stay.
type Pool struct {
	limit int
	wg    sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // there is a job, or closed
	jobs    List
	workers int
	idle    int // workers that wait and that nobody has signalled
	closed  bool
}

// New returns a Pool that runs up to limit jobs at once.
func New(limit int) *Pool {
	p := &Pool{limit: limit}
	p.work.L = &p.mu
	return p
}

// Submit takes all jobs of l, which is empty then, and runs them.
func (p *Pool) Submit(l *List) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		for l.n > 0 {
			l.pop().Run(true)
		}
		return
	}
	defer p.mu.Unlock()
	n := l.n
	for l.n > 0 {
		p.jobs.Push(l.pop())
	}
	for ; n > 0 && p.idle > 0; n-- {
		p.idle--
		p.work.Signal()
	}
	for ; n > 0 && p.workers < p.limit; n-- {
		p.workers++
		p.wg.Go(p.serve)
	}
}

// serve is a worker.
func (p *Pool) serve() {
	p.mu.Lock()
	for {
		for p.jobs.n == 0 && !p.closed {
			p.idle++
			p.work.Wait()
		}
		if p.jobs.n == 0 {
			p.mu.Unlock()
			return
		}
		j := p.jobs.pop()
		p.mu.Unlock()
		j.Run(false)
		p.mu.Lock()
	}
}

// Close returns once all jobs that were taken have run.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
