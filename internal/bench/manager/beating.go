package manager

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/beats"
)

// latencies are those of concurrent calls.
type latencies struct {
	mu     sync.Mutex // guards the rest
	h      *hdrhistogram.Histogram
	failed int64
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)}
}

func (l *latencies) add(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		return
	}
	_ = l.h.RecordValue(min(max(took.Nanoseconds(), 1), time.Minute.Nanoseconds())) // within its range
}

// millis returns a percentile in milliseconds.
func (l *latencies) millis(percentile float64) float64 {
	return float64(l.h.ValueAtQuantile(percentile)) / 1e6
}

// beating is all players that beat. Each beats once a second, at a random time of it.
type beating struct {
	clients []*beats.Client // one for each connection
	stop    context.CancelFunc
	players sync.WaitGroup
	ctx     context.Context

	latencies atomic.Pointer[latencies] // of the present phase
	round     atomic.Int64              // begins with each restart of the manager
	awaited   atomic.Int64              // players without an answer in this round
	joined    atomic.Int64
}

// join lets a player beat until it returns false. Beats have no deadline, as the timers would
// cost this process more than the beats, and a manager that ends breaks its connections.
func (b *beating) join(beat func(ctx context.Context, c *beats.Client) (more bool, err error)) {
	client := b.clients[int(b.joined.Add(1))%len(b.clients)]
	b.players.Go(func() {
		if !clock.Sleep(b.ctx, rand.N(time.Second)) {
			return
		}
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		answered := b.round.Load()
		for {
			round, began := b.round.Load(), time.Now()
			more, err := beat(b.ctx, client)
			if !more || b.ctx.Err() != nil {
				b.joined.Add(-1)
				return
			}
			b.latencies.Load().add(time.Since(began), err)
			if err == nil && answered < round {
				answered = round
				b.awaited.Add(-1)
			}
			select {
			case <-ticker.C:
			case <-b.ctx.Done():
				return
			}
		}
	})
}

// joinServer lets a server beat until it is dead.
func (b *beating) joinServer(v *vm) {
	b.join(func(ctx context.Context, c *beats.Client) (bool, error) {
		if v.dead.Load() {
			return false, nil
		}
		_, err := c.Heartbeat(ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: v.id, FreeMemory: v.memory}))
		if connect.CodeOf(err) == connect.CodeNotFound {
			_, err = c.Register(ctx, connect.NewRequest(v.registration()))
		}
		return true, err
	})
}

// joinClient lets a client renew the leases of its caches, one each second.
func (b *beating) joinClient(caches func() []string) {
	next := 0
	b.join(func(ctx context.Context, c *beats.Client) (bool, error) {
		ids := caches()
		if len(ids) == 0 {
			return true, nil
		}
		next++
		_, err := c.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: ids[next%len(ids)]}))
		if connect.CodeOf(err) == connect.CodeNotFound {
			err = nil // deallocated meanwhile
		}
		return true, err
	})
}
