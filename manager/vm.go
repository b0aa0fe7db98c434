package manager

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/plan"
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
	Secret     string // of its control API (server.Options.ControlSecret); empty: it has none
	Distance   uint32 // switches between it and its clients; 0: not known

	// What it is and costs (6.1). A server that registers itself may say so; for a VM
	// that was launched the menu counts.
	Type        string
	Spot        bool
	CloudRegion string
	Price       plan.Price    // of the whole VM
	Notice      time.Duration // before its end, if it is a spot VM
	Started     time.Time     // when the manager first knew of it; the manager's to say

	speaker string // the token that registered it, by its name; empty: it took none
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
	if len(v.Secret) > maxIDLen {
		return fmt.Errorf("VM %s: secret of %d bytes: want at most %d", v.ID, len(v.Secret), maxIDLen)
	}
	if v.Price < 0 || v.Price > plan.MaxPrice {
		return fmt.Errorf("VM %s: price %v: want $0.00/h to %v", v.ID, v.Price, plan.MaxPrice)
	}
	if len(v.Type) > maxIDLen || len(v.CloudRegion) > maxIDLen {
		return fmt.Errorf("VM %s: type %.40q in cloud region %.40q: want at most %d bytes each", v.ID, v.Type, v.CloudRegion, maxIDLen)
	}
	if v.Notice < 0 || v.Notice > MaxNotice {
		return fmt.Errorf("VM %s: notice %v: want 0 to %v", v.ID, v.Notice, MaxNotice)
	}
	return nil
}

// token is what a client shows the VM's server to use what it was granted.
func (v VM) token(t controltoken.Terms) string {
	if v.Secret == "" {
		return ""
	}
	return t.Token(v.Secret)
}

// authorize has a call to the VM's server show that it comes from its manager.
func (v VM) authorize(h http.Header, m controltoken.Incarnation) {
	if v.Secret != "" {
		h.Set("Authorization", "Bearer "+m.Token(v.Secret))
		h.Set(controltoken.IncarnationHeader, m.String())
	}
}

// vmFromProto leaves out what a Vm message does not say: its secret.
func vmFromProto(p *managerv1.Vm) VM {
	return VM{
		ID: p.GetId(), ControlURL: p.GetControlUrl(), Transport: p.GetTransport(), FabricAddr: p.GetFabricAddr(),
		Memory: p.GetMemory(), Free: p.GetFreeMemory(), Cores: p.GetCores(),
		Distance: p.GetDistance(),
		Type:     p.GetType(), Spot: p.GetSpot(), CloudRegion: p.GetCloudRegion(), Price: plan.Price(p.GetPriceMicros()),
		Notice: time.Duration(min(p.GetNoticeMs(), MaxNotice.Milliseconds()+1)) * time.Millisecond, Started: fromMillis(p.GetStartedUnixMs()),
	}
}

// fromMillis is the time of a message; 0 is none.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (v VM) proto(healthy bool) *managerv1.Vm {
	return &managerv1.Vm{
		Id: v.ID, ControlUrl: v.ControlURL, Transport: v.Transport, FabricAddr: v.FabricAddr,
		Memory: v.Memory, FreeMemory: v.Free, Cores: v.Cores, Healthy: healthy,
		Distance: v.Distance,
		Type:     v.Type, Spot: v.Spot, CloudRegion: v.CloudRegion, PriceMicros: int64(v.Price),
		NoticeMs: v.Notice.Milliseconds(), StartedUnixMs: toMillis(v.Started),
	}
}
