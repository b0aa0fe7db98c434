package manager

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
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

// add adds a call. If its caller makes one in each interval, and waits for its answer, the calls that it
// could not make meanwhile count too, each from when it was due. every is 0 if it makes them anyway.
func (l *latencies) add(took, every time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		return
	}
	_ = l.h.RecordCorrectedValue(min(max(took.Nanoseconds(), 1), time.Minute.Nanoseconds()), every.Nanoseconds()) // within its range
}

// millis returns a percentile in milliseconds.
func (l *latencies) millis(percentile float64) float64 {
	return float64(l.h.ValueAtQuantile(percentile)) / 1e6
}

// beating is all players that beat. Each beats once in an interval, in a slot of it. One goroutine
// begins the beats of all: to sleep in a goroutine each would take the processors that the manager needs.
type beating struct {
	ctx      context.Context
	interval time.Duration                           // between two beats of a player
	clients  []managerv1connect.ManagerServiceClient // one for each connection
	sending  sync.WaitGroup                          // the goroutine of start
	calls    sync.WaitGroup

	latencies atomic.Pointer[latencies] // of the present phase
	round     atomic.Int64              // begins with each restart of the manager
	awaited   atomic.Int64              // players without an answer in this round
	joined    atomic.Int64

	mu    sync.Mutex // guards slots
	slots [slots][]*player
}

const (
	// slots are the times of an interval at which players beat.
	slots = 5000
	// pause is the time after which a beat that has failed is repeated, if the interval is longer.
	pause = time.Second
)

// player is a server, or a cache of a client.
type player struct {
	gone func() bool // it beats no more
	call func(ctx context.Context) error

	busy     atomic.Bool // a beat has no answer yet
	answered int64       // round of the last answer
}

// start begins beats until ctx ends.
func (b *beating) start(ctx context.Context) {
	b.ctx = ctx
	b.sending.Go(func() {
		began := time.Now()
		for slot := int64(0); clock.Sleep(ctx, max(b.interval/slots, time.Millisecond)); {
			for now := int64(time.Since(began) * slots / b.interval); slot < now; slot++ {
				b.send(&b.slots[slot%slots], began.Add(time.Duration(slot)*b.interval/slots))
			}
		}
	})
}

// stop waits until nothing is sent, when the context of start has ended.
func (b *beating) stop() {
	b.sending.Wait()
	b.calls.Wait()
}

// send begins the beats of a slot. A player whose last beat has no answer is late, as a client
// with one call at a time is.
func (b *beating) send(slot *[]*player, due time.Time) {
	b.mu.Lock()
	players := *slot
	b.mu.Unlock()
	var gone []*player
	for _, p := range players {
		switch {
		case p.busy.Load():
		case p.gone():
			gone = append(gone, p)
		default:
			p.busy.Store(true)
			b.calls.Go(func() { b.beat(p, due) })
		}
	}
	if gone == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	*slot = slices.DeleteFunc(slices.Clone(*slot), func(p *player) bool { return slices.Contains(gone, p) })
	b.joined.Add(-int64(len(gone)))
}

// beat makes a player's call until it is answered. Its latency counts from the time at which it was due.
func (b *beating) beat(p *player, due time.Time) {
	defer p.busy.Store(false)
	for {
		round := b.round.Load()
		err := p.call(b.ctx)
		b.latencies.Load().add(time.Since(due), b.interval, err)
		if err == nil {
			if p.answered < round {
				p.answered = round
				b.awaited.Add(-1)
			}
			return
		}
		if p.gone() || !clock.Sleep(b.ctx, clock.Jitter(min(pause, b.interval))) {
			return
		}
	}
}

// join adds a player.
func (b *beating) join(p *player) {
	b.joined.Add(1)
	p.answered = b.round.Load()
	slot := &b.slots[rand.N(slots)]
	b.mu.Lock()
	defer b.mu.Unlock()
	*slot = append(slices.Clip(*slot), p)
}

// joinServer lets a server beat over a connection until it is dead.
func (b *beating) joinServer(v *vm, over managerv1connect.ManagerServiceClient) {
	beat := &managerv1.HeartbeatRequest{VmId: v.id, FreeMemory: v.memory, Start: 1}
	b.join(&player{
		gone: v.dead.Load,
		call: func(ctx context.Context) error {
			_, err := over.Heartbeat(ctx, connect.NewRequest(beat))
			if connect.CodeOf(err) == connect.CodeNotFound {
				_, err = over.Register(ctx, connect.NewRequest(v.registration()))
			}
			return err
		},
	})
}

// joinCache lets a client renew the lease of a cache over a connection.
func (b *beating) joinCache(id string, over managerv1connect.ManagerServiceClient) {
	b.join(&player{
		gone: func() bool { return false },
		call: func(ctx context.Context) error {
			_, err := over.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id}))
			return err
		},
	})
}
