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

// maxAccess bounds the bytes of one operation: every fabric allows more.
const maxAccess = 1 << 30

// defaultServerTimeout is the default of Config.ServerTimeout, and of servers and the fabric.
const defaultServerTimeout = 3 * time.Second

// Config describes a cache. Capacity is the one field that must be set.
type Config struct {
	// Capacity in bytes, at least 4 KiB: addresses run from 0 to Capacity-1.
	Capacity int64
	// SLO is the service level that the manager chooses VMs and a configuration for.
	SLO SLO
	// Duration is how long the cache will be needed, in whole seconds. It allows spot VMs,
	// which are cheaper and may be reclaimed (R11). The cache is used until it is deleted,
	// also for longer. 0: until deleted.
	Duration time.Duration
	// RegionSize in bytes, a power of two from MinRegionSize. Default:
	// DefaultRegionSize, or less for a small cache, so that its last region
	// does not waste more than a quarter of it, and where VMs hold only smaller ones.
	RegionSize int64
	// Configuration of the data path. Zero: the manager chooses one that meets the SLO.
	Configuration Configuration
	// Cores is the most client threads that the manager may choose. Default: the
	// machine's processors.
	Cores int
	// Machine is where this process runs, as the manager's allocator names machines, such as a
	// node of Kubernetes: VMs are chosen by their distance from it. Default: not known.
	Machine string
	// CloudRegion is the cloud's region whose VMs are used. Default: the manager's.
	CloudRegion string
	// Transport is mem, shm, tcp or verbs. Default: the manager chooses.
	Transport string
	// FabricTLS secures the connections of the tcp transport, if the servers have
	// it too (server.Options), and calls to the control APIs of servers that are at
	// https. Default: none, and the certificates that the system trusts.
	FabricTLS *tls.Config
	// ServerTimeout is how long a server may leave a request unanswered before its
	// connection fails and pending requests end with ErrRegionUnavailable. A server that
	// then accepts no connection within two seconds is lost, unless it answers its control
	// API, a client thread still reads its memory, or this process lacks local resources.
	// A server that says that it does not lend the memory any more is lost at once. The
	// timeout applies to requests that need the server's process: batches, and over tcp
	// one-sided requests as well. Over shm and verbs one-sided requests continue while the
	// process is stopped. It also bounds how long a server may be silent while regions are
	// copied, and during Create. Default: 3 s.
	ServerTimeout time.Duration
	// Net is a network to model on top of the transport: "none", "rdma" (2.9 us
	// round trip, 100 Gbit/s, and the adapter of the Redy paper), "2.9us,100Gbit", or a model for each distance in
	// switches, "1:2.9us,100Gbit;3:4us,100Gbit". Options bound writes that are sent inline,
	// the outstanding reads of a connection, and the messages a second of all of them:
	// "2.9us,100Gbit,inline=172,reads=16,messages=200M". Empty: none.
	Net string
	// Logger receives messages for operators. Default: slog.Default().
	Logger *slog.Logger
	// OnEvent, if set, is called once for each event, on a goroutine of the cache. It must
	// not call Delete. Lost memory without a copy is not replaced before OnEvent has
	// returned for the event DataLost.
	OnEvent func(Event)
	// Progress, if set, is called about once a second while Create, or a later change of the
	// cache, waits for VMs to start. pending says what is waited for, why and for how long, a
	// line each; after the last VM, or an error, it is nil. Calls do not overlap. They are made
	// by the goroutine that waits: Create's caller or one of the cache. It goes on when
	// Progress returns, which must not call methods of the cache that change it. Default: what
	// is pending is logged.
	Progress func(pending []string)

	// File, if set, is read when the cache is created: its prefix of Capacity bytes
	// is what the cache holds first; beyond its end the cache holds zeros (R2).
	File string
	// Recover, if set, reads a copy of the cache (A49): it fills dst with the bytes at a
	// cache address whose memory was lost. Its ctx ends when a more urgent operation waits,
	// such as leaving a reclaimed VM; it is called again afterwards. Without it, regions
	// that were never written are read from File again, and all others become zeros.
	Recover func(ctx context.Context, dst []byte, addr int64) error
	// StrictOrder makes all requests of a session execute in the order of their calls (R41):
	// a request to another VM than the last one waits until that has ended. By default only
	// requests on overlapping bytes are ordered (A4).
	StrictOrder bool
	// WaitForLost makes requests to lost or unreachable memory wait until it answers again
	// or the cache is deleted (A46). By default they end with ErrRegionUnavailable. Requests
	// that are pending when memory is lost end with that error in any case, since their
	// outcome is unknown, as do calls that wait when Reconfigure, or a Reshape that moves
	// the whole cache, replaces the client threads. A Device ignores the option: its log has
	// the next tier. OnEvent must not wait for such a request.
	WaitForLost bool
	// RefuseBusy makes Migrate, Reshape and Reconfigure return ErrBusy at once while another
	// control operation runs (A36). By default they wait for it until their ctx ends. A
	// running one is preempted if a VM is reclaimed or lost, and runs again afterwards.
	RefuseBusy bool
	// Late makes Create and Open return a cache without memory if the manager does not answer
	// within 10 s, or no VM has room. All of it is lost, as if its VMs had failed, until the
	// manager has memory (Restored). Its regions are never smaller than RegionSize. Errors
	// that are not temporary, such as a refused token, are still returned.
	Late bool
	// Linger is how long the manager keeps the cache, whose memory is paid for meanwhile, after
	// this client has ended without Delete and its lease as well, so that another client can take
	// it up. In whole milliseconds. The manager grants no more than its maximum: see
	// [Cache.Linger]. Default: 0, a cache ends with its lease.
	Linger time.Duration
	// Attach makes Create and Open take up a cache that exists instead of allocating one. The
	// former client is fenced out: when they return, none of its accesses changes the memory any
	// more. The cache keeps its capacity, which must be Capacity unless that is 0, and what
	// RegionSize, SLO, Configuration, Duration, CloudRegion, Transport and File say otherwise. Its
	// regions hold what they held, except those that are lost: their server has ended or does not
	// answer, or the former client ended while they moved. These are replaced as after any loss.
	//
	// The error is ErrNoCache if there is no such cache. It is ErrTaken if a third client has taken
	// the cache up meanwhile. After another error the cache may have been taken from the former
	// client; Create may be called again. Late does not apply. Default: a new cache.
	Attach *Identity
	// Companion, if set, and if Linger is, is where Open keeps what a later process needs to take
	// the cache up, and checks what an earlier one has kept. See [Companion]. A part in 2000 of the
	// capacity then describes the rest. Without Linger, Open deletes the cache that an earlier
	// process has left. Create ignores it.
	Companion Companion
	// MustTakeUp makes Open return ErrNotTakenUp if it cannot take up the cache that an earlier process
	// has left, in place of creating one. Create ignores it.
	MustTakeUp bool
	// Journal keeps an eighth of the capacity, at most 32 MiB, for [Device.Journal] of Open.
	Journal bool
	// Migration says how regions move between VMs.
	Migration Migration
	// Window is the time over which the cache measures what it gives, for the manager's judgement of
	// the SLO, in whole milliseconds. Default: 5 s.
	Window time.Duration
	// Tuning switches optimisations off.
	Tuning Tuning

	longest       int64                                 // most bytes of one access; smaller in tests
	network       fabric.Network                        // parsed Net
	largestRegion int64                                 // of those chosen by default; 0: DefaultRegionSize
	lease         time.Duration                         // from the manager; 0: none
	lingers       time.Duration                         // from the manager
	suspicion     time.Duration                         // how long a suspected server is asked often
	reconnect     time.Duration                         // reconnectTimeout, except in tests that wait for a loss
	threadConns   int                                   // maxThreadConns, except in tests
	control       *http.Client                          // calls the servers' control APIs
	wrap          func(fabric.Provider) fabric.Provider // tests put faults before the transport
}

