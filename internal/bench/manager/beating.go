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

// beating is all players that beat. Each beats once a second, in a slot of it. One goroutine
// sends the beats of all: a goroutine each would take the processors that the manager needs.
type beating struct {
	ctx     context.Context
	clients []*client      // one for each connection
	sending sync.WaitGroup // the goroutine of start
	calls   sync.WaitGroup

	latencies atomic.Pointer[latencies] // of the present phase
	round     atomic.Int64              // begins with each restart of the manager
	awaited   atomic.Int64              // players without an answer in this round
	joined    atomic.Int64

	mu    sync.Mutex // guards slots
	slots [slots][]*player
}

// slots are the times of a second at which players beat.
const slots = 1000

// client is a connection that carries beats.
type client struct {
	*beats.Client
	ask atomic.Int64 // time in nanoseconds before which no call asks for the leader
}

// player is a server, or a client of caches.
type player struct {
	client *client
	next   func() (_ *managerv1.Beat, more bool)                               // nil: no beat is due
	call   func(ctx context.Context, c *beats.Client, b *managerv1.Beat) error // makes a beat a call of the client

	busy     atomic.Bool // a beat has no answer yet
	answered int64       // round of the last answer
}

// start sends the beats until ctx ends.
func (b *beating) start(ctx context.Context) {
	b.ctx = ctx
	b.sending.Go(func() {
		began := time.Now()
		for slot := int64(0); clock.Sleep(ctx, time.Second/slots); {
			for now := int64(time.Since(began) * slots / time.Second); slot < now; slot++ {
				b.send(&b.slots[slot%slots], began.Add(time.Duration(slot)*time.Second/slots))
			}
		}
	})
}

// stop waits until nothing is sent, when the context of start has ended.
func (b *beating) stop() {
	b.sending.Wait()
	for _, c := range b.clients {
		_ = c.Close() // its beats are answered with an error
	}
	b.calls.Wait()
}

// send sends the beats of a slot. A player whose last beat has no answer is late, as a client
// with one call at a time is.
func (b *beating) send(slot *[]*player, due time.Time) {
	b.mu.Lock()
	players := *slot
	b.mu.Unlock()
	var gone []*player
	for _, p := range players {
		if p.busy.Load() {
			continue
		}
		beat, more := p.next()
		if !more {
			gone = append(gone, p)
		} else if beat != nil {
			b.beat(p, beat, due)
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

// beat sends one beat: over the stream, or else by a call of the client. Its latency counts
// from the time at which it was due.
func (b *beating) beat(p *player, beat *managerv1.Beat, due time.Time) {
	p.busy.Store(true)
	round := b.round.Load()
	answered := func(err error) {
		b.latencies.Load().add(time.Since(due), err)
		if err == nil && p.answered < round {
			p.answered = round
			b.awaited.Add(-1)
		}
		p.busy.Store(false)
	}
	call := func() {
		if b.ctx.Err() != nil {
			answered(b.ctx.Err())
			return
		}
		b.calls.Go(func() { answered(p.call(b.ctx, p.client.Client, beat)) })
	}
	s := p.client.Stream()
	if s == nil {
		call()
		return
	}
	s.Send(beat, func(a *managerv1.BeatAnswer, err error) {
		refused := a.GetRefused()
		switch now := time.Now(); {
		case err == nil && refused == 0:
			answered(nil)
		case connect.Code(refused) == connect.CodeUnavailable && now.UnixNano() < p.client.ask.Load():
			answered(connect.NewError(connect.CodeUnavailable, nil))
		default:
			p.client.ask.Store(now.Add(time.Second).UnixNano())
			call()
		}
	})
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
func (b *beating) joinServer(v *vm, over *client) {
	beat := &managerv1.Beat{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: v.id, FreeMemory: v.memory, Start: 1}}}
	b.join(&player{
		client: over,
		next:   func() (*managerv1.Beat, bool) { return beat, !v.dead.Load() },
		call: func(ctx context.Context, c *beats.Client, b *managerv1.Beat) error {
			_, err := c.Heartbeat(ctx, connect.NewRequest(b.GetHeartbeat()))
			if connect.CodeOf(err) == connect.CodeNotFound {
				_, err = c.Register(ctx, connect.NewRequest(v.registration()))
			}
			return err
		},
	})
}

// joinClient lets a client renew the leases of its caches, one each second, over a connection.
func (b *beating) joinClient(over *client, caches func() []string) {
	next := 0
	b.join(&player{
		client: over,
		next: func() (*managerv1.Beat, bool) {
			ids := caches()
			if len(ids) == 0 {
				return nil, true
			}
			next++
			return &managerv1.Beat{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{CacheId: ids[next%len(ids)]}}}, true
		},
		call: func(ctx context.Context, c *beats.Client, b *managerv1.Beat) error {
			_, err := c.Renew(ctx, connect.NewRequest(b.GetRenew()))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil // deallocated meanwhile
			}
			return err
		},
	})
}
