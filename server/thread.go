package server

import (
	"context"
	"runtime"
)

// idleSpins is how many rounds without work a thread polls a connection before
// it hands it back to be waited for. Each round yields the processor: on a busy
// machine two sides that spin starve each other.
const idleSpins = 64

// thread is one server thread (R38): it polls the connections that are awake,
// one after the other, and sleeps where none is. Connections come in through
// inbox and are owned by the thread until it sends on their returned channel.
type thread struct {
	inbox  chan *conn
	active []*conn
}

// run loops over step until ctx ends, when it hands all connections back.
func (t *thread) run(ctx context.Context) {
	defer func() {
		for len(t.active) > 0 {
			t.handBack(0)
		}
	}()
	done := ctx.Done()
	for {
		if len(t.active) == 0 {
			select {
			case c := <-t.inbox:
				t.take(c)
			case <-done:
				return
			}
		}
		// One channel at a time: looking at an empty one costs a load then.
		select {
		case c := <-t.inbox:
			t.take(c)
		default:
		}
		select {
		case <-done:
			return
		default:
		}
		if !t.step() {
			runtime.Gosched()
		}
	}
}

// step polls every connection that is awake once and says whether any had work.
func (t *thread) step() bool {
	worked := false
	for i := 0; i < len(t.active); {
		c := t.active[i]
		if c.ring.step(c.qp, c.lease, c.done[:]) {
			worked = true
			c.idle = 0
		} else {
			c.idle++
		}
		if c.ring.err != nil || c.idle > idleSpins {
			t.handBack(i) // the last connection is now at i
			continue
		}
		i++
	}
	return worked
}

func (t *thread) take(c *conn) {
	c.idle = 0
	t.active = append(t.active, c)
}

// handBack gives active connection i back to its goroutine.
func (t *thread) handBack(i int) {
	c, last := t.active[i], len(t.active)-1
	t.active[i] = t.active[last]
	t.active[last] = nil
	t.active = t.active[:last]
	c.returned <- struct{}{}
}
