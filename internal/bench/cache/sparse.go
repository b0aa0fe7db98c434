package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
)

// SparseSpec describes a cache on many sparse servers, of which almost nothing is written.
type SparseSpec struct {
	Transport  string
	Capacity   int64         // bytes
	RegionSize int64         // bytes
	Servers    int           // that lend the cache's memory
	Threads    int           // client threads of the callback API
	Sessions   int           // of the application
	Rounds     int           // moves of a region
	Lease      time.Duration // of the cache
	Log        *slog.Logger
}

// Defaults of a SparseSpec.
const (
	SparseThreads  = 30
	SparseSessions = 30
	SparseRounds   = 9
	// SparseLease is shorter than a manager's default, so that a cache that is not renewed
	// while it is made or used ends within a measurement.
	SparseLease = 5 * time.Second
)

// Regions returns the number of regions.
func (s *SparseSpec) Regions() int { return int(s.Capacity / s.RegionSize) }

// Check returns an error if the spec makes no sense.
func (s *SparseSpec) Check() error {
	switch {
	case s.RegionSize < redytier.MinRegionSize || s.Capacity < s.RegionSize || s.Capacity%s.RegionSize != 0:
		return fmt.Errorf("regions of %d bytes in a capacity of %d: want whole ones, of %d bytes or more", s.RegionSize, s.Capacity, redytier.MinRegionSize)
	case s.Servers < 2 || s.Regions() < 2*s.Servers-1:
		return fmt.Errorf("%d servers for %d regions: want 2 or more, a region for one and two or more for each other", s.Servers, s.Regions())
	case s.Threads < 1 || s.Threads > 1024 || s.Sessions < 1 || s.Sessions > 1024:
		return fmt.Errorf("%d client threads and %d sessions: want 1 to 1024", s.Threads, s.Sessions)
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	case s.Lease < time.Second:
		return fmt.Errorf("lease of %v: want at least 1s", s.Lease)
	}
	return nil
}

// SparseRow is the result. Its JSON form is one line.
type SparseRow struct {
	Transport  string  `json:"transport"`
	Capacity   int64   `json:"capacity_bytes"`
	RegionSize int64   `json:"region_bytes"`
	Regions    int     `json:"regions"`
	Servers    int     `json:"servers"`
	CreateS    float64 `json:"create_s"`
	// SessionMs is the median time to open another session, SessionReadMs that until its
	// first read has ended, SessionAllMs that until it has read from every VM.
	SessionMs     float64 `json:"session_ms"`
	SessionReadMs float64 `json:"session_read_ms"`
	SessionAllMs  float64 `json:"session_all_ms"`
	Threads       int     `json:"client_threads"`
	Sessions      int     `json:"sessions"`
	// QueuePairs are those that the client threads hold after each of them has read from every
	// VM, QueuePairsAll those that the sessions hold as well after they have.
	QueuePairs    int `json:"queue_pairs"`
	QueuePairsAll int `json:"queue_pairs_with_sessions"`
	// ClientRSS is the physical memory of the client's process with the client threads' queue
	// pairs; over mem it includes the servers. SessionBytes is what each session adds.
	ClientRSS    int64 `json:"client_rss_bytes"`
	SessionBytes int64 `json:"session_bytes"`
	ServersRSS   int64 `json:"servers_rss_bytes"` // of all servers; 0 over mem, or if unknown
	// PublishUs is the mean time from the publication of a table until all sessions have
	// it, while one thread reads with each of them in turn. PublishQuietUs is the median time of
	// such a turn without a publication.
	PublishUs      float64 `json:"publish_us"`
	PublishQuietUs float64 `json:"publish_quiet_us"`
	Publications   int     `json:"publications"`
	// Latencies of reads of other regions during a move, divided by those before and after it:
	// medians over the rounds. The moving region is written as a whole. If Apart is set, its two
	// servers have processors of their own.
	Rounds     int     `json:"rounds"`
	Apart      bool    `json:"apart"`
	MoveMs     float64 `json:"move_ms"`
	QuietP50Us float64 `json:"quiet_p50_us"`
	QuietP99Us float64 `json:"quiet_p99_us"`
	OthersMean float64 `json:"others_mean_ratio"`
	OthersP50  float64 `json:"others_p50_ratio"`
	OthersP99  float64 `json:"others_p99_ratio"`
	OthersP999 float64 `json:"others_p999_ratio"`
	// The same, divided by latencies while the process of those two servers makes a plain copy of as
	// many bytes in as much time, over a TCP connection if the transport is tcp; 0 over mem.
	OfCopyMean   float64 `json:"others_mean_of_copy"`
	OfCopyP50    float64 `json:"others_p50_of_copy"`
	OfCopyP99    float64 `json:"others_p99_of_copy"`
	LeaseS       float64 `json:"lease_s"`
	Leases       float64 `json:"leases_outlived"` // time from the cache's allocation to the end, in leases
	LeaseRenewed bool    `json:"lease_renewed"`   // it is the same cache, and no region was lost
}

