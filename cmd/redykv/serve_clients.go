package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/resp"
)

// clientFlags are the flags about serve's clients.
type clientFlags struct {
	clients, loops    int
	databases         int
	bulk              units.Size
	requests, replies units.Size
	idle, write       time.Duration
}

func newClientFlags() clientFlags {
	return clientFlags{bulk: resp.DefaultMaxBulk, requests: resp.DefaultMaxBuffers, replies: resp.DefaultMaxReplies}
}

func (f *clientFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.clients, "max-clients", resp.DefaultMaxClients, "maximum number of concurrent connections")
	flags.IntVar(&f.databases, "databases", resp.DefaultDatabases, "number of databases, which clients choose with SELECT")
	flags.IntVar(&f.loops, "loops", 0, "goroutines that serve connections with simple commands together; 0: one less than there are processors; negative: none, each connection has its own")
	flags.Var(&f.bulk, "max-bulk", "maximum size of an argument, and so of a value")
	flags.Var(&f.requests, "request-memory", "memory for incomplete commands of all clients; half of it also holds what clients send before they read their replies")
	flags.Var(&f.replies, "reply-memory", "memory for unread replies of all clients; when it is exhausted, clients that do not read theirs are disconnected")
	flags.DurationVar(&f.idle, "idle-timeout", 0, "time without input after which a client is disconnected; 0: never")
	flags.DurationVar(&f.write, "write-timeout", resp.DefaultWriteTimeout, "time for which a client may leave replies unread before it is disconnected")
}

func (f *clientFlags) check() error {
	switch {
	case f.clients < 1:
		return usagef("--max-clients %d: want at least 1", f.clients)
	case f.databases < 1 || f.databases > resp.MaxDatabases:
		return usagef("--databases %d: want 1 to %d", f.databases, resp.MaxDatabases)
	case f.bulk < 1 || f.bulk > resp.MaxMaxBulk:
		return usagef("--max-bulk %v: want 1B to %v", f.bulk, units.Size(resp.MaxMaxBulk))
	case f.idle < 0:
		return usagef("--idle-timeout %v: want 0 or more", f.idle)
	case f.write <= 0:
		return usagef("--write-timeout %v: want more than 0", f.write)
	}
	opts := f.options()
	if err := opts.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

func (f *clientFlags) options() resp.Options {
	return resp.Options{
		MaxClients: f.clients, Databases: f.databases, Loops: f.loops, MaxBulk: int(f.bulk), MaxBuffers: int64(f.requests), MaxReplies: int64(f.replies),
		IdleTimeout: f.idle, WriteTimeout: f.write,
	}
}
