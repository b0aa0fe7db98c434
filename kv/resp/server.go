package resp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/poll"
)

// Server serves a store to Redis clients. Its methods are safe for concurrent use.
type Server struct {
	store *kv.Store
	opts  Options
	err   error // error of the options, which Serve returns
	table *table
	pool  *pool
	short int // bytes of a request whose arguments the store does not refuse for their size

	large     budget // budget for requests
	replies   room
	committer *committer
	counts    counts
	stats     stats // of commands
	slow      slowlog
	denials   denials
	watches   watches
	pubsub    pubsub
	scripts   scriptCache
	blocking  blocking
	changes   changes
	tracking  tracking
	expirer   expirer
	paused    paused
	saving    atomic.Bool    // BGSAVE is running
	saves     sync.WaitGroup // goroutines of BGSAVE and giveSpaceBack
	emptied   atomic.Int64   // FLUSHALLs that no commit of giveSpaceBack covers yet
	unsaved   atomic.Bool    // the last save failed
	saved     atomic.Int64   // Unix time of the last successful save
	saveCount atomic.Int64   // successful saves

	loops                  []*loop
	loading                loading
	cold                   atomic.Bool   // the store reads its device often: loops take no connections
	coldAt                 atomic.Int64  // Unix time in nanoseconds at which cold was last set
	deviceReads, evictions atomic.Uint64 // the store's counts at that time

	savedWrites atomic.Int64 // the store's writes before the last successful save

	commandRate, inRate, outRate rate // of commands and of bytes, for INFO

	usedPeak atomic.Int64 // the most memory that INFO has told
	runID    string

	started time.Time
	begin   sync.Once // starts the background goroutines
	end     sync.Once // stops them

	closing atomic.Bool
	done    chan struct{}   // closed when closing becomes true
	scans   turns           // of commands that scan the whole log
	steps   turns           // of commands that scan a part of the index
	working context.Context // of scans; ends when the clients are disconnected
	cease   context.CancelCauseFunc
	ended   sync.WaitGroup // connections

	mu        sync.Mutex // guards listeners and clients
	listeners map[net.Listener]struct{}
	clients   map[*client]struct{}
}

// NewServer returns a server of the store. The caller must close the store after the server. Without a
// store the server is loading until Opened is called: it answers LOADING, as Redis does while it reads its
// files, except to commands that need no data. Serve returns an error if opts are invalid.
func NewServer(store *kv.Store, opts Options) *Server {
	err := opts.ensureDefaults()
	s := &Server{
		store: store, opts: opts, err: err,
		table: commandTable(),
		pool:  newPool(opts.Sessions),

		large:     budget{most: opts.MaxBuffers},
		replies:   room{budget: budget{most: opts.MaxReplies}, freed: make(chan struct{}, 1)},
		committer: newCommitter(opts.Durability, opts.Logger),

		started:   time.Now(),
		done:      make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		clients:   make(map[*client]struct{}),
	}
	s.scans, s.steps = newScanTurns(), make(turns, max(opts.Sessions, 1))
	s.working, s.cease = context.WithCancelCause(context.Background())
	s.runID = newRunID()
	s.stats.init(len(s.table.all))
	s.slow.init()
	s.scripts.init()
	s.denials.most.Store(defaultDenials)
	s.pubsub.init(&s.replies)
	s.blocking.init()
	s.tracking.init(s)
	s.expirer.init(s)
	s.watches.seed = maphash.MakeSeed()
	s.saved.Store(s.started.Unix())
	if opts.Cache != nil {
		opts.Cache.server.Store(s)
	}
	if s.loading.started = s.started; store == nil {
		s.loading.on.Store(true)
	} else {
		s.use(store)
	}
	return s
}

// newRunID returns a random number of 160 bits, as Redis identifies a process.
func newRunID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// longAgo is a deadline in the past, which ends reads at once.
var longAgo = time.Unix(1, 0)

// Serve waits this long after a temporary error of Accept; the time doubles from the first
// to the last.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

// Serve accepts connections on ln and serves them until Shutdown or Close. Then it closes ln
// and returns nil. Several listeners may be served concurrently.
func (s *Server) Serve(ln net.Listener) error {
	if s.err != nil {
		return errors.Join(s.err, ln.Close())
	}
	s.mu.Lock()
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	if !s.loading.on.Load() {
		s.begin.Do(s.start)
	}
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ln)
		s.mu.Unlock()
		_ = ln.Close() // stop may have closed it
	}()
	retry := firstRetry
	for !s.closing.Load() {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			retry = firstRetry
			s.accept(conn)
		case s.closing.Load():
		case temporary(err):
			s.opts.Logger.Warn("accepting a client", "err", err, "retry", retry)
			timer := time.NewTimer(retry)
			select {
			case <-timer.C:
			case <-s.done:
			}
			timer.Stop()
			retry = min(2*retry, lastRetry)
		default:
			return fmt.Errorf("resp: accepting clients at %v: %w", ln.Addr(), err)
		}
	}
	return nil
}

