//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// maxRegions is the most regions that a provider can have at a time.
const maxRegions = 1 << 16

// generations holds one word per region, in memory that peers map read-only. A region's word
// holds its generation while the region is valid. A peer reads the word before and after each
// access; if it still holds the generation after a copy, the bytes were the region's. So a
// revoked region stops answering at once, without a message and without waiting for peers:
// their mappings keep the old pages until they notice, and no other region uses those pages.
type generations struct {
	memory *shared
	words  []uint64
	next   int   // words from here on are unused
	free   []int // words of closed regions
	last   uint64
}

func newGenerations() (*generations, error) {
	m, err := newShared("redykv-generations", maxRegions*8)
	if err != nil {
		return nil, err
	}
	// From here on no new writable mapping can be made.
	if _, err := unix.FcntlInt(m.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		return nil, errors.Join(fmt.Errorf("seal memory file: %w", err), m.Close())
	}
	return &generations{memory: m, words: words(m.data)}, nil
}

func (g *generations) take() (word int, generation uint64, err error) {
	if n := len(g.free); n > 0 {
		word, g.free = g.free[n-1], g.free[:n-1]
	} else if g.next < maxRegions {
		word, g.next = g.next, g.next+1
	} else {
		return 0, 0, fmt.Errorf("more than %d regions", maxRegions)
	}
	g.last++
	atomic.StoreUint64(&g.words[word], g.last)
	return word, g.last, nil
}

func (g *generations) drop(word int) {
	atomic.StoreUint64(&g.words[word], 0)
	g.free = append(g.free, word)
}

// region is memory of this process that peers can map.
type region struct {
	set        *regions
	memory     *shared
	size       int
	token      fabric.Token
	word       int
	generation uint64

	// The processes that may have mapped the memory; nil: one that cannot be observed. Guarded by
	// set.mu.
	borrowers map[*process]struct{}
}

func (r *region) Bytes() []byte       { return r.memory.data[:r.size:r.size] }
func (r *region) Token() fabric.Token { return r.token }

func (r *region) Close() error {
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byToken[r.token] != r {
		return nil
	}
	s.revoke(r)
	for p := range r.borrowers {
		s.giveBack(r, p)
	}
	s.preparer.End(&r.memory.preparation)
	_ = r.memory.discard(0, int64(len(r.memory.data))) // at the latest, the last mapping's end does it
	return r.memory.Close()
}

// Discard implements fabric.Region.
func (r *region) Discard(offset, n int64) error {
	if err := core.CheckBounds(offset, int(n), int64(r.size)); err != nil {
		return err
	}
	return core.DiscardPages(r.Bytes()[offset:offset+n], func(pages []byte) error {
		at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(pages))) - uintptr(unsafe.Pointer(unsafe.SliceData(r.memory.data))))
		if r.memory.discard(at, int64(len(pages))) != nil {
			clear(pages) // a file of huge pages has holes of whole ones only
		}
		return nil
	})
}

// Ready implements [fabric.Preparing].
func (r *region) Ready(ctx context.Context) { r.set.preparer.Ready(ctx, &r.memory.preparation) }

// Fence implements [fabric.Region]. If all processes that have mapped the memory have exited, the
// memory itself becomes the new region's. A living one that was stopped in the midst of a copy may
// finish it at any time later, so the bytes then move to a file that it has not mapped: its copy
// ends in the pages of the revoked region.
func (r *region) Fence() (fabric.Region, error) {
	if n, err := r.rename(); n != nil || err != nil {
		return n, err
	}
	n, err := r.set.alloc(r.size)
	if err != nil {
		return nil, err
	}
	s := r.set
	s.mu.Lock()
	revoked := s.byToken[r.token] == r
	if revoked {
		atomic.StoreUint64(&s.generations.words[r.word], 0) // Close frees the word
	}
	s.mu.Unlock()
	if !revoked {
		return nil, errors.Join(fabric.ErrClosed, n.Close())
	}
	copyData(n.Bytes(), r.memory)
	_ = r.Close() // it is revoked and copied; what cannot be unmapped stays mapped
	return n, nil
}

// rename returns a region with this one's memory, or nil if a peer may still access it.
func (r *region) rename() (fabric.Region, error) {
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byToken[r.token] != r {
		return nil, fabric.ErrClosed
	}
	for p := range r.borrowers {
		if p == nil || !p.exited() {
			return nil, nil
		}
		s.giveBack(r, p)
	}
	n := &region{set: s, memory: r.memory, size: r.size, token: core.NewToken()}
	var err error
	if n.word, n.generation, err = s.generations.take(); err != nil {
		return nil, err
	}
	s.revoke(r)
	s.byToken[n.token] = n
	return n, nil
}

