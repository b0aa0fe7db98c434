//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// linger is how long a domain outlives its last connection, with all that is registered in it: a peer
// whose connections break and that connects again finds its regions registered.
const linger = 10 * time.Second

// domain is a protection domain, which the connections with one process share: a region is
// registered once for all of them. Guarded by domains.mu, except pd, which does not change.
type domain struct {
	id    domainID
	pd    *C.struct_ibv_pd
	users int         // endpoints
	holds int         // registrations of regions for peers, and one while it is in byID
	idle  *time.Timer // ends the domain; nil until it first has no users
}

// domainID names the connections that share a domain: those on a device with one peer, which was
// dialled, or dialled and has the same rights to this side's regions.
type domainID struct {
	peer    wire.Peer
	dialled bool
	rights  fabric.Rights
	device  *C.struct_ibv_context
}

// domains are those of a provider. It is safe for concurrent use.
type domains struct {
	linger   time.Duration
	dropKeys func(*domain) error // ends all registrations for peers

	mu     sync.Mutex
	byID   map[domainID]*domain
	closed bool
	ending sync.WaitGroup
	err    error // of domains that ended by themselves
}

// take returns the domain of an id. The caller gives it back after it has destroyed what it made
// in the domain.
func (s *domains) take(id domainID) (*domain, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byID[id]
	if d == nil {
		pd, err := C.ibv_alloc_pd(id.device)
		if pd == nil {
			return nil, fmt.Errorf("protection domain: %w", err)
		}
		d = &domain{id: id, pd: pd, holds: 1}
		s.byID[id] = d
	}
	d.users++
	return d, nil
}

// give gives a domain back. It ends if nobody takes it again within linger, or at once after close.
func (s *domains) give(d *domain) {
	s.mu.Lock()
	d.users--
	idle, closed := d.users == 0, s.closed
	switch {
	case !idle || closed:
	case d.idle == nil:
		d.idle = time.AfterFunc(s.linger, func() { s.expire(d) })
	default:
		d.idle.Reset(s.linger)
	}
	s.mu.Unlock()
	if idle && closed {
		s.expire(d)
	}
}

// expire ends a domain without users.
func (s *domains) expire(d *domain) {
	s.mu.Lock()
	if d.users > 0 || s.byID[d.id] != d {
		s.mu.Unlock()
		return
	}
	delete(s.byID, d.id)
	s.ending.Add(1)
	s.mu.Unlock()
	defer s.ending.Done()
	if err := errors.Join(s.dropKeys(d), s.release(d)); err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
	}
}

// hold keeps a domain for one more registration, until release.
func (s *domains) hold(d *domain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.holds++
}

// release frees the domain with its last hold.
func (s *domains) release(d *domain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.holds--; d.holds > 0 {
		return nil
	}
	if n := C.ibv_dealloc_pd(d.pd); n != 0 {
		return fmt.Errorf("protection domain: %w", errno(n))
	}
	return nil
}

// close ends all domains; those that have users, when they are given back.
func (s *domains) close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.byID))
	s.mu.Unlock()
	for _, d := range all {
		s.expire(d)
	}
	s.ending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// register registers memory outside the Go heap.
func (d *domain) register(b []byte, flags C.int) (*C.struct_ibv_mr, error) {
	mr, err := C.domain_register(d.pd, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), flags)
	if mr == nil {
		return nil, fmt.Errorf("register %d bytes; the limit of locked memory may be too low: %w", len(b), err)
	}
	return mr, nil
}

// peerAt returns what this process calls itself to the listener at an address. No other
// listener learns it.
func (p *provider) peerAt(addr string) (peer wire.Peer) {
	mac := hmac.New(sha256.New, p.secret[:])
	mac.Write([]byte(addr))
	copy(peer[:], mac.Sum(nil))
	return peer
}
