package core

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/mem"
)

// NewToken returns a new random token of 128 bits (A62).
func NewToken() (t fabric.Token) {
	_, _ = rand.Read(t[:]) // never fails: crypto/rand ends the process instead
	return t
}

// A goroutine that copies into or out of regions of this process is inside a Gate while it
// does, once for a batch of copies. Closing a region revokes it and then waits until every
// goroutine that was inside a gate has left; one that enters later sees the region revoked.
// So an access costs one load of the region's revoked flag.
type Gate struct{ turns atomic.Uint64 } // counts Enter and Leave; odd: inside

// Enter marks the gate's one user as inside.
func (g *Gate) Enter() { g.turns.Add(1) }

// Leave marks it as outside.
func (g *Gate) Leave() { g.turns.Add(1) }

// Drain waits until a user that is inside has left.
func (g *Gate) Drain() {
	turn := g.turns.Load()
	for turn&1 == 1 && g.turns.Load() == turn {
		runtime.Gosched()
	}
}

// Region is memory of this process that peers reach through a Gate.
type Region struct {
	registry *Registry
	token    fabric.Token
	data     []byte
	whole    []byte // the data and the rest of its last page
	revoked  atomic.Bool
}

// Registry holds the regions of one provider. Safe for concurrent use.
type Registry struct {
	sparse  bool // memory comes in small pages
	mu      sync.Mutex
	regions map[fabric.Token]*Region
	gates   map[*Gate]struct{}
	closed  bool
}

// NewRegistry returns an empty registry. The physical memory of its regions is allocated when
// it is first written: in huge pages where the system has them, or, if sparse is set, in small
// ones, so that few written bytes take little memory.
func NewRegistry(sparse bool) *Registry {
	return &Registry{sparse: sparse, regions: map[fabric.Token]*Region{}, gates: map[*Gate]struct{}{}}
}

// CheckSize returns an error for a region larger than the memory of the machine or container:
// such memory would be swapped, or touching it would end the process.
func CheckSize(size int) error {
	if size <= 0 {
		return fmt.Errorf("fabric: region of %d bytes: want at least 1", size)
	}
	if size <= mem.HugePage { // small regions are frequent and always fit
		return nil
	}
	if total := mem.Total(); total > 0 && int64(size) > total {
		return fmt.Errorf("fabric: region of %d bytes exceeds the memory of this machine or its container, %d bytes", size, total)
	}
	return nil
}

// Alloc registers size bytes of zeroed memory.
func (r *Registry) Alloc(size int) (*Region, error) {
	if err := CheckSize(size); err != nil {
		return nil, err
	}
	whole, err := allocate(size)
	if err != nil {
		return nil, fmt.Errorf("fabric: allocate region: %w", err)
	}
	if r.sparse {
		mem.SmallPages(whole)
	}
	return r.add(whole, size)
}

// add registers memory, of which the first size bytes are the region's. After an error it is freed.
func (r *Registry) add(whole []byte, size int) (*Region, error) {
	g := &Region{registry: r, token: NewToken(), data: whole[:size:size], whole: whole}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(fmt.Errorf("register region: %w", fabric.ErrClosed), release(whole))
	}
	r.regions[g.token] = g
	return g, nil
}

// Find returns the region with this token, or an error.
func (r *Registry) Find(token fabric.Token) (*Region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.regions[token]; g != nil {
		return g, nil
	}
	return nil, fabric.ErrBadToken
}

// AddGate makes Close of regions wait for the user of g.
func (r *Registry) AddGate(g *Gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates[g] = struct{}{}
}

// RemoveGate removes g, whose user does not enter again.
func (r *Registry) RemoveGate(g *Gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gates, g)
}

// Close closes every region.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	left := slices.Collect(maps.Values(r.regions))
	r.mu.Unlock()
	var err error
	for _, g := range left {
		err = errors.Join(err, g.Close())
	}
	return err
}

// Discard implements fabric.Region.
func (g *Region) Discard(offset, n int64) error {
	if err := CheckBounds(offset, int(n), g.Size()); err != nil {
		return err
	}
	return DiscardPages(g.data[offset:offset+n], discard)
}

// NextData is mem.NextData of the region's memory from offset on, of at most that many bytes: if
// they hold nothing, both ends are behind them. The caller is inside a gate.
func (g *Region) NextData(offset, most int64) (begin, end int64, err error) {
	if _, err := g.Access(offset, 0); err != nil {
		return 0, 0, err
	}
	from, to := mem.NextData(g.data[:min(g.Size(), offset+most)], int(offset))
	return int64(from), int64(to), nil
}

// Bytes is the region's memory.
func (g *Region) Bytes() []byte { return g.data }

// Size is the region's length in bytes.
func (g *Region) Size() int64 { return int64(len(g.data)) }

// Token names the region.
func (g *Region) Token() fabric.Token { return g.token }

// Access returns the n bytes at offset, valid until the caller leaves its gate.
func (g *Region) Access(offset int64, n int) ([]byte, error) {
	if g.revoked.Load() {
		return nil, fabric.ErrBadToken
	}
	if err := CheckBounds(offset, n, int64(len(g.data))); err != nil {
		return nil, err
	}
	return g.data[offset : offset+int64(n)], nil
}

// Touch prefetches, like the function Touch. The caller is inside a gate.
func (g *Region) Touch(offset int64, n int) {
	if !g.revoked.Load() {
		Touch(g.data, offset, n)
	}
}

// Close revokes the token, waits for accesses to end and frees the memory.
func (g *Region) Close() error {
	if !g.revoke() {
		return nil
	}
	return release(g.whole)
}

// Fence implements [fabric.Region]: the memory becomes another *Region's.
func (g *Region) Fence() (fabric.Region, error) {
	if !g.revoke() {
		return nil, fmt.Errorf("fence region: %w", fabric.ErrClosed)
	}
	r, err := g.registry.add(g.whole, len(g.data))
	if err != nil {
		return nil, err // not r: a nil *Region in a Region is not nil
	}
	return r, nil
}

// revoke revokes the token and waits for accesses to end. It returns false if it was revoked before.
func (g *Region) revoke() bool {
	if g.revoked.Swap(true) {
		return false
	}
	r := g.registry
	r.mu.Lock()
	delete(r.regions, g.token)
	gates := slices.Collect(maps.Keys(r.gates))
	r.mu.Unlock()
	for _, gate := range gates {
		gate.Drain()
	}
	return true
}