// sparse is a measurement of a SparseSpec.
type sparse struct {
	*SparseSpec
	servers SparseServers
	cache   *redytier.Cache
	row     SparseRow
	vms     []sparseVM
	moves   int // index in vms of the VM with one region
}

// sparseVM is a VM of the cache, and an address on it.
type sparseVM struct {
	id   string
	addr int64
}

// SparseServers are the servers of ServeSparse.
type SparseServers struct {
	URL     string // of their manager
	CopyURL string // of plain copies, in the process of the servers between which a region moves; or empty
	PIDs    []int  // of their processes; none: this one
	Apart   bool   // as in SparseRow
}

// RunSparse measures a cache on servers.
func RunSparse(ctx context.Context, spec SparseSpec, servers SparseServers) (_ *SparseRow, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	m := &sparse{SparseSpec: &spec, servers: servers, row: SparseRow{
		Transport: spec.Transport, Capacity: spec.Capacity, RegionSize: spec.RegionSize, Regions: spec.Regions(), Servers: spec.Servers,
		Threads: spec.Threads, Sessions: spec.Sessions, LeaseS: spec.Lease.Seconds(), Rounds: spec.Rounds, Apart: servers.Apart,
	}}
	began := time.Now()
	m.cache, err = redytier.Create(ctx, access.Dial(servers.URL), redytier.Config{
		Capacity: spec.Capacity, RegionSize: spec.RegionSize, Transport: spec.Transport, Logger: spec.Log,
		Configuration: redytier.Configuration{ClientThreads: spec.Threads, BatchSize: 1, QueueDepth: 16},
	})
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	m.row.CreateS = time.Since(began).Seconds()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, m.cache.Delete(ctx))
	}()
	id := m.cache.ID()
	if err := errors.Join(m.measure(ctx), m.outlive(ctx, began.Add(leases*spec.Lease))); err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	m.row.Leases = time.Since(began).Seconds() / spec.Lease.Seconds()
	m.row.LeaseRenewed = m.cache.ID() == id && m.cache.Metrics().LostRegions == 0
	return &m.row, nil
}

