package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/redytier"
)

// useThreads has each client thread read from every VM.
func (m *sparse) useThreads(ctx context.Context) error {
	ended := make(chan error, m.Threads*len(m.vms))
	for range m.Threads { // handles are assigned to the threads in turn
		client := m.cache.NewClient()
		for _, vm := range m.vms {
			if err := client.Read(ctx, make([]byte, 8), vm.addr, func(_ int, err error) { ended <- err }); err != nil {
				return err
			}
		}
	}
	for range cap(ended) {
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("read by a client thread: %w", err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	m.row.QueuePairs = m.cache.Metrics().QueuePairs
	_, m.row.ClientRSS = resident()
	return nil
}

// useSessions opens the sessions and reads from every VM with each.
func (m *sparse) useSessions(ctx context.Context) (err error) {
	before, _ := resident()
	var sessions []*redytier.Session
	defer func() {
		for _, s := range sessions {
			err = errors.Join(err, s.Close())
		}
	}()
	var open, first, all []float64
	since := func(began time.Time) float64 { return time.Since(began).Seconds() * 1e3 }
	for range m.Sessions {
		began := time.Now()
		s, err := m.cache.NewSession(16)
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
		open = append(open, since(began))
		if err := read(ctx, s, m.vms[0].addr); err != nil {
			return err
		}
		first = append(first, since(began))
		if err := m.readAll(ctx, s); err != nil {
			return err
		}
		all = append(all, since(began))
	}
	m.row.SessionMs, m.row.SessionReadMs, m.row.SessionAllMs = bench.Median(open), bench.Median(first), bench.Median(all)
	m.row.QueuePairsAll = m.cache.Metrics().QueuePairs
	after, _ := resident()
	m.row.SessionBytes = (after - before) / int64(m.Sessions)
	return m.publish(ctx, sessions)
}

// publish moves a region while one thread reads with each session in turn.
func (m *sparse) publish(ctx context.Context, sessions []*redytier.Session) error {
	moved := make(chan error, 1)
	before := m.cache.Metrics()
	go func() { moved <- m.move(ctx) }()
	var quiet []float64
	for {
		began := time.Now()
		for _, s := range sessions {
			if err := read(ctx, s, m.vms[(m.moves+1)%len(m.vms)].addr); err != nil {
				return errors.Join(err, <-moved)
			}
		}
		quiet = append(quiet, time.Since(began).Seconds()*1e6)
		select {
		case err := <-moved:
			after := m.cache.Metrics()
			if m.row.Publications = int(after.Tables - before.Tables); m.row.Publications > 0 {
				m.row.PublishUs = (after.TableTime - before.TableTime).Seconds() * 1e6 / float64(m.row.Publications)
			}
			m.row.PublishQuietUs = bench.Median(quiet)
			return err
		default:
			runtime.Gosched()
		}
	}
}

// move moves the region that is alone on its VM to a VM without a region.
func (m *sparse) move(ctx context.Context) error {
	vm := &m.vms[m.moves]
	if err := m.cache.Migrate(ctx, vm.id); err != nil {
		return err
	}
	from := vm.id
	for _, r := range m.cache.Regions() {
		if r.From == vm.addr {
			vm.id = r.VM
		}
	}
	if vm.id == from {
		return fmt.Errorf("the region has not left VM %s", from)
	}
	return nil
}

// sparseQuiet is the least time of a round's reads before the move, and of those after it.
const sparseQuiet = 100 * time.Millisecond

// moveRegions moves a region several times while a thread reads others.
func (m *sparse) moveRegions(ctx context.Context) (err error) {
	s, err := m.cache.NewSession(16)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := fillRange(ctx, s, m.vms[m.moves].addr, m.RegionSize); err != nil {
		return err
	}
	if err := m.readAll(ctx, s); err != nil { // opens all connections
		return err
	}
	var took time.Duration
	pause := func() error { // both of a round together take as long as the last move
		clock.Sleep(ctx, max(took/2, sparseQuiet))
		return context.Cause(ctx)
	}
	move := func() error {
		began := time.Now()
		err := m.move(ctx)
		took = time.Since(began)
		return err
	}
	copying := func() error { return m.copyLikeAMove(ctx, took) }
	var times, p50, p99, overMean, over50, over99, over999, ofMean, of50, of99 []float64
	for range m.Rounds {
		quiet, moving, copied := newLatencies(), newLatencies(), newLatencies()
		err := m.readOthers(ctx, s, quiet, pause)
		if err == nil {
			err = m.readOthers(ctx, s, moving, move)
		}
		if err == nil && m.servers.CopyURL != "" {
			err = m.readOthers(ctx, s, copied, copying)
		}
		if err == nil {
			err = m.readOthers(ctx, s, quiet, pause)
		}
		if err != nil {
			return err
		}
		over := func(q float64) float64 { return float64(moving.ValueAtQuantile(q)) / float64(quiet.ValueAtQuantile(q)) }
		if copied.TotalCount() > 0 {
			of := func(q float64) float64 {
				return float64(moving.ValueAtQuantile(q)) / float64(copied.ValueAtQuantile(q))
			}
			ofMean, of50, of99 = append(ofMean, moving.Mean()/copied.Mean()), append(of50, of(50)), append(of99, of(99))
		}
		times = append(times, took.Seconds()*1e3)
		p50, p99 = append(p50, float64(quiet.ValueAtQuantile(50))/1e3), append(p99, float64(quiet.ValueAtQuantile(99))/1e3)
		overMean, over50 = append(overMean, moving.Mean()/quiet.Mean()), append(over50, over(50))
		over99, over999 = append(over99, over(99)), append(over999, over(99.9))
	}
	m.row.MoveMs, m.row.QuietP50Us, m.row.QuietP99Us = bench.Median(times), bench.Median(p50), bench.Median(p99)
	m.row.OthersMean, m.row.OthersP50 = bench.Median(overMean), bench.Median(over50)
	m.row.OthersP99, m.row.OthersP999 = bench.Median(over99), bench.Median(over999)
	if len(ofMean) > 0 {
		m.row.OfCopyMean, m.row.OfCopyP50, m.row.OfCopyP99 = bench.Median(ofMean), bench.Median(of50), bench.Median(of99)
	}
	return nil
}

func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute), 3) // nanoseconds
}