// temporary reports whether Accept may succeed later: the client has disconnected, or there is
// a lack of files or memory.
func temporary(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains([]syscall.Errno{
		syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	}, e)
}

// accept starts the goroutine of a connection, unless there are too many.
func (s *Server) accept(conn net.Conn) {
	c := &client{server: s, conn: conn, id: int64(s.counts.connections.Add(1))}
	if tcp, ok := conn.(*net.TCPConn); ok && s.opts.Loops > 0 {
		c.looped = poll.NewConn(tcp)
		c.conn = c.looped
	}
	c.in = newInput(c.conn, &s.opts, &s.large)
	c.initCommands()
	s.mu.Lock()
	closing, full := s.closing.Load(), len(s.clients) >= s.opts.MaxClients
	if !closing && !full {
		s.clients[c] = struct{}{}
		s.ended.Add(1)
	}
	s.mu.Unlock()
	switch {
	case closing:
		_ = conn.Close()
	case full:
		s.counts.rejected.Add(1)
		if _, encrypted := conn.(*tls.Conn); !encrypted { // TLS would require a handshake first
			c.out = appendError(nil, errTooManyClients)
			c.write() // fits a new connection's send buffer
		}
		_ = hangUp(conn) // the error was sent, or cannot be
	default:
		go s.serve(c)
	}
}

func (s *Server) serve(c *client) {
	if c.admit() && (s.enroll(c) || c.serve()) {
		return // a loop owns the connection
	}
	s.leave(c)
}

// leave ends a connection.
func (s *Server) leave(c *client) {
	defer s.ended.Done()
	c.endMulti()
	c.unwatch()
	c.endWait()
	c.untrack()
	c.endSubscriptions()
	c.in.release()
	c.out = nil
	c.charge()
	_ = c.conn.Close() // all replies have been sent
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
}

// Shutdown stops listening, sends the replies to all commands that the server has read, and
// closes the sessions. If ctx ends first, it continues like Close and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(c net.Conn) error { return c.SetReadDeadline(longAgo) })
	all := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(all)
	}()
	select {
	case <-all:
		return s.finish()
	case <-ctx.Done():
		err := s.Close()
		<-all
		return errors.Join(fmt.Errorf("resp: shutdown: %w", ctx.Err()), err)
	}
}

// Close disconnects all clients, ends their scans, waits for their other operations, and closes the
// sessions.
func (s *Server) Close() error {
	s.stop(hangUp)
	s.cease(errServerEnds)
	s.ended.Wait()
	return s.finish()
}

// finish stops the background goroutines after all connections have ended.
func (s *Server) finish() error {
	s.cease(errServerEnds)
	s.saves.Wait()
	s.watches.close()
	s.expirer.stop()
	if s.loading.on.Load() {
		return nil
	}
	s.begin.Do(s.start) // if Serve was never called: they must run to be stopped
	s.end.Do(func() {
		for _, l := range s.loops {
			l.stop()
		}
		s.committer.stop()
	})
	return s.pool.close()
}

// hangUp closes a connection without TLS's closing message, which a client that does not read
// would delay.
func hangUp(conn net.Conn) error { return socket(conn).Close() }

// stop ends Serve, and calls end for each connection.
func (s *Server) stop(end func(net.Conn) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing.Swap(true) {
		close(s.done)
	}
	s.paused.end()
	for ln := range s.listeners {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.opts.Logger.Warn("closing a listener", "err", err)
		}
	}
	for c := range s.clients {
		if err := end(c.conn); err != nil && !errors.Is(err, net.ErrClosed) {
			s.opts.Logger.Debug("ending a client", "client", c.id, "err", err)
		}
	}
}

// handshakeTimeout limits the time of a TLS handshake.
const handshakeTimeout = 10 * time.Second

// admit reports whether the client is admitted. If not, it has sent the error.
func (c *client) admit() bool {
	s := c.server
	if encrypted, ok := c.conn.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
		defer cancel()
		if err := encrypted.HandshakeContext(ctx); err != nil {
			s.counts.rejected.Add(1)
			s.opts.Logger.Debug("TLS handshake failed", "client", c.id, "address", c.conn.RemoteAddr(), "err", err)
			return false
		}
	}
	if s.opts.ProtectedMode && !s.needsPassword() && !local(c.conn) {
		s.counts.rejected.Add(1)
		c.out = appendError(nil, errProtected)
		c.write()
		c.linger()
		return false
	}
	return true
}

// needsPassword reports whether clients must authenticate.
func (s *Server) needsPassword() bool { return s.opts.Users != nil && s.opts.Users.Anonymous() == nil }

// local reports whether the client is on this machine.
func local(conn net.Conn) bool {
	switch addr := conn.RemoteAddr().(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return conn.RemoteAddr().Network() == "pipe" // net.Pipe
}