func (m *sparse) measure(ctx context.Context) error {
	if err := m.findVMs(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{m.useThreads, m.useSessions, m.moveRegions} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, pid := range m.servers.PIDs {
		rss := rssOf(pid)
		if rss == 0 {
			m.row.ServersRSS = 0
			break
		}
		m.row.ServersRSS += rss
	}
	return nil
}

// leases is the least age of a cache at the end, in leases.
const leases = 2

// outlive waits until a time, and checks that the cache answers.
func (m *sparse) outlive(ctx context.Context, until time.Time) error {
	if !clock.Sleep(ctx, time.Until(until)) {
		return context.Cause(ctx)
	}
	s, err := m.cache.NewSession(1)
	if err != nil {
		return err
	}
	return errors.Join(m.readAll(ctx, s), s.Close())
}

// findVMs finds the VMs, and that of the region that moves: one of the last two servers.
func (m *sparse) findVMs() error {
	known := make(map[string]bool)
	for _, r := range m.cache.Regions() {
		if !known[r.VM] {
			known[r.VM] = true
			m.vms = append(m.vms, sparseVM{id: r.VM, addr: r.From})
		}
	}
	if len(m.vms) != m.Servers {
		return fmt.Errorf("the cache is on %d VMs, want %d", len(m.vms), m.Servers)
	}
	var moving []int
	for i, vm := range m.vms {
		if vm.id == serverID(m.Servers-1) || vm.id == serverID(m.Servers) {
			moving = append(moving, i)
		}
	}
	if len(moving) != 1 {
		return fmt.Errorf("the two servers between which a region moves lend %d regions, want one", len(moving))
	}
	m.moves = moving[0]
	return nil
}

// resident returns the memory of this process that only it uses and all of it, after a garbage
// collection.
func resident() (private, all int64) {
	debug.FreeOSMemory()
	return mem.Private(), mem.Resident()
}

// rssOf returns the physical memory of a process in bytes; 0 if unknown.
func rssOf(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var virtual, pages int64
	if n, _ := fmt.Sscan(string(text), &virtual, &pages); n < 2 {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// SparseColumns are the columns of a table of rows.
func SparseColumns() []bench.Column[SparseRow] {
	type row = SparseRow
	return []bench.Column[row]{
		bench.Format("transport", "%s", func(r *row) any { return r.Transport }),
		bench.Format("regions", "%d", func(r *row) any { return r.Regions }),
		bench.Format("servers", "%d", func(r *row) any { return r.Servers }),
		bench.Format("create s", "%.2f", func(r *row) any { return r.CreateS }),
		bench.Format("session ms", "%.3f", func(r *row) any { return r.SessionMs }),
		bench.Format("all VMs ms", "%.1f", func(r *row) any { return r.SessionAllMs }),
		bench.Format("queue pairs", "%d", func(r *row) any { return r.QueuePairs }),
		bench.Format("with sessions", "%d", func(r *row) any { return r.QueuePairsAll }),
		bench.Format("client MiB", "%.0f", func(r *row) any { return float64(r.ClientRSS) / (1 << 20) }),
		bench.Format("session KiB", "%.0f", func(r *row) any { return float64(r.SessionBytes) / (1 << 10) }),
		bench.Format("servers MiB", "%.0f", func(r *row) any { return float64(r.ServersRSS) / (1 << 20) }),
		bench.Format("publish us", "%.0f", func(r *row) any { return r.PublishUs }),
		bench.Format("of it reads", "%.0f", func(r *row) any { return r.PublishQuietUs }),
		bench.Format("move ms", "%.1f", func(r *row) any { return r.MoveMs }),
		bench.Format("others mean", "%.3f", func(r *row) any { return r.OthersMean }),
		bench.Format("others p50", "%.3f", func(r *row) any { return r.OthersP50 }),
		bench.Format("others p99", "%.3f", func(r *row) any { return r.OthersP99 }),
		bench.Format("others p99.9", "%.3f", func(r *row) any { return r.OthersP999 }),
		bench.Format("mean of copy", "%.3f", func(r *row) any { return r.OfCopyMean }),
		bench.Format("p50 of copy", "%.3f", func(r *row) any { return r.OfCopyP50 }),
		bench.Format("p99 of copy", "%.3f", func(r *row) any { return r.OfCopyP99 }),
		bench.Format("apart", "%t", func(r *row) any { return r.Apart }),
		bench.Format("leases", "%.1f", func(r *row) any { return r.Leases }),
		bench.Format("renewed", "%t", func(r *row) any { return r.LeaseRenewed }),
	}
}
