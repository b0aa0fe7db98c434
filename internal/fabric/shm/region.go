//go:build linux

package shm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

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
	delete(s.byToken, r.token)
	s.generations.drop(r.word)
	r.memory.discard()
	return r.memory.Close()
}

// regions are the regions of one provider. It is safe for concurrent use.
type regions struct {
	generations *generations
	mu          sync.Mutex
	closed      bool
	byToken     map[fabric.Token]*region
}

func newRegions() (*regions, error) {
	g, err := newGenerations()
	return &regions{generations: g, byToken: map[fabric.Token]*region{}}, err
}

func (s *regions) alloc(size int) (*region, error) {
	if err := core.CheckSize(size); err != nil {
		return nil, err
	}
	m, err := newShared("redykv-region", size)
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
	return r, nil
}

// lend returns the description of the region with this token, and its file. If the region is
// revoked meanwhile, its generation makes the description void.
func (s *regions) lend(token fabric.Token) (loan, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byToken[token]
	if r == nil {
		return loan{}, nil, fabric.ErrBadToken
	}
	fd, err := unix.FcntlInt(r.memory.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return loan{}, nil, fmt.Errorf("lend region: %w", err)
	}
	l := loan{word: uint32(r.word), generation: r.generation, size: int64(r.size)}
	return l, os.NewFile(uintptr(fd), "redykv-region"), nil
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
	return errors.Join(err, s.generations.memory.Close())
}

// imported is a peer's region, mapped here.
type imported struct {
	mapping    []byte
	size       int64
	current    *uint64 // the region's word of the peer's generations
	generation uint64
}

// importRegion maps a region that the peer with these generations lent.
func importRegion(l lent, generations []uint64) (imported, error) {
	if l.word >= uint32(len(generations)) || l.generation == 0 {
		return imported{}, errFile
	}
	m, err := mapPeer(l.file, l.size, protReadWrite)
	if err != nil {
		return imported{}, err
	}
	return imported{mapping: m, size: l.size, current: &generations[l.word], generation: l.generation}, nil
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
	if kind == core.Read {
		copy(buf, b)
	} else {
		copy(b, buf)
	}
	if !r.valid() {
		return fabric.ErrBadToken
	}
	return nil
}
