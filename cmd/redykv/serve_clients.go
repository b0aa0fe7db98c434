package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/resp"
)

// clientFlags are the flags that limit serve's clients.
type clientFlags struct {
	clients, loops    int
	bulk              units.Size
	requests, replies units.Size
	idle, write       time.Duration
}

func newClientFlags() clientFlags {
	return clientFlags{bulk: resp.DefaultMaxBulk, requests: resp.DefaultMaxBuffers, replies: resp.DefaultMaxReplies}
}

func (f *clientFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.clients, "max-clients", resp.DefaultMaxClients, "connections at once")
	flags.IntVar(&f.loops, "loops", 0, "goroutines that serve the connections whose commands are plain; 0: as many as there are processors, but one; negative: none, each connection has its own")
	flags.Var(&f.bulk, "max-bulk", "largest argument, and so value, that a client may send")
	flags.Var(&f.requests, "request-memory", "memory for commands of all clients together that have not arrived whole; half of it is also for what they send before they read their replies")
	flags.Var(&f.replies, "reply-memory", "memory for replies of all clients together that they have not taken; where that does not do, those who do not take theirs are disconnected")
	flags.DurationVar(&f.idle, "idle-timeout", 0, "how long a client may send nothing before it is disconnected; 0: for ever")
	flags.DurationVar(&f.write, "write-timeout", resp.DefaultWriteTimeout, "how long a client may leave its replies before it is disconnected")
}

func (f *clientFlags) check() error {
	opts := f.options()
	switch {
	case f.clients < 1:
		return usagef("--max-clients %d: want at least 1", f.clients)
	case f.bulk < 1 || f.bulk > resp.MaxMaxBulk:
		return usagef("--max-bulk %v: want 1B to %v", f.bulk, units.Size(resp.MaxMaxBulk))
	case f.idle < 0:
		return usagef("--idle-timeout %v: want 0 or more", f.idle)
	case f.write <= 0:
		return usagef("--write-timeout %v: want more than 0", f.write)
	}
	if err := opts.Check(); err != nil {
		return usagef("%w", err)
	}
	return nil
}

func (f *clientFlags) options() resp.Options {
	return resp.Options{
		MaxClients: f.clients, Loops: f.loops, MaxBulk: int(f.bulk), MaxBuffers: int64(f.requests), MaxReplies: int64(f.replies),
		IdleTimeout: f.idle, WriteTimeout: f.write,
	}
}
