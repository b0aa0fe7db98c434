package server

import (
	"context"
	"runtime"

	"github.com/redykv/redykv/internal/fabric/core"
)

// idleSpins is the number of rounds without work after which a thread returns a connection
// to its goroutine, which waits for it. Each round yields the processor: on a busy machine
// two sides that spin starve each other.
const idleSpins = 64

// thread is one server thread (R38). It polls its active connections in turn and sleeps if
// there are none. Connections arrive through inbox and are owned by the thread until it
// sends on their returned channel.
type thread struct {
	grant   *grant
	inbox   chan *conn
	stopped <-chan struct{} // closed by stop, or by the grant's end
	stop    context.CancelFunc
	ended   chan struct{} // closed when the thread is gone
	active  []*conn
	// gate is entered while the thread may access regions; it is drained before regions
	// are freed.
	gate core.Gate
}

// startThread starts a thread that runs until it is stopped or the grant ends. The grant
// must be open until startThread returns.
func (g *grant) startThread() *thread {
	ctx, stop := context.WithCancel(g.ctx)
	t := &thread{grant: g, inbox: make(chan *conn), stopped: ctx.Done(), stop: stop, ended: make(chan struct{})}
	g.running.Go(func() {
		defer close(t.ended)
		defer stop()
		unpin, err := g.server.pins.Pin()
		if err != nil {
			g.server.opts.Logger.Warn("a server thread is not pinned", "err", err)
		}
		defer unpin()
		t.run()
	})
	return t
}

// run loops over step until the thread is stopped, and then returns all connections.
func (t *thread) run() {
	defer func() {
		for len(t.active) > 0 {
			t.handBack(0, true)
		}
	}()
	for {
		if len(t.active) == 0 {
			select {
			case c := <-t.inbox:
				t.take(c)
			case <-t.stopped:
				return
			}
		}
		// One channel at a time: polling an empty one costs only a load.
		select {
		case c := <-t.inbox:
			t.take(c)
		default:
		}
		select {
		case <-t.stopped:
			return
		default:
		}
		if !t.step() {
			runtime.Gosched()
		}
	}
}

// step polls every active connection once and reports whether any had work.
func (t *thread) step() bool {
	worked := false
	t.gate.Enter()
	memory := *t.grant.memory.Load()
	for i := 0; i < len(t.active); {
		c := t.active[i]
		if c.ring.step(c.qp, memory, &t.grant.server.counts, c.done[:]) {
			worked = true
			c.idle = 0
		} else {
			c.idle++
		}
		if c.ring.err != nil || c.idle > idleSpins || c.ending.Load() {
			t.handBack(i, false) // the last connection is now at i
			continue
		}
		i++
	}
	t.gate.Leave()
	return worked
}

func (t *thread) take(c *conn) {
	c.idle = 0
	t.active = append(t.active, c)
}

// handBack returns active connection i to its goroutine. If awake is set, the connection may
// have work that its queue pair does not announce again.
func (t *thread) handBack(i int, awake bool) {
	c, last := t.active[i], len(t.active)-1
	t.active[i] = t.active[last]
	t.active[last] = nil
	t.active = t.active[:last]
	c.returned <- awake
}