// regions are the regions of one provider. It is safe for concurrent use.
type regions struct {
	sparse      bool // physical memory is allocated in small pages, and when it is accessed
	generations *generations
	preparer    core.Preparer // a random access to a small page costs three times one to a huge page
	mu          sync.Mutex
	closed      bool
	byToken     map[fabric.Token]*region
	processes   processes
}

func newRegions(sparse bool) (*regions, error) {
	g, err := newGenerations()
	return &regions{sparse: sparse, preparer: core.Preparer{Populate: collapse}, generations: g, byToken: map[fabric.Token]*region{}, processes: processes{}}, err
}

func (s *regions) alloc(size int) (*region, error) {
	if err := core.CheckSize(size); err != nil {
		return nil, err
	}
	m, err := s.newMemory(size)
	if err != nil {
		return nil, err
	}
	r := &region{set: s, memory: m, size: size, token: core.NewToken()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(fabric.ErrClosed, m.Close())
	}
	if r.word, r.generation, err = s.generations.take(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.byToken[r.token] = r
	if !s.sparse && !m.huge {
		s.preparer.Prepare(&m.preparation, m.data)
	}
	return r, nil
}

// newMemory returns the memory of a new region.
func (s *regions) newMemory(size int) (*shared, error) {
	if s.sparse || size < hugePage {
		return newShared("redykv-region", size)
	}
	if m, err := newHuge("redykv-region", size); err == nil {
		return m, nil
	}
	return newShared("redykv-region", size)
}

// revoke makes a region unreachable. Called with mu held.
func (s *regions) revoke(r *region) {
	delete(s.byToken, r.token)
	s.generations.drop(r.word)
}

// giveBack removes a borrower of a region. Called with mu held.
func (s *regions) giveBack(r *region, p *process) {
	delete(r.borrowers, p)
	if p != nil {
		s.processes.give(p)
	}
}

// borrow notes that a region is lent to the process at the other end of a socket. Called with mu
// held.
func (s *regions) borrow(r *region, conn *net.UnixConn) {
	p := s.processes.take(conn)
	if _, again := r.borrowers[p]; again && p != nil {
		s.processes.give(p)
	}
	for earlier := range r.borrowers {
		if earlier != nil && earlier.exited() {
			s.giveBack(r, earlier)
		}
	}
	if r.borrowers == nil {
		r.borrowers = map[*process]struct{}{}
	}
	r.borrowers[p] = struct{}{}
}

// lend returns the description of the region with this token, and its file, opened with these
// rights, for the process at the other end of a socket. If the region is revoked meanwhile, its
// generation makes the description void.
func (s *regions) lend(token fabric.Token, to *net.UnixConn, rights fabric.Rights) (loan, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byToken[token]
	if r == nil {
		return loan{}, nil, fabric.ErrBadToken
	}
	file, err := r.memory.open(rights)
	if err != nil {
		return loan{}, nil, fmt.Errorf("lend region: %w", err)
	}
	s.borrow(r, to)
	l := loan{word: uint32(r.word), generation: r.generation, size: int64(r.size)}
	return l, file, nil
}

func (s *regions) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	left := slices.Collect(maps.Values(s.byToken))
	s.mu.Unlock()
	var err error
	for _, r := range left {
		err = errors.Join(err, r.Close())
	}
	s.preparer.Close()
	return errors.Join(err, s.generations.memory.Close())
}

// imported is a peer's region, mapped here.
type imported struct {
	shared     *mapping
	mapping    []byte // of shared
	size       int64
	current    *uint64 // the region's word of the peer's generations
	generation uint64
}

// importRegion maps a region that the peer with these generations lent.
func (s *mappings) importRegion(l lent, generations []uint64) (imported, error) {
	if l.word >= uint32(len(generations)) || l.generation == 0 {
		return imported{}, errFile
	}
	m, err := s.take(l.file, l.size)
	if err != nil {
		return imported{}, err
	}
	return imported{shared: m, mapping: m.memory, size: l.size, current: &generations[l.word], generation: l.generation}, nil
}

func (r *imported) valid() bool { return atomic.LoadUint64(r.current) == r.generation }

// access copies between the region and buf.
func (r *imported) access(kind core.Kind, buf []byte, offset int64) error {
	if !r.valid() {
		return fabric.ErrBadToken
	}
	if err := core.CheckBounds(offset, len(buf), r.size); err != nil {
		return err
	}
	b := r.mapping[offset : offset+int64(len(buf))]
	switch {
	case kind == core.Read:
		copy(buf, b)
	case r.shared.id.readOnly:
		return fabric.ErrBadToken
	default:
		copy(b, buf)
	}
	if !r.valid() {
		return fabric.ErrBadToken
	}
	return nil
}
