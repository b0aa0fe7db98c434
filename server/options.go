package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/units"
)

// Options configure a server.
type Options struct {
	// Memory is the number of bytes to lend. Message rings come on top.
	Memory int64
	// RingMemory bounds the bytes of all message rings: 41 KiB for a connection
	// with batches of 64 and a queue depth of 4. A grant may use
	// enough for six connections per client thread, or for 64 if that is more.
	// One half is divided by server threads: a grant with one of 16 Cores is sure of a
	// 32nd part of RingMemory. The other half is for the grants that ask first.
	// Default: an eighth of Memory, at least 64 MiB.
	RingMemory int64
	// Cores bounds the server threads of all caches together. 0: one-sided
	// access only.
	Cores int
	// Transport is the fabric: mem, shm, tcp or verbs. Default: mem.
	Transport string
	// FabricAddr is the address that the fabric listens on, in the transport's form.
	// Default: the transport chooses.
	FabricAddr string
	// FabricTLS secures the connections of the tcp transport; clients need the
	// same in their redytier.Config. Default: none.
	FabricTLS *tls.Config
	// ClientTimeout is how long a client of the tcp transport may be silent before its
	// connections are closed. A client that resumes connects again. Default: 3 s.
	ClientTimeout time.Duration
	// Sparse lends memory of which little is written: memory comes in small pages, when it is
	// first written, and moving a region copies what was written. Memory may then be more
	// than the machine has. Default: memory is prepared for fast access after it was lent.
	Sparse bool
	// VM is the id of the server's VM. Terms of grants for another one are refused.
	// Default: not known, and not checked.
	VM string
	// ControlSecret is the secret behind the tokens of the control API, which the manager
	// issues. Required.
	ControlSecret string
	// Pinning says whether server threads stay on one processor each, on the NUMA
	// node on which the server was started. Default: PinAuto.
	Pinning Pinning
	// Logger receives messages for operators. Default: slog.Default().
	Logger *slog.Logger
}

// Pinning says whether to pin threads.
type Pinning = affinity.Mode

// PinAuto pins on machines with several NUMA nodes and four or more processors.
const (
	PinAuto   = affinity.Auto
	PinAlways = affinity.Always
	PinNever  = affinity.Never
)

func (o *Options) ensureDefaults() error {
	switch {
	case o.Memory <= 0:
		return fmt.Errorf("server: Options.Memory %d, want 1 byte or more", o.Memory)
	case o.Cores < 0:
		return fmt.Errorf("server: Options.Cores %d, want 0 or more", o.Cores)
	case o.ClientTimeout < 0:
		return fmt.Errorf("server: Options.ClientTimeout %v, want 0 or more", o.ClientTimeout)
	case o.ControlSecret == "":
		return errors.New("server: Options.ControlSecret is empty")
	case o.RingMemory < 0:
		return fmt.Errorf("server: Options.RingMemory %d, want 0 bytes or more", o.RingMemory)
	}
	o.Transport = cmp.Or(o.Transport, "mem")
	o.RingMemory = cmp.Or(o.RingMemory, max(o.Memory/8, 64<<20))
	o.Logger = cmp.Or(o.Logger, slog.Default()).With("component", "cacheserver",
		"transport", o.Transport, "memory", units.Size(o.Memory).String())
	return nil
}
