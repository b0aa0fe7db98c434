//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
	"github.com/redykv/redykv/internal/mem"
)

// provider is the fabric over RDMA. It is safe for concurrent use.
type provider struct {
	core.Sockets
	memory   *core.Registry // allocates regions, and closes them with the provider
	sparse   bool           // regions are registered on demand, where the device can
	preparer core.Preparer  // memory is pinned sooner if it is populated
	domains  domains
	secret   [32]byte // of peerAt

	mu      sync.Mutex
	byToken map[fabric.Token]*region
	byPlace atomic.Pointer[[]*region] // ascending by address
}

// Open returns a new provider. It fails if there is no RDMA device.
func Open() (fabric.Provider, error) { return openProvider(false) }

// OpenSparse is Open for regions of which little is written: their memory comes in small pages.
// An adapter that can fault pages in accesses them without registering all of their memory;
// others need all of a region's memory from its first import on.
func OpenSparse() (fabric.Provider, error) { return openProvider(true) }

func openProvider(sparse bool) (fabric.Provider, error) {
	if err := checkDevice(); err != nil {
		return nil, fmt.Errorf("verbs: %w", err)
	}
	p := &provider{
		Sockets: core.Sockets{Transport: Name, Network: "tcp"},
		memory:  core.NewRegistry(sparse), sparse: sparse, byToken: map[fabric.Token]*region{},
		preparer: core.Preparer{Populate: func(memory []byte) bool { mem.Populate(memory); return true }},
	}
	p.domains = domains{linger: linger, dropKeys: p.dropKeys, byID: map[domainID]*domain{}}
	_, _ = rand.Read(p.secret[:]) // never fails: crypto/rand ends the process instead
	p.byPlace.Store(new([]*region))
	return p, nil
}

// Alloc allocates memory. It is registered when a peer imports it or a queue pair uses it.
func (p *provider) Alloc(size int) (fabric.Region, error) {
	m, err := p.memory.Alloc(size)
	if err != nil {
		return nil, err
	}
	r := p.add(m)
	if !p.sparse {
		p.preparer.Prepare(&r.preparation, r.Bytes())
	}
	return r, nil
}

// add makes memory a region of the provider.
func (p *provider) add(m *core.Region) *region {
	r := &region{
		Region: m, provider: p, given: make(chan struct{}, 1),
		loans: map[*loan]struct{}{}, keys: map[*domain]*C.struct_ibv_mr{}, users: map[*queuePair]struct{}{},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byToken[r.Token()] = r
	places := slices.Clone(*p.byPlace.Load())
	at, _ := slices.BinarySearchFunc(places, address(r.Bytes()), comparePlace)
	places = slices.Insert(places, at, r)
	p.byPlace.Store(&places)
	return r
}

func comparePlace(r *region, at uint64) int { return cmp.Compare(address(r.Bytes()), at) }

// find returns the region with this token.
func (p *provider) find(token fabric.Token) (*region, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byToken[token]; r != nil {
		return r, nil
	}
	return nil, fabric.ErrBadToken
}

// regionOf returns the region that b lies in, or nil.
func (p *provider) regionOf(b []byte) *region {
	places := *p.byPlace.Load()
	at, exact := slices.BinarySearchFunc(places, address(b), comparePlace)
	if !exact {
		at--
	}
	if at < 0 || !places[at].holds(b) {
		return nil
	}
	return places[at]
}

// forget removes a region from the tables.
func (p *provider) forget(r *region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byToken, r.Token())
	places := slices.DeleteFunc(slices.Clone(*p.byPlace.Load()), func(o *region) bool { return o == r })
	p.byPlace.Store(&places)
}

// dropKeys ends all registrations of regions in a domain that has no connections. A region that is
// closed meanwhile does so itself.
func (p *provider) dropKeys(d *domain) (err error) {
	for _, r := range *p.byPlace.Load() {
		r.mu.Lock()
		err = errors.Join(err, r.dropKey(d))
		r.mu.Unlock()
	}
	return err
}

// Listen listens at a host and port, or, if addr is empty, at a free port of the
// first address that an RDMA device has.
func (p *provider) Listen(addr string, depth int) (fabric.Listener, error) {
	l, err := listen(p, addr, depth)
	if err != nil {
		return nil, fmt.Errorf("verbs listen %q: %w", addr, err)
	}
	return l, nil
}

func (p *provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	return p.Connect(ctx, addr, private, depth, func(c net.Conn) (fabric.QueuePair, error) {
		conn := c.(*net.TCPConn)
		e, answer, err := p.greet(ctx, conn, p.peerAt(addr), private, depth)
		if err != nil {
			return nil, err
		}
		q, err := start(p, conn, e, answer, depth, core.Terms{})
		if err != nil {
			return nil, err
		}
		q.control.send(wire.Frame{Kind: wire.Ready})
		return q, nil
	})
}

// greet sends the greeting, makes the RDMA connection that the listener then expects, and
// returns the listener's private data.
func (p *provider) greet(ctx context.Context, conn *net.TCPConn, self wire.Peer, private []byte, depth int) (*endpoint, []byte, error) {
	var b [wire.VerdictSize]byte
	if err := core.Within(ctx, conn.SetDeadline, func() error {
		_, err := conn.Write(wire.AppendHello(nil, self, private))
		if err == nil {
			_, err = io.ReadFull(conn, b[:])
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	v, err := wire.DecodeVerdict(b[:])
	if err != nil {
		return nil, nil, err
	}
	if !v.Accepted {
		return nil, nil, fmt.Errorf("%w: %s", fabric.ErrRejected, v.Text)
	}
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	e, err := connect(ctx, p, self, conn.LocalAddr().(*net.TCPAddr).AddrPort(), netip.AddrPortFrom(peer.Addr(), v.Port), v.Nonce, depth)
	return e, v.Text, err
}

// Close closes listeners, queue pairs and regions.
func (p *provider) Close() error {
	err := errors.Join(p.Listeners.Close(), p.Pairs.Close(), p.domains.close())
	p.preparer.Close()
	return errors.Join(err, p.memory.Close())
}