// Behind returns the configuration of a cache whose connections pass through what wrap returns, such
// as a network that a measurement changes.
func (c Config) Behind(wrap func(fabric.Provider) fabric.Provider) Config {
	c.wrap = wrap
	return c
}

// SLO is the service level of reads, writes or both (3.3). Zero fields are unconstrained.
type SLO struct {
	MaxLatency    time.Duration // average
	MinThroughput float64       // operations a second
	RecordSize    int           // bytes; required with a bound, unless there is a Configuration
	Operations    Operations    // that the bounds apply to
}

// Operations are the operations that an SLO applies to. Others are unconstrained (A14).
type Operations int

// Operations of an SLO.
const (
	ReadsAndWrites = Operations(managerv1.Slo_OPERATIONS_UNSPECIFIED) // alike
	ReadsOnly      = Operations(managerv1.Slo_OPERATIONS_READS)
	WritesOnly     = Operations(managerv1.Slo_OPERATIONS_WRITES)
)

// Tuning switches off the optimizations of the paper's section 4.3 one by one, to measure
// them (R50). Zero: all are on. A queue depth of 1 is set by the Configuration.
type Tuning struct {
	// Locks replaces the lock-free queue between callers and client threads by one with a
	// lock.
	Locks bool
	// TwoSided sends batches of one to server threads, instead of one-sided access. It needs
	// server threads.
	TwoSided bool
	// Pinning pins client threads to processors of the NUMA node on which the cache was
	// created.
	Pinning Pinning
}

