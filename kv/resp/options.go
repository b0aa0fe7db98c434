package resp

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// Options bound what clients may use. The zero value is a good one.
type Options struct {
	// MaxClients is how many connections are served at once; more are told so
	// and closed. Default 10,000.
	MaxClients int
	// MaxBulk is the most bytes of one argument, and so of a value. What a page
	// of the store's log cannot hold is refused by the store. Default 16 MiB.
	MaxBulk int
	// MaxRequest is the most bytes of one command with all its arguments.
	// Default 4 times MaxBulk.
	MaxRequest int
	// MaxBuffers is the most bytes that all connections together hold of
	// commands that have not arrived whole, beyond a small buffer for each, and of what
	// clients send while they leave their replies unread: of this, at most half.
	// Default 512 MiB, and no less than MaxRequest needs.
	MaxBuffers int64
	// MaxReplies is the most bytes of replies that all connections together hold,
	// beyond a small buffer for each, while their clients take them. Where there is no
	// room, clients that do not take theirs are disconnected and large replies wait;
	// where too many wait, more clients are disconnected. Default 256 MiB.
	MaxReplies int64
	// Sessions is how many batches are carried out at once, each in a session
	// of the store; others wait. Default 64.
	Sessions int
	// Loops is how many goroutines serve connections that send plain commands, which
	// costs less than a goroutine for each. Default: as many as the program has
	// processors, but one. Negative: none.
	Loops int
	// WriteTimeout is how long a client may leave its replies unread before it
	// is disconnected. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a client may send nothing before it is disconnected.
	// Default 0: for ever.
	IdleTimeout time.Duration
	// Durability is what the reply to a write promises. Default DurabilityNone.
	Durability Durability
	// ProtectedMode turns away clients that do not come from this machine, unless
	// clients have to show who they are.
	ProtectedMode bool
	// Users decides who may do what. Default: everybody may do everything.
	Users Users
	// Settings are what CONFIG GET and CONFIG SET know beside the server's own.
	Settings []Setting
	// Shutdown is called when a client sends SHUTDOWN: it has the program end the
	// server, and returns at once. Default: that command fails.
	Shutdown func()
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger

	// releaseAfter is how long a connection waits for its client with large
	// buffers. Tests have less patience.
	releaseAfter time.Duration
}

// Defaults of Options.
const (
	DefaultMaxClients   = 10_000
	DefaultMaxBulk      = 16 << 20
	DefaultMaxBuffers   = 512 << 20
	DefaultSessions     = 64
	DefaultMaxReplies   = 256 << 20
	DefaultWriteTimeout = 30 * time.Second
)

// MaxMaxBulk bounds Options.MaxBulk: no record of a store is larger.
const MaxMaxBulk = 32 << 20

// maxRequest keeps positions in a command, and twice as much, within 32 bits.
const maxRequest = 1 << 29

// Check says what is wrong with the options, as Serve would.
func (o Options) Check() error { return o.ensureDefaults() }

// ensureDefaults fills in what is unset and checks the rest.
func (o *Options) ensureDefaults() error {
	if o.MaxClients == 0 {
		o.MaxClients = DefaultMaxClients
	}
	if o.MaxBulk == 0 {
		o.MaxBulk = DefaultMaxBulk
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = min(4*max(o.MaxBulk, maxLine), maxRequest)
	}
	if o.MaxBuffers == 0 {
		o.MaxBuffers = max(DefaultMaxBuffers, 2*int64(o.MaxRequest))
	}
	if o.MaxReplies == 0 {
		o.MaxReplies = DefaultMaxReplies
	}
	if o.Sessions == 0 {
		o.Sessions = DefaultSessions
	}
	if o.Loops == 0 {
		o.Loops = max(runtime.GOMAXPROCS(0)-1, 1)
	}
	if o.Durability == DurabilityAlways {
		o.Loops = 0 // every reply to a write waits
	}
	o.Loops = max(o.Loops, 0)
	if o.WriteTimeout == 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.releaseAfter == 0 {
		o.releaseAfter = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.MaxClients < 1:
		return fmt.Errorf("resp: at most %d clients", o.MaxClients)
	case o.MaxBulk < 1 || o.MaxBulk > MaxMaxBulk:
		return fmt.Errorf("resp: arguments of at most %d bytes, want 1 to %d", o.MaxBulk, MaxMaxBulk)
	case o.MaxRequest < max(o.MaxBulk, maxLine) || o.MaxRequest > maxRequest:
		return fmt.Errorf("resp: commands of at most %d bytes, want %d to %d", o.MaxRequest, max(o.MaxBulk, maxLine), maxRequest)
	case o.MaxBuffers < 2*int64(o.MaxRequest):
		return fmt.Errorf("resp: buffers of at most %d bytes: a command of %d needs twice its size", o.MaxBuffers, o.MaxRequest)
	case o.MaxReplies < leastReplies:
		return fmt.Errorf("resp: replies of at most %d bytes, want %d or more", o.MaxReplies, leastReplies)
	case o.Sessions < 1:
		return fmt.Errorf("resp: %d sessions", o.Sessions)
	case o.WriteTimeout < 0 || o.IdleTimeout < 0:
		return fmt.Errorf("resp: write timeout %v, idle timeout %v", o.WriteTimeout, o.IdleTimeout)
	case o.Durability >= durabilities:
		return fmt.Errorf("resp: %v", o.Durability)
	}
	return nil
}
