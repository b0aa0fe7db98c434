package device

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// MemoryOptions choose the kind of storage that a Memory stands for. The zero value is a
// disk without a limit.
type MemoryOptions struct {
	// Volatile: Start empties the device, and metadata and objects are not supported, as
	// of a tier that does not survive a restart.
	Volatile bool
	// Capacity is the size in bytes of the suffix of the log that is kept. 0: everything
	// is kept.
	Capacity int64
}

// Memory is a Device in memory: a read is one copy, without a lock or a system call. It
// writes any bytes (Alignment is 1). What it holds survives Start as on a disk, with
// metadata and objects, unless it is Volatile; nothing survives the process.
//
// The address space is divided into chunks. Readers find them through a table that is
// replaced when the device grows or is truncated. A reader of an old table still reads the
// bytes that were there: released chunks are not reused while a reader has them.
type Memory struct {
	opts MemoryOptions

	begin atomic.Int64 // lowest address held; only Start lowers it
	end   atomic.Int64 // end of the highest write so far
	table atomic.Pointer[chunkTable]

	mu      sync.Mutex // guards replacing table, and the fields below
	meta    map[string][]byte
	objects map[string][]byte // values never change
	closed  bool
}

const (
	chunkBits = 21 // a huge page: random reads wait for addresses as well as for bytes
	chunkSize = 1 << chunkBits
	// maxChunks bounds the table, which is contiguous: 1 TiB of addresses.
	maxChunks = 1 << 19
)

// chunk is bytes outside the Go heap, which are freed when no table and no reader refers to
// the chunk.
type chunk struct{ bytes []byte }

func newChunk() (*chunk, error) {
	b, err := mem.Alloc(chunkSize)
	if err != nil {
		return nil, fmt.Errorf("device: memory: %w", err)
	}
	c := &chunk{b}
	runtime.AddCleanup(c, func(b []byte) {
		if err := mem.Free(b); err != nil {
			slog.Warn("device: memory: freeing a chunk", "err", err)
		}
	}, b)
	return c, nil
}

// chunkTable holds the chunks of a contiguous part of the address space, from chunk number
// base on; nil where nothing was written yet. Entries are set, and tables replaced, under
// Memory.mu.
type chunkTable struct {
	base   int64
	chunks []atomic.Pointer[chunk]
}

// at returns chunk number i, or nil.
func (t *chunkTable) at(i int64) *chunk {
	if i -= t.base; i < 0 || i >= int64(len(t.chunks)) {
		return nil
	}
	return t.chunks[i].Load()
}

// copy returns a table for chunks first to end that shares the chunks of both ranges.
func (t *chunkTable) copy(first, end int64) *chunkTable {
	c := &chunkTable{base: first, chunks: make([]atomic.Pointer[chunk], max(end-first, 0))}
	for i := range c.chunks {
		c.chunks[i].Store(t.at(first + int64(i)))
	}
	return c
}

// NewMemory returns an empty Memory that behaves as a disk without a limit.
func NewMemory() *Memory { return NewMemoryWith(MemoryOptions{}) }

// NewMemoryWith returns an empty Memory.
func NewMemoryWith(opts MemoryOptions) *Memory {
	m := &Memory{opts: opts, meta: make(map[string][]byte), objects: make(map[string][]byte)}
	m.table.Store(&chunkTable{})
	return m
}

// Start implements Device.
func (m *Memory) Start(tail int64) error {
	if err := checkRange(0, tail); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if m.opts.Volatile {
		m.begin.Store(tail)
		m.end.Store(tail)
		m.table.Store(&chunkTable{})
		return nil
	}
	m.begin.Store(min(m.begin.Load(), tail))
	m.end.Store(min(m.end.Load(), tail))
	old := m.table.Load()
	end := old.base + int64(len(old.chunks))
	t := old.copy(old.base, min(end, (tail+chunkSize-1)>>chunkBits))
	m.table.Store(t)
	if c := t.at(tail >> chunkBits); c != nil {
		clear(c.bytes[tail&(chunkSize-1):])
	}
	return nil
}

// NewQueue implements Device.
func (m *Memory) NewQueue(depth int) (Queue, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return &memoryQueue{
		instantQueue: instantQueue{done: newCompletions(depth)}, m: m,
		reads: make([]memoryRead, depth),
	}, nil
}

// Alignment implements Device.
func (m *Memory) Alignment() int { return 1 }

// Begin implements Device.
func (m *Memory) Begin() int64 { return m.begin.Load() }

// Truncate implements Device.
func (m *Memory) Truncate(begin int64) error {
	if err := checkRange(0, begin); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.drop(begin)
	return nil
}

