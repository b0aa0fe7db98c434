package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// said is a log that a test looks into.
type said struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// count returns how many of the log's lines have some text.
func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), text)
}

// standingReads is a device whose reads can be made to wait.
type standingReads struct {
	*device.Faulty
	reads atomic.Int64
}

type standingReadsQueue struct {
	device.Queue
	reads *atomic.Int64
}

func (d *standingReads) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Faulty.NewQueue(depth)
	return &standingReadsQueue{q, &d.reads}, err
}

func (q *standingReadsQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.reads.Add(1)
	return q.Queue.Read(dst, addr, tag)
}

// stand makes reads wait from now on.
func (d *standingReads) stand() {
	d.Set(device.FaultyOptions{Stuck: 1})
	d.reads.Store(0)
}

// await waits until a read waits.
func (d *standingReads) await(t *testing.T) {
	t.Helper()
	testrun.Until(t, "a read waits for the device", func() bool { return d.reads.Load() > 0 })
}

// goOn ends the waiting.
func (d *standingReads) goOn() {
	d.Set(device.FaultyOptions{})
	d.Release()
}

// slowScans starts a server whose store has most keys on a device, and makes its reads wait. log is the
// server's log.
func slowScans(t *testing.T, opts Options) (s *Server, dev *standingReads, addr string, log *said) {
	t.Helper()
	dev = &standingReads{Faulty: device.NewFaulty(device.NewMemory(), device.FaultyOptions{})}
	store := cold()
	store.Device = dev
	log, opts.lookEvery = new(said), time.Millisecond
	s, addr = start(t, store, opts)
	s.opts.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})) // before it has clients
	n := 0
	writeMany(dial(t, addr), 5000, func() string { n++; return fmt.Sprint("key", n) }, strings.Repeat("v", 100))
	dev.stand()
	t.Cleanup(dev.goOn)
	return s, dev, addr, log
}

// TestScansEndWithTheirClient: commands that scan end when their clients have gone, also in transactions.
func TestScansEndWithTheirClient(t *testing.T) {
	for name, commands := range map[string]string{
		"alone":            encode("KEYS", "nothing*"),
		"before others":    encode("KEYS", "nothing*") + encode("PING"),
		"in a transaction": encode("MULTI") + encode("KEYS", "nothing*") + encode("EXEC"),
	} {
		t.Run(name, func(t *testing.T) {
			s, dev, addr, log := slowScans(t, Options{})
			p := dial(t, addr)
			p.send(commands)
			dev.await(t)
			if err := p.conn.Close(); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the server sees that the client has gone", func() bool { return log.count("has gone") == 1 })
			dev.goOn()
			testrun.Until(t, "the client has left", func() bool { return s.Metrics().Clients == 1 })
			if n := s.stats.errors.Load(); n != 1 {
				t.Errorf("%d errors: the scan went on to its end", n)
			}
		})
	}
}

// TestScansEndWithTheServer: a server that is closed ends the scans, so that its time to shut down is
// bounded.
func TestScansEndWithTheServer(t *testing.T) {
	s, dev, addr, _ := slowScans(t, Options{})
	p := dial(t, addr)
	p.send(encode("KEYS", "nothing*"))
	dev.await(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	testrun.Receive(t, "the scans are told to end", s.working.Done())
	dev.goOn()
	if err := testrun.Receive(t, "the server ends", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := s.stats.errors.Load(); n != 1 {
		t.Errorf("%d errors: the scan went on to its end", n)
	}
}

// TestNobodyWaitsForScans: while commands scan, others go on, also those that need the store alone. More
// commands that scan the whole log than may do so at the same time wait, and end with their clients, too.
func TestNobodyWaitsForScans(t *testing.T) {
	for name, commands := range map[string][]string{
		"WATCH":       {"WATCH key4999", "+OK"},
		"FLUSHALL":    {"FLUSHALL", "+OK"},
		"transaction": {"MULTI", "+OK", "DBSIZE", "+QUEUED", "EXEC", "[:5000]"},
		"script":      {"EVAL return(redis.call('dbsize')) 0", ":5000"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dev, addr, _ := slowScans(t, Options{Sessions: 2})
			waiting := make([]*peer, 10)
			for i := range waiting {
				waiting[i] = dial(t, addr)
				waiting[i].send(encode("KEYS", "nothing*"))
			}
			testrun.Until(t, "scans run", func() bool { return len(s.scans) == cap(s.scans) })
			dev.await(t)
			p := dial(t, addr)
			for i := 0; i < len(commands); i += 2 {
				if got := p.do(strings.Fields(commands[i])...); got != commands[i+1] {
					t.Errorf("%s: %s, want %s", commands[i], got, commands[i+1])
				}
				if got := dial(t, addr).do("GET", "nosuch"); got != "nil" {
					t.Errorf("GET: %s", got)
				}
			}
			for _, w := range waiting[5:] {
				if err := w.conn.Close(); err != nil {
					t.Fatal(err)
				}
			}
			dev.goOn()
			for _, w := range waiting[:5] {
				if got := w.reply(); got != "[]" {
					t.Errorf("KEYS: %s", got)
				}
			}
			testrun.Until(t, "the scans have ended", func() bool { return len(s.scans) == 0 })
		})
	}
}

// TestEmptyDatabaseBesideAColdRead: a command that finds out whether a database is empty lets others go on while
// one of them waits for the device.
func TestEmptyDatabaseBesideAColdRead(t *testing.T) {
	s, dev, addr, _ := slowScans(t, Options{Loops: -1})
	reader, scanner := dial(t, addr), dial(t, addr)
	reader.send(encode("GET", "key1"))
	dev.await(t)
	scanner.send(encode("SELECT", "1") + encode("KEYS", "*"))
	testrun.Until(t, "KEYS has begun", func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return s.pool.seized || len(s.scans) > 0
	})
	if got := dial(t, addr).do("GET", "nosuch"); got != "nil" {
		t.Errorf("GET: %s", got)
	}
	dev.goOn()
	if got := scanner.reply() + scanner.reply(); got != "+OK[]" {
		t.Errorf("KEYS of an empty database: %s", got)
	}
	if got := reader.reply(); got != strconv.Quote(strings.Repeat("v", 100)) {
		t.Errorf("the read: %s", got)
	}
}

