package device_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/redykv/redykv/device"
)

// lossy is a device.Refiller that loses ranges on demand. It keeps a mark for every byte of
// the log, so that its behaviour is simple to check.
type lossy struct {
	device.NoObjects
	capacity int64
	ready    chan struct{}

	mu         sync.Mutex
	r          *rand.Rand
	bytes      []byte
	held       []bool
	since      []uint64 // by byte: when it was last lost, or a write to it began
	busy       []bool   // being written
	now        uint64
	begin, end int64
	gone       map[int64]int64 // ranges without memory, from → to
	lost       bool
	writeError float64 // share of writes that fail
	failure    error   // their error
	steady     bool    // refills never fail; otherwise one in ten does
	refills    []device.Hole
	missed     [][2]int64 // the calls of Missed
	queues     int
}

func newLossy(seed uint64, size int, capacity int64) *lossy {
	return &lossy{
		capacity: capacity, ready: make(chan struct{}, 1), r: rand.New(rand.NewPCG(seed, 31)),
		bytes: make([]byte, size), held: make([]bool, size), since: make([]uint64, size), busy: make([]bool, size),
		gone: map[int64]int64{}, failure: device.ErrNotHeld,
	}
}

// lose drops [from, to). If without is set, the range has no memory until restore.
func (d *lossy) lose(from, to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone[from] = to
	d.lost = true
	d.drop(from, to)
}

// drop forgets [from, to). The caller holds mu.
func (d *lossy) drop(from, to int64) {
	d.now++
	for i := from; i < to; i++ {
		d.bytes[i], d.held[i], d.since[i] = 0xEE, false, d.now
	}
}

// restore makes memory available again for all lost ranges.
func (d *lossy) restore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.gone)
	d.poke()
}

func (d *lossy) poke() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

func (d *lossy) fail(share float64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writeError, d.failure = share, err
}

func (d *lossy) Start(tail int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin, d.end = max(d.begin, tail-d.capacity, 0), max(d.end, tail)
	d.drop(0, d.end)
	d.poke()
	return nil
}

func (d *lossy) Missed(from, to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin, d.end = max(d.begin, to-d.capacity), max(d.end, to)
	d.drop(from, to)
	d.missed = append(d.missed, [2]int64{from, to})
}

func (d *lossy) NewQueue(depth int) (device.Queue, error) { return d.NewRefillQueue(depth) }

func (d *lossy) NewRefillQueue(depth int) (device.RefillQueue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues++
	return &lossyQueue{d: d, depth: depth}, nil
}

func (d *lossy) Alignment() int { return 1 }

func (d *lossy) Begin() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begin
}

func (d *lossy) Truncate(begin int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin = max(d.begin, begin)
	return nil
}

func (d *lossy) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost := d.lost
	if d.lost = false; lost {
		return fmt.Errorf("lossy: %w", device.ErrNotHeld)
	}
	return nil
}

func (d *lossy) WriteMeta(string, []byte) error { return errors.ErrUnsupported }

func (d *lossy) ReadMeta(string) ([]byte, error) { return nil, device.ErrNoMeta }

func (d *lossy) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues != 0 {
		return fmt.Errorf("lossy: %d queues are open", d.queues)
	}
	return nil
}

func (d *lossy) HoleReady() <-chan struct{} { return d.ready }

func (d *lossy) Missing() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n int64
	for i := d.begin; i < d.end; i++ {
		if !d.held[i] {
			n++
		}
	}
	return n
}

func (d *lossy) Hole(below int64, n int) device.Hole {
	d.mu.Lock()
	defer d.mu.Unlock()
	vacant := func(i int64) bool {
		for from, to := range d.gone {
			if from <= i && i < to {
				return false
			}
		}
		return !d.held[i] && !d.busy[i]
	}
	for to := min(below, d.end); to > d.begin; to-- {
		if vacant(to - 1) {
			from := to - 1
			for from > d.begin && to-from < int64(n) && vacant(from-1) {
				from--
			}
			return device.Hole{From: from, To: to, Ticket: d.now}
		}
	}
	return device.Hole{}
}

// lossyQueue carries out an operation at a random Poll after its Submit.
type lossyQueue struct {
	d     *lossy
	depth int
	ops   []*lossyOp
}

type lossyOp struct {
	tag           uint64
	buf           []byte
	addr          int64
	write, refill bool
	began         uint64 // time of the start; 0: the operation was refused
}

func (q *lossyQueue) add(op *lossyOp) error {
	if len(q.ops) == q.depth {
		return device.ErrQueueFull
	}
	q.ops = append(q.ops, op)
	return nil
}