// drop forgets what lies below begin. The caller holds mu.
func (m *Memory) drop(begin int64) {
	raise(&m.begin, begin)
	old := m.table.Load()
	if first := begin >> chunkBits; first > old.base {
		m.table.Store(old.copy(first, old.base+int64(len(old.chunks))))
	}
}

// Sync implements Device; it does nothing.
func (m *Memory) Sync() error { return nil }

// WriteMeta implements Device.
func (m *Memory) WriteMeta(name string, data []byte) error {
	if m.opts.Volatile {
		return fmt.Errorf("device: metadata %q on a volatile memory: %w", name, errors.ErrUnsupported)
	}
	if err := CheckName(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.meta[name] = slices.Clone(data)
	return nil
}

// ReadMeta implements Device.
func (m *Memory) ReadMeta(name string) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.meta[name]
	if !ok {
		return nil, fmt.Errorf("%q: %w", name, ErrNoMeta)
	}
	return slices.Clone(data), nil
}

// Close implements Device. The device keeps its bytes for [Memory.Reopen].
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Reopen makes a closed Memory usable again, with what it held, as opening a directory
// again does.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
	return m
}

// chunkAt returns chunk number i, making it if there is none. nil says that
// Begin has passed it.
func (m *Memory) chunkAt(i int64) (*chunk, error) {
	if c := m.table.Load().at(i); c != nil {
		return c, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i < m.begin.Load()>>chunkBits {
		return nil, nil
	}
	t := m.table.Load()
	if t.at(i) == nil {
		if i < t.base || i >= t.base+int64(len(t.chunks)) {
			first, end := i, i+1
			if len(t.chunks) > 0 {
				first, end = min(t.base, i), max(t.base+int64(len(t.chunks)), i+1)
			}
			if end-first > maxChunks {
				return nil, fmt.Errorf("device: memory: address %d is too far from %d, the lowest one held",
					i<<chunkBits, t.base<<chunkBits)
			}
			// Doubling keeps the copying linear in the size of the log.
			t = t.copy(first, max(end, min(first+2*int64(len(t.chunks)), first+maxChunks)))
			m.table.Store(t)
		}
		c, err := newChunk()
		if err != nil {
			return nil, err
		}
		t.chunks[i-t.base].Store(c)
	}
	return t.at(i), nil
}

// store copies src to addr; the part of it below Begin is dropped.
func (m *Memory) store(src []byte, addr int64) error {
	if err := checkRange(len(src), addr); err != nil {
		return err
	}
	end := addr + int64(len(src))
	if m.opts.Capacity > 0 && end-m.opts.Capacity > m.begin.Load() {
		m.mu.Lock()
		m.drop(end - m.opts.Capacity)
		m.mu.Unlock()
	}
	if below := m.begin.Load() - addr; below > 0 {
		src = src[min(below, int64(len(src))):]
		addr = end - int64(len(src))
	}
	for len(src) > 0 {
		c, err := m.chunkAt(addr >> chunkBits)
		if err != nil {
			return err
		}
		at := addr & (chunkSize - 1)
		n := min(len(src), chunkSize-int(at))
		if c != nil {
			// A refill may read here meanwhile; what it read is then not used.
			mem.CopyBytesIn(c.bytes[at:at+int64(n)], src[:n])
			runtime.KeepAlive(c)
		}
		src, addr = src[n:], addr+int64(n)
	}
	raise(&m.end, end)
	return nil
}

// load fills dst from addr.
func (m *Memory) load(dst []byte, addr int64) error {
	if addr < m.begin.Load() || addr > m.end.Load()-int64(len(dst)) {
		return m.notHeld(len(dst), addr)
	}
	t := m.table.Load()
	for {
		c := t.at(addr >> chunkBits)
		if c == nil {
			return m.notHeld(len(dst), addr)
		}
		at := addr & (chunkSize - 1)
		n := min(len(dst), chunkSize-int(at))
		mem.CopyBytesOut(dst[:n], c.bytes[at:at+int64(n)])
		runtime.KeepAlive(c)
		if n == len(dst) {
			return nil
		}
		dst, addr = dst[n:], addr+int64(n)
	}
}

// prefetch asks for the lines in which the n bytes at addr begin and end, if they
// are there.
func (m *Memory) prefetch(addr int64, n int) {
	if c := m.table.Load().at(addr >> chunkBits); c != nil {
		at := addr & (chunkSize - 1)
		mem.Prefetch(unsafe.Pointer(&c.bytes[at]))
		mem.Prefetch(unsafe.Pointer(&c.bytes[min(at+max(int64(n), 1)-1, chunkSize-1)]))
	}
}

func (m *Memory) notHeld(n int, addr int64) error {
	return fmt.Errorf("device: memory holds addresses %d to %d, not %d bytes at %d: %w",
		m.begin.Load(), m.end.Load(), n, addr, ErrNotHeld)
}
