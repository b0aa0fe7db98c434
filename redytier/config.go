package redytier

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/http"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// Region sizes in bytes. A cache's regions are all of one size, a power of two;
// MinRegionSize is the least capacity as well.
const (
	DefaultRegionSize = 1 << 30
	MinRegionSize     = 4 << 10
)

// maxRegions bounds a cache's region table, maxCapacity its addresses.
const (
	maxRegions  = 1 << 20
	maxCapacity = 1 << 48
)

// maxAccess is how much of a request goes to a connection at a time: less than any
// fabric takes as one operation.
const maxAccess = 1 << 30

// defaultServerTimeout is Config.ServerTimeout by default, as it is that of servers and
// of the fabric.
const defaultServerTimeout = 3 * time.Second

// Config describes a cache. Capacity is the one field that must be set.
type Config struct {
	// Capacity in bytes, at least 4 KiB: addresses run from 0 to Capacity-1.
	Capacity int64
	// SLO is what the manager is asked to keep to.
	SLO SLO
	// Duration is how long the cache is likely to be needed, in whole seconds, so
	// that spot VMs can be used, which are cheaper and may be taken back (R11); 0:
	// until deleted.
	Duration time.Duration
	// RegionSize in bytes, a power of two from MinRegionSize. Default:
	// DefaultRegionSize, or less for a small cache, so that its last region
	// does not waste more than a quarter of it, and where VMs hold only smaller ones.
	RegionSize int64
	// Configuration of the data path. Zero: the manager chooses what meets the SLO.
	Configuration Configuration
	// Cores is the most client threads that the manager may choose. Default: the
	// machine's processors.
	Cores int
	// CloudRegion is where the client is: of the cloud's regions, the one whose VMs it
	// is given. Default: the manager's.
	CloudRegion string
	// Transport is mem, shm, tcp or verbs. Default: the manager chooses.
	Transport string
	// FabricTLS secures the connections of the tcp transport, if the servers have
	// it too (server.Options), and calls to the control APIs of servers that are at
	// https. Default: none, and the certificates that the system trusts.
	FabricTLS *tls.Config
	// ServerTimeout is how long a server may leave a request unanswered before its
	// connection is given up: what was under way ends with ErrRegionUnavailable, and a
	// server that does not let itself be connected to again within two seconds is lost,
	// unless it answers its control API, or this process lacks what a connection takes.
	// It bounds what needs the server's process: batches, over any transport, and over
	// tcp, where it is the longest silence of a server (its answers, or nothing else,
	// count as a sign of life), one-sided requests as well. Over shm and verbs these go
	// on though the process be stopped. It bounds the copying of regions and the
	// server's part in Create, too, by how long it answers nothing at all. Default: 3 s.
	ServerTimeout time.Duration
	// Net is a network to model on top of the transport: "none", "rdma" (2.9 us
	// round trip, 100 Gbit/s), "2.9us,100Gbit", or a model for each distance in
	// switches, "1:2.9us,100Gbit;3:4us,100Gbit". Empty: none.
	Net string
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger
	// OnEvent, if set, is told what happens to the cache's VMs, each thing
	// once, on a goroutine of the cache's own. It must not call Delete. Memory of which
	// nobody has a copy is not replaced, nor another VM left, before it has returned
	// from DataLost.
	OnEvent func(Event)

	// File, if set, is read when the cache is created: its prefix of Capacity bytes
	// is what the cache holds first; beyond its end the cache holds zeros (R2).
	File string
	// Recover, if set, has a copy of the cache (A49): it fills dst with the bytes at
	// a cache address when their memory was lost. Its ctx ends where something more urgent
	// is to be done, such as to leave a VM that is reclaimed; it is asked again then. Without it, regions that were
	// never written come from File again, and all others come back as zeros.
	Recover func(ctx context.Context, dst []byte, addr int64) error
	// StrictOrder makes all requests of a session execute in the order of their
	// calls (R41), also across VMs: one that goes to another VM than the last waits
	// until that has ended. By default only requests on overlapping bytes do (A4).
	StrictOrder bool
	// WaitForLost has requests to memory that is lost, or out of reach, wait until it
	// answers again or the cache is deleted (A46). By default they end with
	// ErrRegionUnavailable, as does what was under way when it was lost, whose outcome
	// is unknown, under this option, too; and so do calls that wait when Reconfigure, or
	// a Reshape that moves the whole cache, replaces the client threads. A Device does without: its
	// log has the next tier. OnEvent must not wait for such a request.
	WaitForLost bool
	// RefuseBusy has Migrate, Reshape and Reconfigure return ErrBusy at once while
	// another of them runs, or the cache replaces or leaves a VM by itself (A36). By
	// default they wait for it, until their ctx ends. One that has begun gives way to a VM
	// that is reclaimed or lost, and goes on by itself afterwards.
	RefuseBusy bool
	// Late has Create and Open return a cache though there is none to be had now: the
	// manager does not answer within 10 s, or no VM has room. All its memory is lost then,
	// as if its VMs had failed, until the manager has some (Restored). Its regions are
	// never smaller than RegionSize. An error that does not go away by itself, such as a
	// token that the manager refuses, is returned all the same.
	Late bool
	// Migration says how regions move between VMs.
	Migration Migration
	// Tuning switches optimisations off.
	Tuning Tuning

	longest   int64                                 // most bytes of one access; tests make it small
	network   fabric.Network                        // what Net says
	lease     time.Duration                         // what the manager says; 0: none
	suspicion time.Duration                         // how long a server that the manager does not hear is asked often
	control   *http.Client                          // calls the servers' control APIs
	wrap      func(fabric.Provider) fabric.Provider // tests put faults before the transport
}

