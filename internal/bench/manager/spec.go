package manager

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/bench"
)

// Spec says what is measured.
type Spec struct {
	VMs         int
	Caches      int
	Clients     int           // processes that the caches belong to
	Connections int           // that carry the beats of VMs and clients
	Heartbeat   time.Duration // interval of the beats of a VM, and of a cache
	Callers     int           // that allocate at once
	Rate        float64       // allocations a second of the phase paced
	Catalog     string
	Duration    time.Duration // of each phase without an end of its own
	Prices      bool          // each VM has a price of its own; else it has none
	Watches     bool          // each cache is watched all the time; else only those of the phase rack
	// Tokens are the secrets of the tokens that the manager knows: the first is an operator's,
	// and each connection has one with the roles server and client. Empty: it knows none.
	Tokens []string
	// TLS is for connections to the manager; nil: they have none.
	TLS *tls.Config
	// Start starts a manager that listens at an address, 127.0.0.1:0 for a free port.
	Start func(ctx context.Context, listen string) (*bench.Child, error)
	// Standby says that several managers can use the catalog, which also outlives them;
	// Durable, that it outlives a manager.
	Standby, Durable bool
}

// MakeTokens sets Tokens, and returns the file of tokens for the manager.
func (s *Spec) MakeTokens() string {
	s.Tokens = []string{rand.Text()}
	var file strings.Builder
	fmt.Fprintf(&file, "operator operator never %s\n", s.Tokens[0])
	for i := range s.Connections {
		s.Tokens = append(s.Tokens, rand.Text())
		fmt.Fprintf(&file, "connection-%d server,client never %s\n", i, s.token(i))
	}
	return file.String()
}

// token returns the token of a connection, from 0, and the operator's for -1.
func (s *Spec) token(connection int) string {
	if len(s.Tokens) == 0 {
		return ""
	}
	return s.Tokens[1+connection]
}

// maxPlayers bounds the VMs, and the caches.
const maxPlayers = 60_000

// Check reports an invalid spec.
func (s *Spec) Check() error {
	switch {
	case s.VMs < 1 || s.VMs > maxPlayers || s.Caches < 1 || s.Caches > maxPlayers:
		return fmt.Errorf("%d VMs, %d caches: want 1 to %d of each", s.VMs, s.Caches, maxPlayers)
	case s.Clients < 1 || s.Clients > s.Caches:
		return fmt.Errorf("%d clients: want 1 to %d, the number of caches", s.Clients, s.Caches)
	case s.Connections < 1 || s.Callers < 1:
		return fmt.Errorf("%d connections, %d callers: want at least 1 of each", s.Connections, s.Callers)
	case !(s.Rate >= 1 && s.Rate <= 1e6):
		return fmt.Errorf("rate of %v: want 1 to 1e6 allocations a second", s.Rate)
	case len(s.Tokens) != 0 && len(s.Tokens) != 1+s.Connections:
		return fmt.Errorf("%d tokens for %d connections: want one more", len(s.Tokens), s.Connections)
	case s.Heartbeat < time.Millisecond || s.Heartbeat > time.Minute:
		return fmt.Errorf("heartbeat of %v: want 1ms to a minute", s.Heartbeat)
	case s.Duration < 100*time.Millisecond:
		return fmt.Errorf("duration of %v: want at least 100ms", s.Duration)
	}
	return nil
}