func (q *lossyQueue) Read(dst []byte, addr int64, tag uint64) error {
	return q.add(&lossyOp{tag: tag, buf: dst, addr: addr})
}

func (q *lossyQueue) Write(src []byte, addr int64, tag uint64) error {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	op := &lossyOp{tag: tag, buf: src, addr: addr, write: true}
	if err := q.add(op); err != nil {
		return err
	}
	end := addr + int64(len(src))
	d.end = max(d.end, end)
	d.begin = max(d.begin, d.end-d.capacity)
	d.start(op)
	return nil
}

func (q *lossyQueue) Refill(src []byte, hole device.Hole, tag uint64) error {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := hole.From; i < hole.To; i++ {
		if d.held[i] || d.busy[i] || d.since[i] > hole.Ticket {
			return fmt.Errorf("lossy: %w", device.ErrNotHeld)
		}
	}
	op := &lossyOp{tag: tag, buf: src, addr: hole.From, write: true, refill: true}
	if err := q.add(op); err != nil {
		return err
	}
	d.refills = append(d.refills, hole)
	d.start(op)
	return nil
}

// start begins a write, unless another write to the range is pending. The range is not held
// from now on. The caller holds mu.
func (d *lossy) start(op *lossyOp) {
	at, end := op.addr, op.addr+int64(len(op.buf))
	free := true
	for i := at; i < end; i++ {
		free = free && !d.busy[i]
	}
	d.drop(at, end)
	if free {
		op.began = d.now
		for i := at; i < end; i++ {
			d.busy[i] = true
		}
	}
}

// run carries out an operation. The caller holds mu.
func (d *lossy) run(op *lossyOp) error {
	at, end := op.addr, op.addr+int64(len(op.buf))
	if at < 0 || end > int64(len(d.bytes)) {
		return device.ErrNotHeld
	}
	if !op.write {
		for i := at; i < end; i++ {
			if i < d.begin || !d.held[i] {
				return fmt.Errorf("lossy: %w", device.ErrNotHeld)
			}
		}
		copy(op.buf, d.bytes[at:])
		return nil
	}
	if op.began == 0 {
		return device.ErrNotHeld
	}
	ok := !op.refill && d.r.Float64() >= d.writeError || op.refill && (d.steady || d.r.IntN(10) > 0)
	whole := true
	for i := at; i < end; i++ {
		d.busy[i] = false
		whole = whole && d.since[i] == op.began
	}
	switch {
	case !ok && !op.refill:
		return fmt.Errorf("lossy: %w", d.failure)
	case !ok || !whole:
		return device.ErrNotHeld
	}
	copy(d.bytes[at:], op.buf)
	for i := at; i < end; i++ {
		d.held[i] = true
	}
	return nil
}

func (q *lossyQueue) Submit() error { return nil }

func (q *lossyQueue) Poll(done []device.Completion) int {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	n := 0
	for n < len(done) && len(q.ops) > 0 {
		op := q.ops[0]
		done[n] = device.Completion{Tag: op.tag, N: len(op.buf), Err: q.d.run(op)}
		if done[n].Err != nil {
			done[n].N = 0
		}
		q.ops = q.ops[1:]
		if n++; q.d.r.IntN(2) == 0 {
			break
		}
	}
	return n
}

func (q *lossyQueue) Wait(context.Context) error { return nil }

func (q *lossyQueue) Close() error {
	var done [8]device.Completion
	for q.Poll(done[:]) > 0 {
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.d.queues--
	return nil
}

// late is a device that delays writes after they were submitted.
type late struct {
	*device.Memory
	seed uint64
}

func (d late) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Memory.NewQueue(depth)
	return &lateQueue{Queue: q, r: rand.New(rand.NewPCG(d.seed, 1))}, err
}

type lateQueue struct {
	device.Queue
	r       *rand.Rand
	waiting []func() error
}

func (q *lateQueue) Write(src []byte, addr int64, tag uint64) error {
	q.waiting = append(q.waiting, func() error { return q.Queue.Write(src, addr, tag) })
	return nil
}

// next carries out the oldest delayed write.
func (q *lateQueue) next() error {
	if len(q.waiting) == 0 {
		return nil
	}
	write := q.waiting[0]
	q.waiting = q.waiting[1:]
	return errors.Join(write(), q.Submit())
}

func (q *lateQueue) Poll(done []device.Completion) int {
	if q.r.IntN(4) == 0 {
		if err := q.next(); err != nil {
			panic(err)
		}
	}
	return q.Queue.Poll(done)
}

func (q *lateQueue) Wait(ctx context.Context) error {
	return errors.Join(q.next(), q.Queue.Wait(ctx))
}