// Check returns an error if a configuration does not allow the tuning.
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
// A client thread of the callback API has at most b·q pending requests, also with b = 1. A
// Session has its own depth, up to MaxDepth: q bounds its pending batches per connection, but
// not its one-sided requests, which use no slot of a ring at the server.
type Configuration struct {
	ClientThreads int // c: threads behind the callback API; and sessions that the application will use
	ServerThreads int // s: threads of each cache server; 0: one-sided only
	BatchSize     int // b: requests in a batch; 1: one-sided reads and writes
	QueueDepth    int // q: pending batches of a connection; with b = 1 pending requests of a client thread
}

// Check returns an error if Create refuses the configuration before it asks the manager.
func (c Config) Check() error { return c.ensureDefaults() }

func (c *Config) ensureDefaults() error {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.RegionSize = cmp.Or(c.RegionSize, min(defaultRegionSize(c.Capacity), cmp.Or(c.largestRegion, DefaultRegionSize)))
	if err := checkCapacity(c.Capacity, c.RegionSize); err != nil {
		return err
	}
	c.longest = cmp.Or(c.longest, maxAccess)
	if c.Window = cmp.Or(c.Window, windowLength); c.Window < leastWindow || c.Window > mostWindow {
		return fmt.Errorf("redytier: window of %v: want %v to %v", c.Window, leastWindow, mostWindow)
	}
	c.threadConns = cmp.Or(c.threadConns, maxThreadConns)
	switch {
	case c.control != nil: // set by a test
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
	switch {
	case c.Cores < 0:
		return fmt.Errorf("redytier: Config.Cores %d, want 0 or more", c.Cores)
	case c.ServerTimeout < 0:
		return fmt.Errorf("redytier: Config.ServerTimeout %v, want 0 or more", c.ServerTimeout)
	case c.Linger < 0:
		return fmt.Errorf("redytier: Config.Linger %v, want 0 or more", c.Linger)
	case c.Duration < 0 || c.Migration.Parallel < 0 || c.Migration.BytesPerSecond < 0:
		return fmt.Errorf("redytier: Config.Duration %v, Migration %+v: want nothing negative", c.Duration, c.Migration)
	case c.Migration.Parallel > maxParallel:
		return fmt.Errorf("redytier: Config.Migration.Parallel %d, want at most %d", c.Migration.Parallel, maxParallel)
	}
	c.ServerTimeout = cmp.Or(c.ServerTimeout, defaultServerTimeout)
	c.suspicion = cmp.Or(c.suspicion, defaultSuspicion)
	c.reconnect = cmp.Or(c.reconnect, reconnectTimeout)
	if err := c.SLO.check(); err != nil || c.Configuration == (Configuration{}) {
		return err
	}
	return c.allows(c.Configuration, c.SLO.RecordSize)
}

// allows returns an error if the cache cannot have a configuration.
func (c *Config) allows(configuration Configuration, recordSize int) error {
	if err := configuration.Check(recordSize); err != nil {
		return err
	}
	return c.Tuning.Check(configuration)
}

// defaultRegionSize is the largest power of two up to DefaultRegionSize that is
// at most a quarter of the capacity.
func defaultRegionSize(capacity int64) int64 {
	size := int64(1) << (bits.Len64(uint64(max(capacity, MinRegionSize))) - 3) // ensureDefaults refuses a lower capacity
	return min(max(size, MinRegionSize), DefaultRegionSize)
}

func checkCapacity(capacity, regionSize int64) error {
	switch {
	case capacity < MinRegionSize || capacity > maxCapacity:
		return fmt.Errorf("redytier: capacity %d, want %d to %d", capacity, MinRegionSize, maxCapacity)
	case regionSize < MinRegionSize || regionSize&(regionSize-1) != 0:
		return fmt.Errorf("redytier: region size %d, want a power of two from %d", regionSize, MinRegionSize)
	case (capacity-1)/regionSize >= maxRegions:
		return fmt.Errorf("redytier: %d bytes in regions of %d: more than %d regions", capacity, regionSize, maxRegions)
	}
	return nil
}

// Check returns an error if no manager allows the configuration. recordSize is that of the
// SLO, which bounds batches; 0: none.
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

// client describes this client for the manager's choice of a configuration.
func (c *Config) client() *managerv1.Client {
	return &managerv1.Client{
		Cores: uint32(cmp.Or(c.Cores, runtime.NumCPU())), QueueDepth: redywire.MaxQueueDepth, Network: c.network.String(),
		Machine: c.Machine,
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
