package plan

import (
	"fmt"
	"math"
	"time"
)

// Price is an amount of money per hour, in millionths of a dollar. It is an integer, so
// that sums and comparisons are exact.
type Price int64

// MaxPrice is the highest price of one VM: $10,000 an hour.
const MaxPrice Price = 10_000_000_000

// Dollars returns the price of perHour dollars an hour.
func Dollars(perHour float64) Price { return Price(math.Round(perHour * 1e6)) }

// Dollars returns the price in dollars an hour.
func (p Price) Dollars() float64 { return float64(p) / 1e6 }

// String formats the price as "$0.35/h", with at most six decimals.
func (p Price) String() string {
	if p < 0 {
		return "-" + (-p).String()
	}
	s := fmt.Sprintf("%d.%06d", p/1e6, p%1e6)
	for i := 0; i < 4 && s[len(s)-1] == '0'; i++ {
		s = s[:len(s)-1]
	}
	return "$" + s + "/h"
}

// Config is an RDMA configuration (table 2).
type Config struct{ C, S, B, Q int }

// Offer is a VM type that can be launched.
type Offer struct {
	Type     string
	Spot     bool
	Memory   uint64 // bytes that one VM lends
	Cores    int    // server threads that one VM can run
	Distance int    // network switches between it and the client; 0: unknown
	Price    Price  // of one VM, however much of it is used; at most MaxPrice
	// Available is the number of VMs that can be launched now; negative: any number.
	Available int
	// Note is for people: which machines offer the type, or why there is none.
	Note string
	// Notice is the time between a spot VM's reclaim notice and its end.
	Notice time.Duration
	// Lifetime is the expected lifetime of a VM of the type; 0: unknown.
	Lifetime time.Duration
	// Warm is the number of available VMs that run already, as targets of migrations.
	Warm int
	// Ready is the number of available VMs that need not be launched for this demand. They
	// do not count against [Policy]'s Room.
	Ready int
	// Fitted marks a type whose VMs are made to measure: a VM gets the memory and the cores
	// of its part of the cache. Memory is then the limit for one VM, 0 for none; Cores is
	// ignored.
	Fitted bool
}

// Name returns the type, marked if it is a spot type.
func (o Offer) Name() string {
	if o.Spot {
		return o.Type + " (spot)"
	}
	return o.Type
}

// Server is a registered cache server, which caches share. [Choose] takes servers in order
// of age, the oldest first.
type Server struct {
	ID        string
	Transport string
	Free      uint64 // bytes
	Memory    uint64 // total bytes, which Price pays for
	Cores     int    // free server threads
	Distance  int    // network switches between it and the client; 0: unknown
	Price     Price  // of the whole server: a cache pays its share; at most MaxPrice
	// Fresh marks a server that has just joined and may not stay. One cache gets at most
	// half its memory while others have room at no higher price (A34).
	Fresh bool
}

// Demand describes what a cache needs.
type Demand struct {
	RegionSize uint64 // bytes
	Regions    int    // regions to place
	// Per is the number of regions that the configuration's S server threads serve; 0:
	// Regions.
	Per int
	// Configs holds the acceptable configuration of each network distance. That of distance
	// 0 applies to each distance without one.
	Configs map[int]Config
	// Distance is the distance of the VMs that the cache has already, 0 if it has none. New
	// VMs are not farther away unless there are none so near.
	Distance  int
	Transport string        // the transport that servers must lend their memory over
	Duration  time.Duration // expected lifetime of the cache; 0: no end
}

// Policy holds the operator's settings, which apply to all caches.
type Policy struct {
	// MaxVMs is the maximum number of VMs of one cache. Default: 1024.
	MaxVMs int
	// Room is the total memory that launched VMs may have, in bytes. nil: no limit.
	Room *uint64
	// MigrationRate is the rate at which memory leaves a reclaimed VM, in bytes a second.
	// 0: unknown, and no spot VM is used.
	MigrationRate float64
	// Provision is the time until a new VM can hold memory. Margin is the part of a notice
	// that is kept in reserve.
	Provision, Margin time.Duration
	// MinLifetime is the least expected lifetime of a spot VM.
	MinLifetime time.Duration
}

const defaultMaxVMs = 1024

// Plan is a choice of VMs.
type Plan struct {
	Distance    int // of the VMs; 0: not known
	Config      Config
	Parts       []Part // servers first, then VMs to be launched
	Price       Price  // of all parts together
	Explanation Explanation
}

// Part is one VM's contribution to a cache.
type Part struct {
	Server  int // index of a server, or -1
	Offer   int // index of the offer to launch, or -1
	Regions int
	Cores   int // server threads for them
	Price   Price
}

// NoneError reports that no VMs serve a demand, and why.
type NoneError struct {
	Asked uint64 // bytes
	// Available is the largest memory that could be had, in bytes. If the demand's Per
	// equals its Regions, as for a whole cache, it is computed with threads for that many
	// regions.
	Available uint64
	// Servers is the number of servers that lend over the demand's transport; Offers is the
	// number of VM types.
	Servers, Offers int
	Explanation     Explanation
}

func (e *NoneError) Error() string {
	return fmt.Sprintf("no VMs for %d bytes: %d servers and %d VM types have at most %d bytes", e.Asked, e.Servers, e.Offers, e.Available)
}
