// Package mem is the fabric between goroutines of one process. Every provider
// of the process reaches every listener of it.
//
// A one-sided operation is a bounds check and a copy, executed by the initiator in Submit.
// Nothing runs in the background.
package mem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// Name is the provider's name.
const Name = "mem"

// listeners maps the process's addresses to listeners.
var listeners = struct {
	sync.Mutex
	byAddr map[string]*listener
	next   int // number of the next address that a provider chooses
}{byAddr: map[string]*listener{}}

type provider struct {
	regions   *core.Registry
	listeners core.Closers
	pairs     core.Closers
}

// Open returns a new provider. Its regions are reached only through its own queue pairs.
func Open() fabric.Provider { return &provider{regions: core.NewRegistry(false)} }

// OpenSparse is Open for regions of which little is written: their memory comes in small pages.
func OpenSparse() fabric.Provider { return &provider{regions: core.NewRegistry(true)} }

func (p *provider) Name() string { return Name }

func (p *provider) Alloc(size int) (fabric.Region, error) {
	r, err := p.regions.Alloc(size)
	if err != nil {
		return nil, err // not r: a nil *core.Region in a Region is not nil
	}
	return r, nil
}

func (p *provider) Listen(addr string, depth int) (fabric.Listener, error) {
	if err := core.CheckDepth(depth); err != nil {
		return nil, fmt.Errorf("mem listen %q: %w", addr, err)
	}
	listeners.Lock()
	defer listeners.Unlock()
	if addr == "" {
		listeners.next++
		addr = fmt.Sprintf("mem-%d", listeners.next)
	}
	if listeners.byAddr[addr] != nil {
		return nil, fmt.Errorf("mem listen %q: address in use", addr)
	}
	l := &listener{
		provider: p, addr: addr, depth: depth,
		requests: make(chan *request, backlog), closed: make(chan struct{}),
	}
	if !p.listeners.Add(l) {
		return nil, fmt.Errorf("mem listen %q: %w", addr, fabric.ErrClosed)
	}
	listeners.byAddr[addr] = l
	return l, nil
}

func (p *provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	q, err := p.dial(ctx, addr, private, depth)
	if err != nil {
		return nil, fmt.Errorf("mem dial %q: %w", addr, err)
	}
	return q, nil
}

func (p *provider) dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	if err := errors.Join(core.CheckPrivate(private), core.CheckDepth(depth)); err != nil {
		return nil, err
	}
	listeners.Lock()
	l := listeners.byAddr[addr]
	listeners.Unlock()
	if l == nil {
		return nil, errNoListener
	}
	return l.connect(ctx, newQueuePair(p, depth), slices.Clone(private))
}

// join makes two queue pairs peers and registers both with their providers.
func join(a, b *queuePair) error {
	a.peer, b.peer = b, a
	there, back := make([]uint64, core.ImmRingWords), make([]uint64, core.ImmRingWords)
	a.out, b.in = core.NewImmRing(there), core.NewImmRing(there)
	b.out, a.in = core.NewImmRing(back), core.NewImmRing(back)
	// A queue pair copies from the regions of its peer's provider.
	a.provider.regions.AddGate(&b.gate)
	b.provider.regions.AddGate(&a.gate)
	for _, q := range []*queuePair{a, b} {
		if !q.provider.pairs.Add(q) {
			a.end(fabric.ErrClosed)
			return fabric.ErrClosed
		}
	}
	return nil
}

func (p *provider) Close() error {
	return errors.Join(p.listeners.Close(), p.pairs.Close(), p.regions.Close())
}