// TestClientGoesInAPause: a client that goes while its command waits for the end of CLIENT PAUSE leaves at
// once, and its command is not run. Neither does a pause keep a server from closing.
func TestClientGoesInAPause(t *testing.T) {
	s, addr := start(t, inMemory(), Options{lookEvery: time.Millisecond})
	p, other := dial(t, addr), dial(t, addr)
	p.last("+OK", "CLIENT PAUSE 3600000 WRITE")
	other.send(encode("SET", "k", "v"))
	testrun.Until(t, "the command has come", func() bool { return s.Metrics().BytesIn > 60 })
	if err := other.conn.Close(); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the client has left", func() bool { return s.Metrics().Clients == 1 })
	p.last("+OK", "CLIENT UNPAUSE")
	p.last("nil", "GET k")
	p.last("+OK", "CLIENT PAUSE 3600000 WRITE")
	dial(t, addr).send(encode("SET", "k", "v"))
}

// TestBudgetOfWaitingClients: the keys of a client that waits, and the commands of a transaction that waits to
// begin, count as memory of requests, until they end.
func TestBudgetOfWaitingClients(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	args := []string{"BLPOP"}
	for i := range 1000 {
		args = append(args, fmt.Sprint(i, strings.Repeat("k", 10_000)))
	}
	waiter := dial(t, addr)
	waiter.send(encode(append(args, "0")...))
	waitForBlocked(t, s, 1)
	if n := s.Metrics().RequestBytes; n < 20_000_000 {
		t.Errorf("%d bytes of requests while a client waits for keys of 10 MB", n)
	}
	p.do("RPUSH", args[7], "x")
	waiter.reply()
	testrun.Until(t, "the keys are forgotten", func() bool { return s.Metrics().RequestBytes < 1_000_000 })

	holder, held, end := s.store.NewSession(), make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		if err := holder.Atomically(context.Background(), [][]byte{storedKey(0, []byte("k"))}, func() error {
			close(held)
			<-end
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	release := sync.OnceFunc(func() { close(end); holding.Wait() })
	defer release()
	testrun.Receive(t, "the key is locked", held)
	queued := dial(t, addr)
	queued.last("+OK", "MULTI")
	if got := queued.do("SET", "k", strings.Repeat("v", 1_500_000)); got != "+QUEUED" {
		t.Fatal(got)
	}
	queued.send(encode("EXEC"))
	testrun.Until(t, "EXEC waits", func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return s.pool.lent == 1
	})
	if n := s.Metrics().RequestBytes; n < 1_500_000 {
		t.Errorf("%d bytes of requests while a transaction of 1.5 MB waits", n)
	}
	release()
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
	if got := queued.reply(); got != "[+OK]" {
		t.Errorf("EXEC: %s", got)
	}
	testrun.Until(t, "its commands are forgotten", func() bool { return s.Metrics().RequestBytes < 1_000_000 })
}
