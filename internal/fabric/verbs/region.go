//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// revokeTime is the time that peers have to release a revoked region.
const revokeTime = 2 * time.Second

var errKept = errors.New("the peer did not release a revoked region in time")

// region is memory of this process that peers may import, and that queue pairs of this process
// use without staging.
type region struct {
	*core.Region
	provider    *provider
	preparation core.Preparation

	mu      sync.Mutex
	revoked bool
	loans   map[*loan]struct{}
	keys    map[*domain]*C.struct_ibv_mr // where peers imported it, until the domain or the region ends
	users   map[*queuePair]struct{}      // queue pairs that registered it for their own use
	given   chan struct{}                // signalled when a loan is released
}

// loan is a region that the peer of one connection has imported.
type loan struct {
	region *region
	pair   *queuePair
	id     uint32
	key    *C.struct_ibv_mr
}

// lend lends the region to the peer of a queue pair. The first loan in a domain registers the
// region; loans of other regions do not wait for it. Called by the pair's reader.
func (r *region) lend(q *queuePair) (*loan, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked {
		return nil, fabric.ErrBadToken
	}
	key, err := r.keyIn(q.rdma.domain)
	if err != nil {
		return nil, err
	}
	l := &loan{region: r, pair: q, key: key}
	if l.id, err = q.lent.Put(l); err != nil {
		return nil, err
	}
	r.loans[l] = struct{}{}
	return l, nil
}

// keyIn returns the region's registration in a domain. Called with mu held.
func (r *region) keyIn(d *domain) (*C.struct_ibv_mr, error) {
	if key := r.keys[d]; key != nil {
		return key, nil
	}
	flags := C.int(C.REGISTER_READS)
	if d.id.rights == fabric.ReadWrite {
		flags |= C.REGISTER_WRITES
	}
	if r.provider.sparse {
		flags |= C.REGISTER_ON_DEMAND
	}
	key, err := d.register(r.Bytes(), flags)
	if err != nil {
		return nil, err
	}
	r.provider.domains.hold(d)
	r.keys[d] = key
	return key, nil
}

// dropKey ends the region's registration in a domain, if there is one. No peer uses it any more.
// Called with mu held.
func (r *region) dropKey(d *domain) error {
	key := r.keys[d]
	if key == nil {
		return nil
	}
	delete(r.keys, d)
	return errors.Join(unregister(key), r.provider.domains.release(d))
}

// end ends the loan. Called by the pair's reader.
func (l *loan) end() {
	r := l.region
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.loans, l)
	select {
	case r.given <- struct{}{}:
	default: // signalled already
	}
}

// Close implements [fabric.Region].
func (r *region) Close() error {
	if err, ok := r.revoke(); ok {
		return errors.Join(err, r.Region.Close())
	}
	return nil
}

// Fence implements [fabric.Region]. The new region's registrations have other keys.
func (r *region) Fence() (fabric.Region, error) {
	switch err, ok := r.revoke(); {
	case !ok:
		return nil, fmt.Errorf("fence region: %w", fabric.ErrClosed)
	case err != nil: // peers may still access this memory, which is kept until the provider is closed
		n, err := r.provider.Alloc(len(r.Bytes()))
		if err == nil {
			copy(n.Bytes(), r.Bytes())
		}
		return n, err
	}
	m, err := r.Region.Fence()
	if err != nil {
		return nil, err
	}
	return r.provider.add(m.(*core.Region)), nil
}

// revoke revokes the region: no import succeeds any more, and when it returns no peer can access
// the memory. ok is false if it was revoked before.
func (r *region) revoke() (err error, ok bool) {
	r.mu.Lock()
	if r.revoked {
		r.mu.Unlock()
		return nil, false
	}
	r.revoked = true
	for l := range r.loans {
		l.pair.control.send(wire.Frame{Kind: wire.Revoke, ID: l.id})
	}
	users := slices.Collect(maps.Keys(r.users))
	r.mu.Unlock()
	r.provider.forget(r)
	timer := time.NewTimer(revokeTime)
	defer timer.Stop()
	for r.left() > 0 {
		select {
		case <-r.given:
		case <-timer.C:
			r.cut()
		}
	}
	for _, q := range users {
		err = errors.Join(err, q.unuse(r))
	}
	r.mu.Lock()
	for d := range r.keys {
		err = errors.Join(err, r.dropKey(d))
	}
	r.mu.Unlock()
	r.provider.preparer.End(&r.preparation)
	return err, true
}

// Discard implements fabric.Region. An adapter may have the memory registered, which must stay
// where it is.
func (r *region) Discard(offset, n int64) error {
	if err := core.CheckBounds(offset, int(n), r.Size()); err != nil {
		return err
	}
	clear(r.Bytes()[offset : offset+n])
	return nil
}

// Ready implements [fabric.Preparing].
func (r *region) Ready(ctx context.Context) { r.provider.preparer.Ready(ctx, &r.preparation) }

func (r *region) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.loans)
}

// cut disconnects the peers that still have the region, which ends their loans.
func (r *region) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.loans {
		l.pair.fail(errKept)
	}
}

// holds reports whether b is memory of the region.
func (r *region) holds(b []byte) bool {
	start, at := address(r.Bytes()), address(b)
	return at >= start && at+uint64(len(b)) <= start+uint64(r.Size())
}

// address returns the address of memory outside the Go heap, which does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func unregister(key *C.struct_ibv_mr) error {
	if n := C.ibv_dereg_mr(key); n != 0 {
		return fmt.Errorf("deregister memory: %w", errno(n))
	}
	return nil
}

func errno(n C.int) error { return syscall.Errno(n) }
