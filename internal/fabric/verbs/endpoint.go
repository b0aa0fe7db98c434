//go:build verbs && linux && cgo

package verbs

// #include <errno.h>
// #include <stdlib.h>
// #include "queue.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

const (
	// resolveTime bounds each step of address and route resolution, in ms.
	resolveTime = 2000
	// mostSends is the most pending work requests of a queue pair; further operations wait.
	mostSends = 4096
	// stagingOf is the staging memory per pending operation, within the bounds of a ring.
	stagingOf, leastStaging, mostStaging = 4 << 10, 256 << 10, 2 << 20
	slots                                = core.ImmEntries * C.RECEIVE_SLOT
)

var errNoImmediates = errors.New("the RDMA device is neither InfiniBand nor RoCE: it has no immediates")

// endpoint is the RDMA half of one end of a connection: the libraries' objects, and the
// connection's own registered memory.
type endpoint struct {
	queue       *C.struct_queue
	provider    *provider
	domain      *domain // nil: not taken yet
	events      *cmEvents
	completions *descriptor
	sends       int // work requests that may be pending
	private     *core.Region
	key         *C.struct_ibv_mr // of private
	slots       []byte           // behind the receives
	ring        []byte           // for staging
}

// connect connects to a listening connection manager and sends it the nonce.
func connect(ctx context.Context, p *provider, peer wire.Peer, local, remote netip.AddrPort, nonce wire.Nonce, depth int) (_ *endpoint, err error) {
	e, err := newEndpoint(p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.destroy())
		}
	}()
	q := e.queue
	if n, err := C.rdma_create_id(e.events.channel, &q.id, nil, C.RDMA_PS_TCP); n != 0 {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	if n, err := C.rdma_resolve_addr(q.id, sockaddr(netip.AddrPortFrom(local.Addr(), 0)), sockaddr(remote), resolveTime); n != 0 {
		return nil, fmt.Errorf("resolve %v: %w", remote, err)
	}
	if err := e.events.expect(ctx, C.RDMA_CM_EVENT_ADDR_RESOLVED); err != nil {
		return nil, fmt.Errorf("resolve %v: %w", remote, err)
	}
	if n, err := C.rdma_resolve_route(q.id, resolveTime); n != 0 {
		return nil, fmt.Errorf("route to %v: %w", remote, err)
	}
	if err := e.events.expect(ctx, C.RDMA_CM_EVENT_ROUTE_RESOLVED); err != nil {
		return nil, fmt.Errorf("route to %v: %w", remote, err)
	}
	if err := e.create(domainID{peer: peer, dialled: true, device: q.id.verbs}, depth); err != nil {
		return nil, err
	}
	if n, err := C.queue_connect(q, unsafe.Pointer(&nonce), C.uint8_t(len(nonce))); n != 0 {
		return nil, fmt.Errorf("connect to %v: %w", remote, err)
	}
	if err := e.events.expect(ctx, C.RDMA_CM_EVENT_ESTABLISHED); err != nil {
		return nil, fmt.Errorf("connect to %v: %w", remote, err)
	}
	return e, nil
}

// accept accepts the connection of id, a listener's child, in a domain. The endpoint owns id from here on.
func accept(ctx context.Context, p *provider, in domainID, id *C.struct_rdma_cm_id, depth int) (_ *endpoint, err error) {
	e, err := newEndpoint(p)
	if err != nil {
		C.rdma_destroy_id(id)
		return nil, err
	}
	e.queue.id = id
	defer func() {
		if err != nil {
			err = errors.Join(err, e.destroy())
		}
	}()
	if n, err := C.rdma_migrate_id(id, e.events.channel); n != 0 {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	if err := e.create(in, depth); err != nil {
		return nil, err
	}
	if n, err := C.queue_accept(e.queue); n != 0 {
		return nil, fmt.Errorf("connection manager: accept: %w", err)
	}
	if err := e.events.expect(ctx, C.RDMA_CM_EVENT_ESTABLISHED); err != nil {
		return nil, fmt.Errorf("connection manager: accept: %w", err)
	}
	return e, nil
}

func newEndpoint(p *provider) (*endpoint, error) {
	events, err := newCMEvents()
	if err != nil {
		return nil, err
	}
	return &endpoint{provider: p, events: events, queue: (*C.struct_queue)(C.calloc(1, C.sizeof_struct_queue))}, nil
}

// create creates the queue pair on the resolved device and posts all its receives.
func (e *endpoint) create(id domainID, depth int) (err error) {
	q := e.queue
	if e.domain, err = e.provider.domains.take(id); err != nil {
		return err
	}
	q.pd = e.domain.pd
	e.sends = min(depth+1, mostSends, int(C.queue_sends(q, core.ImmEntries)))
	if e.sends < 2 {
		return fmt.Errorf("the RDMA device has no room for %d immediates", core.ImmEntries)
	}
	switch n := C.queue_create(q, C.uint32_t(e.sends), core.ImmEntries); n {
	case 0:
	case C.EPROTONOSUPPORT:
		return errNoImmediates
	default:
		return fmt.Errorf("create queue pair: %w", errno(n))
	}
	if e.completions, err = newDescriptor(q.channel.fd, "completions"); err != nil {
		return err
	}
	size := min(max(leastStaging, 1<<bits.Len(uint(depth*stagingOf-1))), mostStaging)
	if e.private, err = e.provider.memory.Alloc(slots + size); err != nil {
		return err
	}
	b := e.private.Bytes()
	if e.key, err = e.domain.register(b, 0); err != nil {
		return err
	}
	e.slots, e.ring = b[:slots], b[slots:]
	q.receive_base, q.receive_key = C.uint64_t(address(b)), e.key.lkey
	return e.receive(0, core.ImmEntries)
}

// receive posts n receives, from slot first on.
func (e *endpoint) receive(first, n int) error {
	if r := C.queue_receive(e.queue, C.uint32_t(first), C.uint32_t(n)); r != 0 {
		return fmt.Errorf("post receives: %w", errno(r))
	}
	return nil
}

// end ends all operations: none of either end accesses memory any more. Disconnecting is not
// enough: the adapter may still execute operations that it has begun. No work is posted or
// polled during end or after it.
func (e *endpoint) end() {
	C.rdma_disconnect(e.queue.id) // the peer may be gone
	C.rdma_destroy_qp(e.queue.id)
}

// destroy releases all resources. The endpoint is not used any more.
func (e *endpoint) destroy() (err error) {
	q := e.queue
	if e.completions != nil {
		_ = e.completions.file.Close() // may be closed already
	}
	if q.id != nil && q.id.qp != nil {
		C.rdma_destroy_qp(q.id)
	}
	if e.key != nil {
		err = unregister(e.key)
	}
	if e.private != nil {
		err = errors.Join(err, e.private.Close())
	}
	if q.id != nil {
		if n := C.queue_destroy(q); n != 0 {
			err = errors.Join(err, fmt.Errorf("destroy queue pair: %w", errno(n)))
		}
		C.rdma_destroy_id(q.id)
	}
	if e.domain != nil {
		e.provider.domains.give(e.domain)
	}
	err = errors.Join(err, e.events.destroy())
	C.free(unsafe.Pointer(q))
	e.queue = nil
	return err
}
