package hlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/mem"
)

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("hlog: closed")

// Bounds of page sizes in bytes, and the smallest number of frames: one that is filled, one
// that is opened, one that is written, and a spare one.
const (
	MinPageSize = 512
	MaxPageSize = 32 << 20
	MinFrames   = 4
)

// Config configures a log.
type Config struct {
	Device   device.Device
	Epoch    *epoch.Table
	Layout   Layout
	Logger   *slog.Logger
	Listener Listener

	// Memory bounds the bytes in memory. Resize may raise it to MaxMemory, or to the next
	// power of two if MaxMemory is less. PageSize is a power of two, 0: chosen from
	// Memory. MutableFraction is the share that is updated in place, 0: 0.9.
	Memory          int64
	MaxMemory       int64
	PageSize        int
	MutableFraction float64

	// Begin and Tail are the begin and the end of the log on the device; both 0 for a new log.
	Begin, Tail int64

	// Loading, unless it is nil, is called when Open has read so many more bytes into memory, of
	// all that it reads. Its error ends Open.
	Loading func(bytes, all int64) error

	now func() time.Time // measures device.RetryTime; nil: time.Now
}

// Log is a hybrid log. Allocate, At and the markers are for sessions inside an
// epoch; the rest is safe for concurrent use outside.
type Log struct {
	// These fields do not change; the hot path reads them together.
	base      unsafe.Pointer
	ringMask  int64
	pageBits  uint
	pageSize  int
	layout    Layout
	ring      []byte
	dev       device.Device
	alignment int64
	epoch     *epoch.Table
	logger    *slog.Logger

	frames       atomic.Int64  // pages that may be resident; changes under mu
	surplus      int64         // see Resize; guarded by mu
	fraction     float64       // the share of frames that is updated in place
	tail         atomic.Uint64 // a position
	begin        marker
	head         marker // ≤ released
	safeHead     marker
	readOnly     marker
	safeReadOnly marker
	wanted       marker // Write waits for the log below it: see due
	committed    marker // below it the device's commit point has the log
	released     marker // below it every tier has the log, and memory may be evicted
	settled      marker // below it every record is complete in memory

	mu       sync.Mutex // guards err, closed, held; taken to open a page
	progress *sync.Cond // on mu: safeHead, committed, err or closed changed
	err      error      // the reason why the log cannot be written; see retry.go
	closed   bool
	fails    atomic.Bool // err or closed is set: others need no lock to know
	held     int64       // memory from this address on is not evicted: see Hold

	scanRun int64                              // see Scan; tests lower it
	kick    chan struct{}                      // wakes the flusher; holds one token
	parked  atomic.Pointer[context.CancelFunc] // set while it waits for a write: see wake
	// skipping is what Skip waits for, or nil. The flusher begins no write meanwhile.
	skipping atomic.Pointer[skip]
	stopped  chan struct{} // closed when the flusher has ended

	listener Listener
	counts   flusherCounts
}

