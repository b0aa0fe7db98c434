package queue

import "sync"

// Job is a piece of work that blocks. It is part of what it belongs to, so that a job
// costs no allocation, and may be submitted again once it has run.
type Job struct {
	// Run does the work. If closed is true, the pool was closed before it took the job,
	// and Run only ends it.
	Run  func(closed bool)
	next *Job // in its List
}

// List is jobs in order. The zero List is empty.
type List struct {
	first, last *Job
	n           int
}

// Push adds a job at the end.
func (l *List) Push(j *Job) {
	if l.first == nil {
		l.first = j
	} else {
		l.last.next = j
	}
	l.last = j
	l.n++
}

// pop removes the first job of a list that is not empty.
func (l *List) pop() *Job {
	j := l.first
	l.first, j.next = j.next, nil
	l.n--
	return j
}

// Len is the number of jobs in the list.
func (l *List) Len() int { return l.n }

// Pool is a bounded number of goroutines that take jobs from one list, in order. A
// goroutine is started when there are more jobs than idle goroutines, and stays.
type Pool struct {
	limit int
	wg    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	work    sync.Cond  // signalled when there is a job, or closed is set
	jobs    List
	workers int
	idle    int // workers that wait and have not been signalled
	closed  bool
}

// NewPool returns a Pool that runs up to limit jobs at once.
func NewPool(limit int) *Pool {
	p := &Pool{limit: limit}
	p.work.L = &p.mu
	return p
}

// Submit takes all jobs out of l and runs them.
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
		p.wg.Go(p.runJobs)
	}
}

// runJobs is a worker.
func (p *Pool) runJobs() {
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

// Close waits until all submitted jobs have run.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
