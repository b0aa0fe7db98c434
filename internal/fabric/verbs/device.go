//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

var errNoDevice = errors.New("no RDMA device: see docs/rdma.md")

// checkDevice returns an error unless there is a device.
func checkDevice() error {
	var n C.int
	list, err := C.ibv_get_device_list(&n)
	if list == nil {
		return fmt.Errorf("%w: %w", errNoDevice, err)
	}
	C.ibv_free_device_list(list)
	if n == 0 {
		return errNoDevice
	}
	return nil
}

// sockaddr is a C socket address in Go memory without pointers.
func sockaddr(a netip.AddrPort) *C.struct_sockaddr {
	ip := a.Addr().Unmap()
	port := func(p *uint16) { binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], a.Port()) }
	// Both kinds begin like a sockaddr and are at least as large.
	if ip.Is4() {
		s := &unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		port(&s.Port)
		return (*C.struct_sockaddr)(unsafe.Pointer(s))
	}
	s := &unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16()}
	port(&s.Port)
	return (*C.struct_sockaddr)(unsafe.Pointer(s))
}

// deviceAddress returns an address of this host that belongs to an RDMA device.
func deviceAddress() (netip.Addr, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, i := range interfaces {
		p, err := netip.ParsePrefix(i.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if has, err := hasDevice(p.Addr()); has || err != nil {
			return p.Addr(), err
		}
	}
	return netip.Addr{}, fmt.Errorf("no interface with an address and an RDMA device: %w", errNoDevice)
}

// hasDevice reports whether an address of this host belongs to an RDMA device.
func hasDevice(ip netip.Addr) (bool, error) {
	events, err := newCMEvents()
	if err != nil {
		return false, err
	}
	var id *C.struct_rdma_cm_id
	if n, err := C.rdma_create_id(events.channel, &id, nil, C.RDMA_PS_TCP); n != 0 {
		return false, errors.Join(fmt.Errorf("connection manager: %w", err), events.destroy())
	}
	has := C.rdma_bind_addr(id, sockaddr(netip.AddrPortFrom(ip, 0))) == 0 && id.verbs != nil
	C.rdma_destroy_id(id)
	return has, events.destroy()
}