// Open opens a log on a device that has been started at cfg.Tail.
func Open(cfg Config) (*Log, error) {
	if cfg.PageSize == 0 {
		cfg.PageSize = max(DefaultPageSize(cfg.Memory, cfg.Device.Alignment()), cfg.Layout.smallestPage())
	}
	cfg.MutableFraction = cmp.Or(cfg.MutableFraction, 0.9)
	if cfg.Tail == 0 {
		cfg.Begin, cfg.Tail = FirstAddress, FirstAddress
	}
	frames := cfg.Memory / int64(max(cfg.PageSize, 1))
	smallest := cfg.Layout.smallestPage()
	switch {
	case smallest > max(cfg.PageSize, MinPageSize) || smallest > MaxPageSize:
		return nil, fmt.Errorf("hlog: page size %d: records need pages of %d, at most %d is possible", cfg.PageSize, smallest, MaxPageSize)
	case cfg.PageSize < MinPageSize || cfg.PageSize > MaxPageSize || cfg.PageSize&(cfg.PageSize-1) != 0:
		return nil, fmt.Errorf("hlog: page size %d: want a power of two from %d to %d", cfg.PageSize, MinPageSize, MaxPageSize)
	case cfg.PageSize%cfg.Device.Alignment() != 0:
		return nil, fmt.Errorf("hlog: page size %d is not a multiple of the device's alignment %d", cfg.PageSize, cfg.Device.Alignment())
	case frames < MinFrames:
		return nil, tooLittle(cfg.Memory, cfg.PageSize)
	case !(cfg.MutableFraction > 0 && cfg.MutableFraction <= 1):
		return nil, fmt.Errorf("hlog: mutable fraction %g: want more than 0, at most 1", cfg.MutableFraction)
	case cfg.Begin < FirstAddress || cfg.Tail < cfg.Begin || cfg.Tail >= addressEnd(cfg.PageSize), (cfg.Begin|cfg.Tail)%8 != 0:
		return nil, fmt.Errorf("hlog: impossible log from %d to %d with pages of %d", cfg.Begin, cfg.Tail, cfg.PageSize)
	}
	// The ring of frames is a power of two, so that a mask finds a frame. Beyond the
	// budget it is address space only: the memory of evicted pages is released.
	ringSize := int64(1) << bits.Len64(uint64(max(frames*int64(cfg.PageSize), cfg.MaxMemory)-1))
	ring, err := mem.Alloc(int(ringSize))
	if err != nil {
		return nil, fmt.Errorf("hlog: allocating pages: %w", err)
	}
	l := &Log{
		base:      unsafe.Pointer(unsafe.SliceData(ring)),
		ringMask:  ringSize - 1,
		pageBits:  uint(bits.TrailingZeros(uint(cfg.PageSize))),
		pageSize:  cfg.PageSize,
		fraction:  cfg.MutableFraction,
		layout:    cfg.Layout,
		ring:      ring,
		dev:       cfg.Device,
		alignment: int64(cfg.Device.Alignment()),
		epoch:     cfg.Epoch,
		logger:    cfg.Logger,
		listener:  cfg.Listener,
		held:      math.MaxInt64,
		scanRun:   int64(max(scanRun, cfg.PageSize)),
		kick:      make(chan struct{}, 1),
		stopped:   make(chan struct{}),
	}
	l.frames.Store(frames)
	l.progress = sync.NewCond(&l.mu)
	queue, err := cfg.Device.NewQueue(flushDepth)
	if err == nil {
		err = l.load(queue, cfg.Begin, cfg.Tail, cfg.Loading)
		if err != nil {
			err = errors.Join(err, queue.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hlog: opening at %d: %w", cfg.Tail, err), mem.Free(ring))
	}
	f := &flusher{
		Log: l, queue: queue, issued: cfg.Tail, now: cfg.now,
		block: device.AlignedBuffer(int(l.alignment), int(l.alignment)),
	}
	if f.now == nil {
		f.now = time.Now
	}
	go f.run()
	return l, nil
}

// DefaultPageSize returns the largest page size with which memory holds at least 32 pages,
// within bounds.
func DefaultPageSize(memory int64, alignment int) int {
	size := 64 << 10
	for size < MaxPageSize && int64(size)*64 <= memory {
		size *= 2
	}
	for size > max(alignment, 4096) && int64(size)*MinFrames > memory {
		size /= 2
	}
	return size
}

// load sets the markers and reads the newest pages into memory, as many as leave room for
// writing.
func (l *Log) load(queue device.Queue, begin, tail int64, loading func(bytes, all int64) error) error {
	page := tail >> l.pageBits
	l.begin.raise(begin)
	first := max(page-(l.frames.Load()-MinFrames+1), begin>>l.pageBits)
	head := max(first<<l.pageBits, begin)
	for _, m := range []*marker{&l.head, &l.safeHead} {
		m.raise(head)
	}
	for _, m := range []*marker{&l.readOnly, &l.safeReadOnly, &l.committed, &l.released} {
		m.raise(tail)
	}
	l.tail.Store(uint64(newPosition(page, int(tail)&(l.pageSize-1))))
	// The block in which the log begins may be written again, with the bytes before the
	// log's begin that the device still answers.
	at := min(head, max(head&^(l.alignment-1), l.dev.Begin()))
	if tail == FirstAddress {
		return nil
	}
	all := tail - at
	return l.fetch(queue, at, tail, func(bytes int64) error {
		if loading == nil {
			return nil
		}
		return loading(bytes, all)
	})
}

// fetch reads a part of the log into its frames, through a queue of flushDepth without other
// pending operations, which the caller closes. It calls read for the bytes of each read that ends;
// an error of that is one of fetch.
func (l *Log) fetch(queue device.Queue, at, end int64, read func(bytes int64) error) (err error) {
	var done [flushDepth]device.Completion
	for pending := 0; at < end || pending > 0; {
		for ; at < end && pending < flushDepth; pending++ {
			n := min(l.rest(at), lastPiece, end-at)
			if err := queue.Read(l.frame(at, int(n)), at, uint64(at)); err != nil {
				return fmt.Errorf("reading at %d: %w", at, err)
			}
			at += n
		}
		if err := queue.Submit(); err != nil {
			return err
		}
		if err := queue.Wait(context.Background()); err != nil {
			return err
		}
		n := queue.Poll(done[:])
		pending -= n
		for _, c := range done[:n] {
			if c.Err != nil {
				c.Err = fmt.Errorf("reading at %d: %w", c.Tag, c.Err)
			} else {
				c.Err = read(int64(c.N))
			}
			if c.Err != nil {
				err = cmp.Or(err, c.Err)
				end = at // no more reads
			}
		}
	}
	return err
}

// At returns the record at addr, which is between Head and Tail as read in the caller's epoch.
// The mask keeps it inside the ring for any addr.
func (l *Log) At(addr int64) Record { return Record{unsafe.Add(l.base, addr&l.ringMask)} }

// View is what a session needs to read records in memory. A View that was taken in an epoch
// stays valid while the session is in the same epoch, even after it has left and reentered.
type View struct {
	Frames   unsafe.Pointer // start of the ring of page frames
	RingMask int64          // turns an address into an offset in Frames
	Head     int64          // lowest address of the log that is in memory
	ReadOnly int64          // lowest address that may be updated in place
}

// View returns the present View. Its Head is not below Begin.
func (l *Log) View() View {
	return View{l.base, l.ringMask, max(l.Head(), l.Begin()), l.ReadOnly()}
}

// frame returns the n bytes of memory at addr, which do not cross the ring's end.
func (l *Log) frame(addr int64, n int) []byte {
	at := addr & l.ringMask
	return l.ring[at : at+int64(n) : at+int64(n)]
}

// Layout is the form of the log's records.
func (l *Log) Layout() Layout { return l.layout }

// PageSize is the unit of flushing and eviction in bytes, and the largest size of a record.
func (l *Log) PageSize() int { return l.pageSize }

// Budget is the largest number of bytes of the log that are kept in memory.
func (l *Log) Budget() int64 { return l.frames.Load() << l.pageBits }

// AddressEnd is the end of the address space: what is appended ever, copies by compactions included,
// is below it.
func (l *Log) AddressEnd() int64 { return addressEnd(l.pageSize) }

// Begin is the lowest address of the log.
func (l *Log) Begin() int64 { return l.begin.load() }

// Head is the lowest address in memory.
func (l *Log) Head() int64 { return l.head.load() }

// ReadOnly is the lowest address that may be updated in place.
func (l *Log) ReadOnly() int64 { return l.readOnly.load() }

// SafeReadOnly is the address below which no session updates in place.
func (l *Log) SafeReadOnly() int64 { return l.safeReadOnly.load() }

// Committed is the address below which the device's commit point has the log. It is durable
// after a Sync of the device.
func (l *Log) Committed() int64 { return l.committed.load() }

// Tail is the address after the newest record.
func (l *Log) Tail() int64 {
	p := position(l.tail.Load())
	return p.page()<<l.pageBits + int64(p.offset())
}

// Close stops the flusher and frees the memory. What was not committed is lost, and the log
// must not be used any more. The device stays open.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.fails.Store(true)
	l.progress.Broadcast()
	l.mu.Unlock()
	l.wake()
	<-l.stopped
	return mem.Free(l.ring)
}
