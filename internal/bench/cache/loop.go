package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/redytier"
)

// loop is the common part of both kinds of threads: buffers and tags for the requests in
// flight, and the generator of the next one.
type loop struct {
	depth    int
	capacity int64
	poll     bool // poll instead of sleeping
	rng      *rand.PCG
	writes   uint64 // in 100 requests of this slice
	meter    *bench.Meter
	buffers  []byte
	free     []uint64
}

func newLoop(s *Spec, capacity int64, depth int, seed uint64) loop {
	return loop{
		depth: depth, capacity: capacity, poll: s.Idle == fabricbench.Poll,
		rng: rand.NewPCG(seed, 1), meter: bench.NewMeter(depth),
		buffers: make([]byte, depth*slices.Max(s.Sizes)), free: make([]uint64, 0, depth),
	}
}

// draw returns the next request's address, and whether it is a write.
func (l *loop) draw(size int) (addr int64, write bool) {
	bits := l.rng.Uint64()
	places := uint64(l.capacity) / uint64(size) // below 2^32
	return int64(bits >> 32 * places >> 32 * uint64(size)), uint64(uint32(bits))*100>>32 < l.writes
}

func (l *loop) buffer(tag uint64, size int) []byte { return l.buffers[int(tag)*size:][:size] }

// queue is the part of a thread that depends on its kind.
type queue interface {
	// start issues a request for each free tag, as far as there is room.
	start(size int) error
	// finish waits until requests have completed, and frees their tags.
	finish(ctx context.Context) error
}

// run measures a queue of this loop for that long, and then waits until no request is in
// flight.
func (l *loop) run(ctx context.Context, q queue, op Op, size int, lasts time.Duration) (bench.Sample, error) {
	l.free = bench.AllTags(l.free, l.depth)
	writes, _ := op.writes() // Spec.Check has refused others
	l.writes = uint64(writes)
	return l.meter.Run(ctx, l.depth, lasts, func() error { return q.start(size) }, q.finish, func() int { return len(l.free) })
}

// sessionLoop is a session with its thread.
type sessionLoop struct {
	loop
	session *redytier.Session
	done    []device.Completion
}

func newSessionLoop(l loop, c *redytier.Cache) (*sessionLoop, error) {
	s, err := c.NewSession(l.depth)
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	return &sessionLoop{loop: l, session: s, done: make([]device.Completion, l.depth)}, nil
}

func (l *sessionLoop) close() error { return l.session.Close() }

func (l *sessionLoop) slice(ctx context.Context, op Op, size int, lasts time.Duration) (bench.Sample, error) {
	return l.run(ctx, l, op, size, lasts)
}

// start enqueues a request for each free tag and rings the doorbell.
func (l *sessionLoop) start(size int) error {
	for _, tag := range l.free {
		addr, write := l.draw(size)
		var err error
		if buf := l.buffer(tag, size); write {
			err = l.session.Write(buf, addr, tag)
		} else {
			err = l.session.Read(buf, addr, tag)
		}
		if err != nil {
			return err
		}
		l.meter.Issued(tag)
	}
	l.free = l.free[:0]
	return l.session.Submit()
}

// finish waits for completions.
func (l *sessionLoop) finish(ctx context.Context) error {
	n := l.session.Poll(l.done)
	for spins := 1; n == 0; spins++ {
		switch {
		case !l.poll:
			if err := l.session.Wait(ctx); err != nil {
				return err
			}
		case spins%1024 == 0 && ctx.Err() != nil:
			return context.Cause(ctx)
		}
		n = l.session.Poll(l.done)
	}
	for i := range l.done[:n] {
		d := &l.done[i]
		if d.Err != nil {
			return fmt.Errorf("request: %w", d.Err)
		}
		l.meter.Completed(d.Tag)
		l.free = append(l.free, d.Tag)
	}
	return nil
}