// SLO is what an application wants of reads and of writes (3.3), or of one of both.
// Zero fields ask for nothing.
type SLO struct {
	MaxLatency    time.Duration // average
	MinThroughput float64       // operations a second
	RecordSize    int           // bytes; needed with one of both, unless a Configuration is given
	Operations    Operations    // that the bounds are of
}

// Operations says what an SLO is of. Others are unconstrained (A14).
type Operations int

// What an SLO may be of.
const (
	ReadsAndWrites = Operations(managerv1.Slo_OPERATIONS_UNSPECIFIED) // alike
	ReadsOnly      = Operations(managerv1.Slo_OPERATIONS_READS)
	WritesOnly     = Operations(managerv1.Slo_OPERATIONS_WRITES)
)

// Tuning switches off what section 4.3 of the paper adds to the data path, one by
// one, to measure what each is worth (R50). Zero: all is on. A queue depth of 1 is a
// matter of the Configuration.
type Tuning struct {
	// Locks has callers hand their requests to client threads by a queue with a
	// lock, instead of without one.
	Locks bool
	// TwoSided sends batches of one to a server thread, too, instead of reading and
	// writing the server's memory. It takes server threads.
	TwoSided bool
	// Pinning says whether client threads stay on one processor, on the NUMA node
	// on which the cache was created.
	Pinning Pinning
}

// Check refuses what a configuration cannot do.
func (t Tuning) Check(c Configuration) error {
	if t.TwoSided && c.ServerThreads == 0 {
		return errors.New("redytier: two-sided batches of one need server threads")
	}
	return nil
}

// Pinning says whether to pin threads.
type Pinning int

// PinAuto pins on machines with several NUMA nodes and four or more processors.
const (
	PinAuto   = Pinning(affinity.Auto)
	PinAlways = Pinning(affinity.Always)
	PinNever  = Pinning(affinity.Never)
)

// Configuration is (c, s, b, q) of the paper's table 2.
//
// A client thread of the callback API has at most b·q requests under way, also with
// b = 1. A Session is made for a depth of its own, up to MaxDepth: q bounds its batches
// on a connection, but not its one-sided requests. A batch takes up a slot of rings,
// these take up nothing at the server; and a store keeps more reads under way than any
// ring has slots.
type Configuration struct {
	ClientThreads int // c: threads behind the callback API; and sessions that the application will use
	ServerThreads int // s: threads of each cache server; 0: one-sided only
	BatchSize     int // b: requests in a batch; 1: one-sided reads and writes
	QueueDepth    int // q: batches under way on a connection; with b = 1 one-sided requests of a client thread
}

