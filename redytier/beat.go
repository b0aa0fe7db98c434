package redytier

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
)

// This file bounds how long a server may leave its cache without an answer
// (Config.ServerTimeout).
//
// A batch in a server's ring is answered by the server's process, which may be stopped or
// stuck, while its kernel, its NIC or its memory go on as if nothing were the matter. So
// sessions look at a clock while they wait. It is one number of the cache's, of beats: to
// look at it costs a load, and no owner has to ask for the time. It is counted by this
// process: if that stands still itself, no server is accused of it.

const (
	// A connection is given up at the first beat after silentBeats in which its owner
	// looked in vain; the first of them may be a short one.
	silentBeats     = 4
	beatsPerTimeout = silentBeats + 1
)

var errNoAnswer = errors.New("no answer in time")

// beats counts, and has those look who sleep, until the cache is deleted.
func (c *Cache) beats() {
	ticker := time.NewTicker(max(c.cfg.ServerTimeout/beatsPerTimeout, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		c.beat.Add(1)
		c.mu.Lock()
		for s := range c.sessions {
			for _, conn := range s.conns {
				if conn.ring != nil && conn.qp != nil {
					conn.qp.Wake()
				}
			}
		}
		c.mu.Unlock()
	}
}

// attended makes a call to a grant's server that takes as long as its memory is large. It
// ends the call where the server, asked for something else meanwhile, answers nothing, or
// is lost.
func (g *grant) attended(caller context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(caller)
	var asking sync.WaitGroup
	asking.Go(func() {
		for clock.Sleep(ctx, g.timeout/2) {
			if err := g.wellness(ctx); err != nil {
				cancel(err)
			}
		}
	})
	err := call(ctx)
	if err != nil && ctx.Err() != nil && caller.Err() == nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	cancel(nil)
	asking.Wait()
	return err
}

// wellness is nil where the server answers, be it a refusal, and is not lost.
func (g *grant) wellness(ctx context.Context) error {
	if cause := g.lost.Load(); cause != nil {
		return *cause
	}
	ask, cancel := clock.WithAwakeTimeout(ctx, g.timeout, context.DeadlineExceeded)
	defer cancel()
	_, err := g.control().Status(ask, connect.NewRequest(&serverv1.StatusRequest{}))
	if err == nil || connect.IsWireError(err) || ctx.Err() != nil {
		return nil
	}
	return unavailable(g, errors.Join(errNoAnswer, err))
}
