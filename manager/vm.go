package manager

import (
	"fmt"
	"net/url"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// VM is one virtual machine with a cache server on it, as an allocator or the
// server itself announces it.
type VM struct {
	ID         string // unique among the manager's VMs, and for one incarnation only
	ControlURL string // the server's control API: http://host:port
	Transport  string // how its memory is reached: mem, shm, tcp, verbs
	FabricAddr string // where its fabric listens, in the transport's own form
	Memory     uint64 // bytes that it lends in all
	Free       uint64 // bytes of them not lent to anybody
	Cores      uint32 // server threads; 0: one-sided access only
	Distance   uint32 // switches between it and its clients; 0: not known
}

// Bounds on what a server may say of itself. They keep sums of sizes far from
// overflow and a catalog entry small.
const (
	maxVMMemory = 1 << 50
	maxVMCores  = 1 << 12
	maxDistance = 64
	maxIDLen    = 128
	maxAddrLen  = 1024
)

// check refuses a VM that could not be used or that would harm the catalog.
func (v VM) check() error {
	if v.ID == "" || len(v.ID) > maxIDLen {
		return fmt.Errorf("VM id %.40q: want 1 to %d bytes", v.ID, maxIDLen)
	}
	u, err := url.Parse(v.ControlURL)
	if len(v.ControlURL) > maxAddrLen || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("VM %s: control URL %.80q: want http://host:port", v.ID, v.ControlURL)
	}
	if v.Transport == "" || len(v.Transport) > maxIDLen {
		return fmt.Errorf("VM %s: transport %.40q: want a name such as tcp", v.ID, v.Transport)
	}
	if v.FabricAddr == "" || len(v.FabricAddr) > maxAddrLen {
		return fmt.Errorf("VM %s: fabric address %.80q: want 1 to %d bytes", v.ID, v.FabricAddr, maxAddrLen)
	}
	if v.Memory == 0 || v.Memory > maxVMMemory || v.Free > v.Memory {
		return fmt.Errorf("VM %s: %d of %d bytes free: want free <= memory, memory from 1 to %d", v.ID, v.Free, v.Memory, uint64(maxVMMemory))
	}
	if v.Cores > maxVMCores {
		return fmt.Errorf("VM %s: %d cores: want at most %d", v.ID, v.Cores, maxVMCores)
	}
	if v.Distance > maxDistance {
		return fmt.Errorf("VM %s: distance of %d switches: want at most %d", v.ID, v.Distance, maxDistance)
	}
	return nil
}

func vmFromProto(p *managerv1.Vm) VM {
	return VM{
		ID: p.GetId(), ControlURL: p.GetControlUrl(), Transport: p.GetTransport(), FabricAddr: p.GetFabricAddr(),
		Memory: p.GetMemory(), Free: p.GetFreeMemory(), Cores: p.GetCores(),
		Distance: p.GetDistance(),
	}
}

func (v VM) proto(healthy bool) *managerv1.Vm {
	return &managerv1.Vm{
		Id: v.ID, ControlUrl: v.ControlURL, Transport: v.Transport, FabricAddr: v.FabricAddr,
		Memory: v.Memory, FreeMemory: v.Free, Cores: v.Cores, Healthy: healthy,
		Distance: v.Distance,
	}
}
