//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sync"
	"unsafe"

	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// domain is a protection domain, which the connections with one process share: a region is
// registered once for all of them. Guarded by domains.mu, except pd, which does not change.
type domain struct {
	id    domainID
	pd    *C.struct_ibv_pd
	users int // endpoints
}

// domainID names the connections that share a domain: those on a device with one peer, which
// dialled or was dialled.
type domainID struct {
	peer    wire.Peer
	dialled bool
	device  *C.struct_ibv_context
}

// domains are those of a provider. It is safe for concurrent use.
type domains struct {
	mu   sync.Mutex
	byID map[domainID]*domain
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
		d = &domain{id: id, pd: pd}
		s.byID[id] = d
	}
	d.users++
	return d, nil
}

// give gives a domain back. The last user frees it.
func (s *domains) give(d *domain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users > 0 {
		return nil
	}
	delete(s.byID, d.id)
	if n := C.ibv_dealloc_pd(d.pd); n != 0 {
		return fmt.Errorf("protection domain: %w", errno(n))
	}
	return nil
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