func (c *Config) ensureDefaults() error {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Capacity < MinRegionSize || c.Capacity > maxCapacity {
		return fmt.Errorf("redytier: capacity %d, want %d to %d", c.Capacity, MinRegionSize, maxCapacity)
	}
	if c.RegionSize == 0 {
		c.RegionSize = defaultRegionSize(c.Capacity)
	}
	if err := checkRegionSize(c.RegionSize, c.Capacity); err != nil {
		return err
	}
	c.longest = cmp.Or(c.longest, maxAccess)
	switch {
	case c.control != nil: // a test's
	case c.FabricTLS != nil:
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = c.FabricTLS
		c.control = &http.Client{Transport: t}
	default:
		c.control = http.DefaultClient
	}
	if c.Net != "" {
		network, err := fabric.ParseNetwork(c.Net)
		if err != nil {
			return fmt.Errorf("redytier: %w", err)
		}
		c.network = network
	}
	if c.Cores < 0 {
		return fmt.Errorf("redytier: %d cores", c.Cores)
	}
	if c.ServerTimeout < 0 {
		return fmt.Errorf("redytier: server timeout %v", c.ServerTimeout)
	}
	c.ServerTimeout = cmp.Or(c.ServerTimeout, defaultServerTimeout)
	c.suspicion = cmp.Or(c.suspicion, defaultSuspicion)
	if c.Duration < 0 || c.Migration.Parallel < 0 || c.Migration.BytesPerSecond < 0 {
		return fmt.Errorf("redytier: negative duration %v or migration %+v", c.Duration, c.Migration)
	}
	if err := c.SLO.check(); err != nil {
		return err
	}
	if c.Configuration == (Configuration{}) {
		return nil
	}
	if err := c.Configuration.Check(c.SLO.RecordSize); err != nil {
		return err
	}
	return c.Tuning.Check(c.Configuration)
}

// defaultRegionSize is the largest power of two up to DefaultRegionSize that is
// at most a quarter of the capacity.
func defaultRegionSize(capacity int64) int64 {
	size := int64(1) << (bits.Len64(uint64(capacity)) - 3)
	return min(max(size, MinRegionSize), DefaultRegionSize)
}

func checkRegionSize(size, capacity int64) error {
	if size < MinRegionSize || size&(size-1) != 0 {
		return fmt.Errorf("redytier: region size %d, want a power of two from %d", size, MinRegionSize)
	}
	if (capacity-1)/size >= maxRegions {
		return fmt.Errorf("redytier: %d bytes in regions of %d: more than %d regions", capacity, size, maxRegions)
	}
	return nil
}

// Check refuses what no manager allows a cache whose SLO names a record size, which
// bounds batches; 0: it names none.
func (c Configuration) Check(recordSize int) error {
	if err := redywire.Configuration(c).Check(recordSize); err != nil {
		return fmt.Errorf("redytier: %w", err)
	}
	return nil
}

func (c Configuration) proto() *managerv1.Configuration {
	if c == (Configuration{}) {
		return nil
	}
	return &managerv1.Configuration{
		ClientThreads: uint32(c.ClientThreads), ServerThreads: uint32(c.ServerThreads),
		BatchSize: uint32(c.BatchSize), QueueDepth: uint32(c.QueueDepth),
	}
}

// client is what the manager's choice of a configuration depends on.
func (c *Config) client() *managerv1.Client {
	return &managerv1.Client{
		Cores: uint32(cmp.Or(c.Cores, runtime.NumCPU())), QueueDepth: redywire.MaxQueueDepth, Network: c.network.String(),
	}
}

func configurationOf(m *managerv1.Configuration) Configuration {
	return Configuration{
		ClientThreads: int(m.GetClientThreads()), ServerThreads: int(m.GetServerThreads()),
		BatchSize: int(m.GetBatchSize()), QueueDepth: int(m.GetQueueDepth()),
	}
}

func (s SLO) check() error {
	if s.MaxLatency < 0 || s.MinThroughput < 0 || s.RecordSize < 0 || s.Operations < ReadsAndWrites || s.Operations > WritesOnly {
		return fmt.Errorf("redytier: SLO %+v: want nothing negative, of reads, writes or both", s)
	}
	return nil
}

func (s SLO) proto() *managerv1.Slo {
	if s == (SLO{}) {
		return nil
	}
	return &managerv1.Slo{
		MaxLatencyUs:      float64(s.MaxLatency) / float64(time.Microsecond),
		MinThroughputMops: s.MinThroughput / 1e6,
		RecordSize:        uint32(s.RecordSize),
		Operations:        managerv1.Slo_Operations(s.Operations),
	}
}
