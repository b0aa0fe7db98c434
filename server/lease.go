package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// maxConnections bounds the queue pairs of one lease, and with them the memory
// that its rings take.
const maxConnections = 1024

// lease is what one cache has of this server. It is complete before it is
// published in Server.leases, and constant from then on but for its connections.
type lease struct {
	cache   string
	ticket  redywire.Ticket
	regions []fabric.Region
	memory  [][]byte // of the regions: what server threads read and write
	batch   int      // the most that a connection's rings may be made for,
	depth   int      // in requests and in slots
	threads []*thread
	counts  *counters // the server's

	ctx    context.Context // ends with the lease
	cancel context.CancelFunc
	// running counts the threads and the connections. It is raised under mu
	// and only while the lease is open, so that end can wait for it.
	running sync.WaitGroup

	mu          sync.Mutex
	open        bool
	connections int
	dialled     int // connections ever, to spread them over the threads
}

// newLease allocates the regions that m asks for and starts the threads. On
// failure nothing is left.
func (s *Server) newLease(ctx context.Context, m *serverv1.ConnectRequest) (*lease, error) {
	count, size := int(m.Regions), int64(m.RegionSize)
	l := &lease{
		cache: m.CacheId,
		batch: int(m.GetConfiguration().GetBatchSize()), depth: int(m.GetConfiguration().GetQueueDepth()),
		counts: &s.counts, open: true,
	}
	if _, err := rand.Read(l.ticket[:]); err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	for i := range count {
		err := ctx.Err()
		var region fabric.Region
		if err == nil {
			region, err = s.provider.Alloc(int(size))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("region %d of %d: %w", i, count, err), l.free())
		}
		l.regions = append(l.regions, region)
		l.memory = append(l.memory, region.Bytes())
	}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	for range threadsOf(m) {
		t := &thread{inbox: make(chan *conn)}
		l.threads = append(l.threads, t)
		l.running.Add(1)
		go func() {
			defer l.running.Done()
			t.run(l.ctx)
		}()
	}
	return l, nil
}

// admit counts a new connection in and gives it its thread: nil if the lease
// has none. The caller owes a leave.
func (l *lease) admit() (*thread, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil, errors.New("lease has ended")
	}
	if l.connections == maxConnections {
		return nil, fmt.Errorf("lease has %d connections already", maxConnections)
	}
	l.connections++
	l.dialled++
	l.running.Add(1)
	if len(l.threads) == 0 {
		return nil, nil
	}
	return l.threads[l.dialled%len(l.threads)], nil
}

func (l *lease) leave() {
	l.mu.Lock()
	l.connections--
	l.mu.Unlock()
	l.running.Done()
}

// end closes the connections, stops the threads and frees the regions. Whoever
// made an end of its tenant calls it, so it runs once.
func (l *lease) end() error {
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
	l.cancel()
	l.running.Wait() // no thread touches the regions any more
	return l.free()
}

func (l *lease) free() error {
	var err error
	for _, r := range l.regions {
		err = errors.Join(err, r.Close())
	}
	return err
}
