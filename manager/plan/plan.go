package plan

import (
	"fmt"
	"math"
	"time"
)

// Price is an amount of money for an hour, in millionths of a dollar: whole
// numbers, so that sums are exact and equal prices are equal.
type Price int64

// MaxPrice is the highest price of one VM: $10,000 an hour.
const MaxPrice Price = 10_000_000_000

// Dollars is the price from a number as people write it.
func Dollars(perHour float64) Price { return Price(math.Round(perHour * 1e6)) }

// Dollars is the price as a number of dollars an hour.
func (p Price) Dollars() float64 { return float64(p) / 1e6 }

// String shows dollars, as "$0.35/h", with no more than six decimals.
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
	Distance int    // switches between it and the client; 0: not known
	Price    Price  // of one VM, however much of it is used; 0 to MaxPrice
	// Available is how many can be launched now; negative: any number.
	Available int
	// Notice is how long before its end a spot VM is told of it.
	Notice time.Duration
	// Lifetime is how long a VM of the type is expected to live; 0: not known.
	Lifetime time.Duration
	// Warm is how many of those available run already, as targets of migrations.
	Warm int
	// Ready is how many of those available need not be launched for this demand: they
	// take nothing of [Policy]'s Room.
	Ready int
	// Fitted is a VM that is made as large as it is needed: it has the memory and the
	// cores of its part of the cache. Memory is the most that one can have, 0 for no
	// limit; Cores does not count.
	Fitted bool
}

// Name is what people call the offer.
func (o Offer) Name() string {
	if o.Spot {
		return o.Type + " (spot)"
	}
	return o.Type
}

// Server is a cache server that is there and that caches share. Servers are given
// to [Choose] in the order of their age, the oldest first.
type Server struct {
	ID        string
	Transport string
	Free      uint64 // bytes
	Memory    uint64 // bytes in all, which Price is for
	Cores     int    // server threads that are free
	Distance  int    // switches between it and the client; 0: not known
	Price     Price  // of the whole server: a cache pays its share; 0 to MaxPrice
	// Fresh marks a server that has joined only now. It takes no more than half its
	// memory of one cache while others have room at no higher price (A34): nobody
	// knows yet whether it stays.
	Fresh bool
}

// Demand is what a cache needs.
type Demand struct {
	RegionSize uint64 // bytes
	Regions    int    // to be placed
	// Per is how many regions the configuration's S server threads serve; 0: Regions.
	Per int
	// Configs are the configurations that would do, by network distance. That of
	// distance 0 does for each distance that has none of its own.
	Configs map[int]Config
	// Distance is that of the VMs that the cache has already: others stand no farther
	// away, unless there are none so near. 0: it has none.
	Distance  int
	Transport string        // that servers have to lend their memory over
	Duration  time.Duration // how long it is expected to live; 0: no end
}

// Policy is what an operator decides once for all caches.
type Policy struct {
	// MaxVMs bounds the VMs of one cache. Default: 256.
	MaxVMs int
	// Room is how many bytes the VMs that are launched may have together. nil: any
	// number.
	Room *uint64
	// MigrationRate is how many bytes a second leave a VM that is reclaimed. 0: not
	// known, and no spot VM is used.
	MigrationRate float64
	// Provision is how long a new VM takes until it can hold memory, and Margin what
	// is kept of a notice for whatever else takes time.
	Provision, Margin time.Duration
	// MinLifetime is how long a spot VM has to be expected to live.
	MinLifetime time.Duration
}

const defaultMaxVMs = 256

// Plan is a choice of VMs.
type Plan struct {
	Distance    int // of the VMs; 0: not known
	Config      Config
	Parts       []Part // servers first, then VMs to be launched
	Price       Price  // of all parts together
	Explanation Explanation
}

// Part is what one VM contributes to a cache.
type Part struct {
	Server  int // index of a server, or -1
	Offer   int // index of the offer to launch, or -1
	Regions int
	Cores   int // server threads for them
	Price   Price
}

// NoneError says that no VMs serve a demand, and why.
type NoneError struct {
	Asked uint64 // bytes
	// Available is how many bytes could be had, at most: of a demand whose Per is its
	// Regions, as those of a whole cache, with threads for so many regions.
	Available uint64
	// Servers is how many servers were asked that lend over the demand's transport,
	// and Offers how many VM types.
	Servers, Offers int
	Explanation     Explanation
}

func (e *NoneError) Error() string {
	return fmt.Sprintf("no VMs for %d bytes: %d could be had of %d servers and %d VM types", e.Asked, e.Available, e.Servers, e.Offers)
}
