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
	regions *core.Registry

	mu        sync.Mutex
	closed    bool
	listeners map[*listener]struct{}
	pairs     map[*queuePair]struct{}
}

// Open returns a new provider. Its regions are reached only through its own queue pairs.
func Open() fabric.Provider {
	return &provider{
		regions:   core.NewRegistry(),
		listeners: map[*listener]struct{}{},
		pairs:     map[*queuePair]struct{}{},
	}
}

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
	l := newListener(p, addr, depth)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("mem listen %q: %w", addr, fabric.ErrClosed)
	}
	p.listeners[l] = struct{}{}
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
	if err := core.CheckPrivate(private); err != nil {
		return nil, err
	}
	q, err := newQueuePair(p, depth)
	if err != nil {
		return nil, err
	}
	listeners.Lock()
	l := listeners.byAddr[addr]
	listeners.Unlock()
	if l == nil {
		return nil, errors.New("no listener at this address")
	}
	return l.connect(ctx, q, append([]byte(nil), private...))
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
		if !q.provider.add(q) {
			a.end(fabric.ErrClosed)
			return fabric.ErrClosed
		}
	}
	return nil
}

func (p *provider) add(q *queuePair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.pairs[q] = struct{}{}
	return true
}

func (p *provider) remove(q *queuePair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, q)
}

func (p *provider) Close() error {
	p.mu.Lock()
	p.closed = true
	ls := make([]*listener, 0, len(p.listeners))
	for l := range p.listeners {
		ls = append(ls, l)
	}
	qs := make([]*queuePair, 0, len(p.pairs))
	for q := range p.pairs {
		qs = append(qs, q)
	}
	p.mu.Unlock()
	var err error
	for _, l := range ls {
		err = errors.Join(err, l.Close())
	}
	for _, q := range qs {
		q.end(fabric.ErrClosed)
	}
	return errors.Join(err, p.regions.Close())
}
