package manager

import (
	"cmp"
	"context"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// Durations is a distribution.
type Durations struct {
	Bounds []time.Duration // upper bounds
	Counts []uint64        // cumulative, by bound
	Count  uint64
	Sum    time.Duration
}

// CallDurations are those of the calls of one procedure, waiting included. Watches are not counted.
type CallDurations struct {
	Procedure string // such as Allocate
	Durations
}

var (
	noticeBounds = []time.Duration{0, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}
	callBounds   = []time.Duration{
		time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
	}
)

// durations measures a distribution. It is safe for concurrent use.
type durations struct {
	bounds []time.Duration
	counts []atomic.Uint64 // by bound, and of those above the last
	sum    atomic.Int64
}

func newDurations(bounds []time.Duration) *durations {
	return &durations{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (d *durations) add(t time.Duration) {
	i, _ := slices.BinarySearch(d.bounds, t)
	d.counts[i].Add(1)
	d.sum.Add(int64(t))
}

func (d *durations) get() Durations {
	all := Durations{Bounds: d.bounds, Counts: make([]uint64, len(d.bounds)), Sum: time.Duration(d.sum.Load())}
	for i := range d.counts {
		all.Count += d.counts[i].Load()
		if i < len(all.Counts) {
			all.Counts[i] = all.Count
		}
	}
	return all
}

// calls measures the calls of the manager's procedures, by their names.
type calls map[string]*durations

func newCalls() calls {
	c := calls{}
	methods := managerv1.File_redykv_manager_v1_manager_proto.Services().ByName("ManagerService").Methods()
	for i := range methods.Len() {
		if m := methods.Get(i); !m.IsStreamingServer() {
			c[string(m.Name())] = newDurations(callBounds)
		}
	}
	return c
}

func (c calls) get() []CallDurations {
	all := make([]CallDurations, 0, len(c))
	for name, d := range c {
		all = append(all, CallDurations{Procedure: name, Durations: d.get()})
	}
	slices.SortFunc(all, func(a, b CallDurations) int { return cmp.Compare(a.Procedure, b.Procedure) })
	return all
}

// measure is an interceptor that measures calls.
func (c calls) measure(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		defer func(began time.Time) { c[path.Base(req.Spec().Procedure)].add(time.Since(began)) }(time.Now())
		return next(ctx, req)
	}
}
