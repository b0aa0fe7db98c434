package resp

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// Options configure a server. The zero value is useful.
type Options struct {
	// MaxClients is the most concurrent connections; further ones get an error and are closed.
	// Default 10,000.
	MaxClients int
	// MaxBulk is the most bytes of one argument, and so of a value. The store refuses a value
	// that a page of its log cannot hold. Default 16 MiB.
	MaxBulk int
	// MaxRequest is the most bytes of one command with all its arguments.
	// Default 4 times MaxBulk.
	MaxRequest int
	// MaxBuffers is the most bytes that all connections together hold of incomplete commands,
	// beyond a small buffer each, and of input that is read ahead while clients do not read
	// their replies; the latter takes at most half. Default 512 MiB, and no less than
	// MaxRequest needs.
	MaxBuffers int64
	// MaxReplies is the most bytes of unsent replies that all connections together hold,
	// beyond a small buffer each. At that limit, clients that do not read are disconnected
	// and large replies wait; if too many wait, more clients are disconnected. Default
	// 256 MiB.
	MaxReplies int64
	// Databases is the number of databases, up to MaxDatabases. A store that had more keeps the
	// keys of the others, hidden. Default 16.
	Databases int
	// Sessions is the most batches that run concurrently, each in a session of the store;
	// others wait. Commands that scan have other sessions. Default 64.
	Sessions int
	// Loops is the number of goroutines that share the connections with simple commands, which
	// costs less than one goroutine per connection. Default: the number of processors less
	// one. Negative: none.
	Loops int
	// WriteTimeout is the time after which a client that does not read its replies is
	// disconnected. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is the time after which a client that sends nothing is disconnected.
	// Default 0: no limit.
	IdleTimeout time.Duration
	// Durability is the guarantee of replies to writes. Default DurabilityNone.
	Durability Durability
	// ProtectedMode refuses clients from other machines, unless clients must authenticate.
	ProtectedMode bool
	// Users authenticates clients and decides on their permissions. Default: everything is
	// allowed.
	Users Users
	// Cache makes the server a cache, with a store that has its Eviction. Default: the server keeps
	// all keys.
	Cache *CacheMode
	// Settings are settings of CONFIG GET and CONFIG SET besides the server's own.
	Settings []Setting
	// Shutdown is called when a client sends SHUTDOWN. It makes the program end the server,
	// and must return at once. Default: the command fails.
	Shutdown func()
	// Logger receives messages for an operator. Default: slog.Default().
	Logger *slog.Logger

	// releaseAfter is the time after which an idle connection frees large buffers. Tests
	// shorten it.
	releaseAfter time.Duration
	// lookEvery is the time between two looks whether a client whose command scans has gone. Tests
	// shorten it.
	lookEvery time.Duration
	// packedMost is the most bytes of a packed collection. Tests lower it.
	packedMost int
}

// Defaults of Options.
const (
	DefaultMaxClients   = 10_000
	DefaultMaxBulk      = 16 << 20
	DefaultMaxBuffers   = 512 << 20
	DefaultDatabases    = 16
	DefaultSessions     = 64
	DefaultMaxReplies   = 256 << 20
	DefaultWriteTimeout = 30 * time.Second
)

// MaxMaxBulk is the upper limit of Options.MaxBulk: no record of a store is larger.
const MaxMaxBulk = 32 << 20

// maxRequest is chosen so that twice an offset in a command fits 32 bits.
const maxRequest = 1 << 29

// Check returns the error that Serve would return for the options.
func (o Options) Check() error { return o.ensureDefaults() }

// ensureDefaults sets defaults and checks the options.
func (o *Options) ensureDefaults() error {
	o.MaxClients = cmp.Or(o.MaxClients, DefaultMaxClients)
	o.MaxBulk = cmp.Or(o.MaxBulk, DefaultMaxBulk)
	o.MaxRequest = cmp.Or(o.MaxRequest, min(4*max(o.MaxBulk, maxLine), maxRequest))
	o.MaxBuffers = cmp.Or(o.MaxBuffers, max(DefaultMaxBuffers, 2*int64(o.MaxRequest)))
	o.MaxReplies = cmp.Or(o.MaxReplies, DefaultMaxReplies)
	o.Databases = cmp.Or(o.Databases, DefaultDatabases)
	o.Sessions = cmp.Or(o.Sessions, DefaultSessions)
	o.Loops = cmp.Or(o.Loops, max(runtime.GOMAXPROCS(0)-1, 1))
	o.Loops = max(o.Loops, 0)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.releaseAfter = cmp.Or(o.releaseAfter, time.Second)
	o.lookEvery = cmp.Or(o.lookEvery, 100*time.Millisecond)
	o.packedMost = cmp.Or(o.packedMost, packedMost)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	switch {
	case o.MaxClients < 1:
		return fmt.Errorf("resp: Options.MaxClients %d, want 1 or more", o.MaxClients)
	case o.MaxBulk < 1 || o.MaxBulk > MaxMaxBulk:
		return fmt.Errorf("resp: Options.MaxBulk %d, want 1 to %d bytes", o.MaxBulk, MaxMaxBulk)
	case o.MaxRequest < max(o.MaxBulk, maxLine) || o.MaxRequest > maxRequest:
		return fmt.Errorf("resp: Options.MaxRequest %d, want %d to %d bytes", o.MaxRequest, max(o.MaxBulk, maxLine), maxRequest)
	case o.MaxBuffers < 2*int64(o.MaxRequest):
		return fmt.Errorf("resp: Options.MaxBuffers %d: a command of %d bytes needs twice its size", o.MaxBuffers, o.MaxRequest)
	case o.MaxReplies < leastReplies:
		return fmt.Errorf("resp: Options.MaxReplies %d, want %d bytes or more", o.MaxReplies, leastReplies)
	case o.Databases < 1 || o.Databases > MaxDatabases:
		return fmt.Errorf("resp: Options.Databases %d, want 1 to %d", o.Databases, MaxDatabases)
	case o.Sessions < 1:
		return fmt.Errorf("resp: Options.Sessions %d, want 1 or more", o.Sessions)
	case o.WriteTimeout < 0 || o.IdleTimeout < 0:
		return fmt.Errorf("resp: Options.WriteTimeout %v, IdleTimeout %v: want 0 or more", o.WriteTimeout, o.IdleTimeout)
	case o.Durability >= durabilities:
		return fmt.Errorf("resp: Options.Durability %v, want none, everysec or always", o.Durability)
	}
	return nil
}
