// Package node is a VM with a cache server as its manager and allocator see it: the VM's
// properties ([VM]), and the server with its registration, heartbeats and leave ([Node]).
package node

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// VM are the properties of a virtual machine with a cache server, as the server or an
// allocator announces them.
type VM struct {
	ID         string // unique; a server that is started again may have the same one
	Start      uint64 // number of the server's incarnation, from 1 on; the later of two has the higher one
	ControlURL string // the server's control API: http://host:port
	Transport  string // mem, shm, tcp or verbs
	FabricAddr string // address at which its fabric listens, in the transport's form
	Memory     uint64 // bytes that it can lend in all
	Free       uint64 // bytes of them that are not lent
	Cores      uint32 // server threads; 0: one-sided access only
	Secret     string // of its control API (server.Options.ControlSecret)
	Distance   uint32 // switches between it and its clients; 0: not known
	Processor  string // kind of its machine's processors; empty: not known
	Processors uint32 // of its machine

	// Type and price (6.1). A server that registers itself may state them; for a launched
	// VM they come from the menu.
	Type        string
	Spot        bool
	CloudRegion string
	Price       plan.Price    // of the whole VM
	Notice      time.Duration // of a spot VM's reclaim
	Started     time.Time     // when it registered first; set by the manager
}

// Bounds of a VM's properties. They keep sums from overflowing and records small.
const (
	MaxMemory   = 1 << 50
	MaxCores    = 1 << 12
	MaxDistance = 64
	MaxNotice   = 30 * 24 * time.Hour // of a VM that is reclaimed
	MaxStart    = 1 << 62

	maxAddrLen   = 1024
	maxProcessor = 256
)

// Check reports invalid properties.
func (v VM) Check() error {
	u, err := url.Parse(v.ControlURL)
	switch {
	case v.ID == "" || len(v.ID) > api.MaxIDLen:
		return fmt.Errorf("VM id %.40q: want 1 to %d bytes", v.ID, api.MaxIDLen)
	case v.Start < 1 || v.Start > MaxStart:
		return fmt.Errorf("VM %s: start %d: want the number of the server's incarnation, from 1 to %d", v.ID, v.Start, uint64(MaxStart))
	case len(v.ControlURL) > maxAddrLen || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("VM %s: control URL %.80q: want http://host:port", v.ID, v.ControlURL)
	case v.Transport == "" || len(v.Transport) > api.MaxIDLen:
		return fmt.Errorf("VM %s: transport %.40q: want a name such as tcp", v.ID, v.Transport)
	case v.FabricAddr == "" || len(v.FabricAddr) > maxAddrLen:
		return fmt.Errorf("VM %s: fabric address %.80q: want 1 to %d bytes", v.ID, v.FabricAddr, maxAddrLen)
	case v.Memory == 0 || v.Memory > MaxMemory || v.Free > v.Memory:
		return fmt.Errorf("VM %s: %d of %d bytes free: want free <= memory, memory from 1 to %d", v.ID, v.Free, v.Memory, uint64(MaxMemory))
	case v.Cores > MaxCores:
		return fmt.Errorf("VM %s: %d cores: want at most %d", v.ID, v.Cores, MaxCores)
	case v.Distance > MaxDistance:
		return fmt.Errorf("VM %s: distance of %d switches: want at most %d", v.ID, v.Distance, MaxDistance)
	case len(v.Processor) > maxProcessor || v.Processors > MaxCores:
		return fmt.Errorf("VM %s: %d processors %.40q: want at most %d, and a name of at most %d bytes", v.ID, v.Processors, v.Processor, MaxCores, maxProcessor)
	case len(v.Secret) > api.MaxIDLen:
		return fmt.Errorf("VM %s: secret of %d bytes: want at most %d", v.ID, len(v.Secret), api.MaxIDLen)
	case v.Price < 0 || v.Price > plan.MaxPrice:
		return fmt.Errorf("VM %s: price %v: want $0.00/h to %v", v.ID, v.Price, plan.MaxPrice)
	case len(v.Type) > api.MaxIDLen || len(v.CloudRegion) > api.MaxIDLen:
		return fmt.Errorf("VM %s: type %.40q in cloud region %.40q: want at most %d bytes each", v.ID, v.Type, v.CloudRegion, api.MaxIDLen)
	case v.Notice < 0 || v.Notice > MaxNotice:
		return fmt.Errorf("VM %s: notice %v: want 0 to %v", v.ID, v.Notice, MaxNotice)
	}
	return nil
}

// Token returns the token of a grant with these terms.
func (v VM) Token(t *managerv1.Terms) string { return controltoken.Grant(v.Secret, t) }

// Authorize adds to a call of the VM's server the headers that authenticate its manager.
func (v VM) Authorize(h http.Header, m controltoken.Incarnation) {
	h.Set("Authorization", "Bearer "+m.Token(v.Secret))
	h.Set(controltoken.IncarnationHeader, m.String())
}

// FromProto returns the VM of a message, which has no secret.
func FromProto(p *managerv1.Vm) VM {
	return VM{
		ID: p.GetId(), Start: p.GetStart(), ControlURL: p.GetControlUrl(), Transport: p.GetTransport(), FabricAddr: p.GetFabricAddr(),
		Memory: p.GetMemory(), Free: p.GetFreeMemory(), Cores: p.GetCores(),
		Distance: p.GetDistance(), Processor: p.GetProcessor(), Processors: p.GetProcessors(),
		Type: p.GetType(), Spot: p.GetSpot(), CloudRegion: p.GetCloudRegion(), Price: plan.Price(p.GetPriceMicros()),
		Notice: time.Duration(min(p.GetNoticeMs(), MaxNotice.Milliseconds()+1)) * time.Millisecond, Started: api.FromMillis(p.GetStartedUnixMs()),
	}
}

// Proto returns the VM as a message, without its secret.
func (v VM) Proto(healthy bool) *managerv1.Vm {
	return &managerv1.Vm{
		Id: v.ID, Start: v.Start, ControlUrl: v.ControlURL, Transport: v.Transport, FabricAddr: v.FabricAddr,
		Memory: v.Memory, FreeMemory: v.Free, Cores: v.Cores, Healthy: healthy,
		Distance: v.Distance, Processor: v.Processor, Processors: v.Processors,
		Type: v.Type, Spot: v.Spot, CloudRegion: v.CloudRegion, PriceMicros: int64(v.Price),
		NoticeMs: v.Notice.Milliseconds(), StartedUnixMs: api.ToMillis(v.Started),
	}
}
