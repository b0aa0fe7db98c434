package ycsb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
)

const (
	// sampleEvery is the number of reads per measured one. A clock reading costs as much as a
	// read from memory. It shares no factor with burst and with the store's lanes, which have powers
	// of two, so that reads at all places of them are measured.
	sampleEvery = 31
	// burst is the number of reads submitted between two polls.
	burst = 64
	// maxLatency is the upper end of the histogram, in nanoseconds. Longer latencies count as
	// maxLatency.
	maxLatency = int64(10 * time.Minute)
)

// reader is one thread of an experiment. It keeps reads, or the operations of a mixed load,
// pending on a session. It belongs to one goroutine at a time, and allocates nothing per read.
type reader struct {
	store     *kv.Store
	session   *kv.Session // nil except during run
	valueSize int
	numbers   *Generator

	// ops[i] belongs to the session while i is not in free. began[i] is the time at which
	// ops[i] was submitted if its latency is measured, else 0.
	ops   []kv.Op
	began []int64
	free  []uint32
	done  []*kv.Op

	epoch     time.Time // the origin of the times in began
	countdown int       // reads until the next measured one
	pacer     pacer     // of an open loop
	mixed     *mixed    // nil: reads only
	tally
}

// tally has the counts of a reader.
type tally struct {
	count     uint64 // operations, and among them…
	writes    uint64 // …those that write…
	errors    uint64 // …and those that failed or returned wrong bytes
	first     error
	latencies *hdrhistogram.Histogram // nanoseconds
}

// take returns the counts, and resets them.
func (t *tally) take() tally {
	taken := *t
	*t = newTally()
	return taken
}

func newTally() tally {
	return tally{latencies: NewLatencies()}
}

// NewLatencies returns an empty histogram of nanoseconds.
func NewLatencies() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

func (t *tally) add(other tally) {
	t.count += other.count
	t.writes += other.writes
	t.errors += other.errors
	if t.first == nil {
		t.first = other.first
	}
	t.latencies.Merge(other.latencies)
}

// take returns the counts since the last call.
func (r *reader) take() tally {
	if r.mixed == nil {
		return r.tally.take()
	}
	taken := r.mixed.counts.tally()
	r.mixed.counts = Counts{}
	return taken
}

// newReader returns a reader that keeps depth reads pending. The caller sets its store.
func newReader(valueSize, depth int, numbers *Generator) *reader {
	r := &reader{
		valueSize: valueSize,
		numbers:   numbers,
		ops:       make([]kv.Op, depth),
		began:     make([]int64, depth),
		free:      make([]uint32, depth),
		done:      make([]*kv.Op, depth),
		epoch:     time.Now(),
		countdown: sampleEvery,
		tally:     newTally(),
	}
	buffers := make([]byte, depth*(KeySize+valueSize))
	for i := range r.ops {
		key, rest := buffers[:KeySize:KeySize], buffers[KeySize:]
		r.ops[i] = kv.Op{Kind: kv.OpRead, Key: key, Value: rest[:0:valueSize]}
		buffers = rest[valueSize:]
		r.free[i] = uint32(i)
	}
	return r
}

// run reads in a new session. It returns only errors of the session; the tally counts failed
// reads.
func (r *reader) run(ctx context.Context, stop *atomic.Bool) (err error) {
	r.session = r.store.NewSession()
	defer func() {
		// Pending operations own their buffers until they complete, even if ctx ends.
		if endErr := r.end(context.WithoutCancel(ctx)); err == nil {
			err = endErr
		}
	}()
	r.pacer.begin(r.now())
	for !stop.Load() {
		submitted, err := r.submit(burst)
		if err != nil {
			return err
		}
		if r.poll() > 0 || submitted > 0 {
			continue
		}
		if r.pacer.open() {
			r.pacer.rest(r.now(), len(r.free) == len(r.ops))
			continue
		}
		// ctx ends right before stop is set; that is no error.
		if err := r.session.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// end waits for pending operations, and closes the session.
func (r *reader) end(ctx context.Context) (err error) {
	defer func() {
		if closeErr := r.session.Close(); err == nil {
			err = closeErr
		}
		r.session = nil
	}()
	for len(r.free) < len(r.ops) {
		if r.poll() == 0 {
			if err := r.session.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// submit submits up to most operations and returns how many the session accepted.
func (r *reader) submit(most int) (int, error) {
	now := int64(0)
	if r.pacer.open() {
		now = r.now()
	}
	for n := 0; n < most; n++ {
		if len(r.free) == 0 || r.pacer.open() && !r.pacer.isDue(now) {
			return n, nil
		}
		i := r.free[len(r.free)-1]
		op := &r.ops[i]
		if r.mixed == nil {
			record.PutKey(op.Key, uint64(r.numbers.Next()))
		} else {
			r.mixed.draw(i, op, r.numbers)
		}
		if r.pacer.open() {
			r.began[i] = r.pacer.intended()
		} else if r.countdown == 1 {
			r.began[i] = r.now()
		}
		if err := r.session.Submit(op); err != nil {
			r.began[i] = 0
			if errors.Is(err, kv.ErrQueueFull) {
				return n, nil
			}
			return n, err
		}
		r.free = r.free[:len(r.free)-1]
		r.pacer.advance()
		if r.countdown--; r.countdown == 0 {
			r.countdown = sampleEvery
		}
	}
	return most, nil
}

// poll collects completed operations and returns their number.
func (r *reader) poll() int {
	n := r.session.Poll(r.done)
	for _, op := range r.done[:n] {
		i := r.indexOf(op)
		r.finish(i, op)
		r.free = append(r.free, i)
	}
	return n
}

// indexOf returns the index of op in ops. It uses only the difference of two addresses of one
// array, and makes no pointer from a number.
func (r *reader) indexOf(op *kv.Op) uint32 {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(r.ops)))
	return uint32((uintptr(unsafe.Pointer(op)) - base) / unsafe.Sizeof(*op))
}

// finish counts the read in ops[i] and checks its value.
func (r *reader) finish(i uint32, op *kv.Op) {
	if r.mixed != nil {
		took := int64(0)
		if r.began[i] != 0 {
			took = max(r.now()-r.began[i], 1)
			r.began[i] = 0
		}
		r.mixed.finish(i, op, took)
		return
	}
	r.count++
	n := record.KeyNumber(op.Key)
	if op.Err != nil || !record.EndsMatch(op.Value, n, r.valueSize) {
		r.fail(op, n)
	}
	if r.began[i] == 0 {
		return
	}
	// RecordValue fails only for values out of range.
	_ = r.latencies.RecordValue(min(max(r.now()-r.began[i], 1), maxLatency))
	r.began[i] = 0
	if op.Err == nil && record.CheckValue(op.Value, n, r.valueSize) != nil && record.EndsMatch(op.Value, n, r.valueSize) {
		r.fail(op, n) // the ends match but the middle is wrong: not counted yet
	}
}

// fail counts a read that failed or returned wrong bytes.
func (r *reader) fail(op *kv.Op, n uint64) {
	r.errors++
	if r.first != nil {
		return
	}
	if op.Err != nil {
		r.first = fmt.Errorf("record %d: %w", n, op.Err)
	} else {
		r.first = record.CheckValue(op.Value, n, r.valueSize)
	}
}

// now returns the time since epoch in nanoseconds, never 0.
func (r *reader) now() int64 { return int64(time.Since(r.epoch)) | 1 }