// readOthers reads from VMs other than the moving region's, in turn, until what happens meanwhile has
// ended.
func (m *sparse) readOthers(ctx context.Context, s *redytier.Session, latencies *hdrhistogram.Histogram, meanwhile func() error) error {
	over := make(chan error, 1)
	go func() { over <- meanwhile() }()
	for i := 0; ; i++ {
		vm := i % len(m.vms)
		if vm == m.moves {
			continue
		}
		began := time.Now()
		if err := read(ctx, s, m.vms[vm].addr); err != nil {
			return errors.Join(err, <-over)
		}
		if err := latencies.RecordValue(int64(time.Since(began))); err != nil {
			return errors.Join(err, <-over)
		}
		select {
		case err := <-over:
			return err
		default:
		}
	}
}

// readAll reads from every VM, one after the other.
func (m *sparse) readAll(ctx context.Context, s *redytier.Session) error {
	for _, vm := range m.vms {
		if err := read(ctx, s, vm.addr); err != nil {
			return fmt.Errorf("VM %s: %w", vm.id, err)
		}
	}
	return nil
}

func read(ctx context.Context, s *redytier.Session, addr int64) error {
	var buf [8]byte
	if err := s.Read(buf[:], addr, 0); err != nil {
		return err
	}
	return await(ctx, s)
}

// await ends the session's one request.
func await(ctx context.Context, s *redytier.Session) error {
	if err := s.Submit(); err != nil {
		return err
	}
	var done [1]device.Completion
	for s.Poll(done[:]) == 0 {
		if err := s.Wait(ctx); err != nil {
			return err
		}
	}
	return done[0].Err
}
