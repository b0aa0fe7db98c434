package device_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
)

// gated is a device whose reads of pages wait until the test opens their gate.
type gated struct {
	*device.Memory
	page int64

	mu      sync.Mutex
	pending []int64         // addresses of reads that wait
	open    map[int64]error // by page: what its reads end with
	all     bool            // no read waits
}

func (d *gated) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Memory.NewQueue(depth)
	return &gatedQueue{Queue: q, d: d}, err
}

// waiting returns the addresses of reads that wait, ascending.
func (d *gated) waiting() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.pending))
}

// end ends the reads of a page with an error, or nil.
func (d *gated) end(addr int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[addr/d.page] = err
}

// passed reports whether each end that was asked for has found its read.
func (d *gated) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open) == 0
}

// endAll lets all reads pass from now on.
func (d *gated) endAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = true
}

type gatedQueue struct {
	device.Queue
	d     *gated
	reads []gatedRead
	ended []device.Completion
}

type gatedRead struct {
	dst  []byte
	addr int64
	tag  uint64
}

func (q *gatedQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.d.pending = append(q.d.pending, addr)
	q.reads = append(q.reads, gatedRead{dst, addr, tag})
	return nil
}

func (q *gatedQueue) pass() {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.reads = slices.DeleteFunc(q.reads, func(r gatedRead) bool {
		err, ok := q.d.open[r.addr/q.d.page]
		if !ok && !q.d.all {
			return false
		}
		delete(q.d.open, r.addr/q.d.page)
		q.d.pending = slices.Delete(q.d.pending, slices.Index(q.d.pending, r.addr), slices.Index(q.d.pending, r.addr)+1)
		if err != nil {
			q.ended = append(q.ended, device.Completion{Tag: r.tag, Err: err})
		} else if err := q.Queue.Read(r.dst, r.addr, r.tag); err != nil {
			panic(err)
		}
		return true
	})
}

func (q *gatedQueue) Poll(done []device.Completion) int {
	q.pass()
	n := copy(done, q.ended)
	q.ended = q.ended[n:]
	if err := q.Submit(); err != nil {
		panic(err)
	}
	return n + q.Queue.Poll(done[n:])
}

// steady is a clock by which each look at the time takes a tenth of a millisecond. By a real one a
// refill on a busy machine finds that goroutines wait for a processor, and copies one piece at a time.
type steady struct {
	clock.Clock
	passed atomic.Int64
}

func (c *steady) Now() time.Time {
	return time.Unix(0, c.passed.Add(int64(100*time.Microsecond)))
}

func (c *steady) AfterFunc(d time.Duration, f func()) clock.Timer {
	return c.Clock.AfterFunc(d, func() {
		c.passed.Add(int64(d))
		f()
	})
}

// Several pieces are copied at a time. A write to one voids it, one that could not be read is read
// again, one whose memory is lost stays a hole until there is memory, and all others are filled.
func TestRefillPieces(t *testing.T) {
	defer testrun.NoLeaks(t, goleak.IgnoreCurrent()) // ignore goroutines of other tests
	const page, pages = 1 << 10, 40
	log := make([]byte, pages*page)
	for i := range log {
		log[i] = byte(1 + i%251)
	}
	last := &gated{Memory: device.NewMemory(), page: page, open: map[int64]error{}}
	b := newBench(t, started(t, last))
	b.write(string(log), 0)
	if err := b.q.Close(); err != nil {
		t.Fatal(err)
	}
	first := newLossy(1, len(log), int64(len(log)))
	first.steady = true
	d := device.NewTieredWith(device.TieredOptions{Logger: quiet}, first, last)
	device.CutRefills(d, page)
	device.PaceRefills(d, &steady{Clock: clock.Real()})
	if err := d.Start(int64(len(log))); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, d)

	// The first piece is read alone. Each turn doubles their number.
	newest := int64(len(log) - page)
	testrun.Until(t, "a read of the newest page waits", func() bool { return slices.Equal(last.waiting(), []int64{newest}) })
	for len(last.waiting()) < 4 {
		for _, addr := range last.waiting() {
			last.end(addr, nil)
		}
		testrun.Until(t, "other reads wait", func() bool { return last.passed() && len(last.waiting()) > 0 })
	}
	flight := last.waiting()
	for i, addr := range flight[1:] {
		if addr != flight[i]+page {
			t.Errorf("reads of %d, which are not neighbours", flight)
		}
	}

	// One is written meanwhile, one cannot be read, the memory of one is lost.
	written, failed, lost := flight[0], flight[1], flight[2]
	copy(log[written:], bytes.Repeat([]byte{0xAB}, page))
	if err := b.writeAll(string(log[written:written+page]), written); err != nil {
		t.Fatal(err)
	}
	first.lose(lost, lost+page)
	last.end(failed, fmt.Errorf("block is bad: %w", device.ErrFault))
	for _, addr := range flight {
		if addr != failed {
			last.end(addr, nil)
		}
	}
	testrun.Until(t, "all reads are passed on", last.passed)
	last.endAll()
	testrun.Until(t, "all pages but one are copied", func() bool { return d.Metrics()[0].Missing == page })
	first.mu.Lock()
	for at := newest; at > written; at -= page {
		if held := first.held[at]; held != (at != lost) {
			t.Errorf("page at %d: held %v", at, held)
		}
	}
	first.mu.Unlock()
	first.restore()
	testrun.Until(t, "all pages are copied", func() bool { return d.Metrics()[0].Missing == 0 })
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	testrun.Bytes(first.bytes, nil).Want(t, log, "the first tier")
}
