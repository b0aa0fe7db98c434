package plan

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// need is a demand at one distance.
type need struct {
	Demand
	Policy
	config Config
	warm   int // regions that a running VM could take; 0: there is none
}

// cores keeps the configuration's ratio of cores to memory (R26, A17). A VM cannot use more
// threads than it has connections, one for each client thread (R57).
func (n need) cores(regions int) int {
	return min((n.config.S*regions+n.Per-1)/n.Per, n.config.C)
}

// fit is the number of regions that a VM can hold, and the limit that applies.
type fit struct {
	regions int
	why     string // the limit; empty if it holds the whole demand
}

func (f fit) bound(regions int, format string, args ...any) fit {
	if regions < f.regions {
		return fit{regions, fmt.Sprintf(format, args...)}
	}
	return f
}

// fitIn applies the limits of memory and cores.
func (n need) fitIn(memory uint64, cores int) fit {
	f := fit{regions: n.Regions}
	if most := n.byMemory(memory); most < f.regions {
		f = f.bound(most, "%v of memory", units.Size(memory))
	}
	if most := n.byCores(cores); most < f.regions {
		f = f.bound(most, "%s, for %s per %s", count(cores, "core"), count(n.config.S, "server thread"), count(n.Per, "region"))
	}
	return f
}

func (n need) byMemory(bytes uint64) int { return int(min(uint64(n.Regions), bytes/n.RegionSize)) }

func (n need) byCores(cores int) int {
	if n.config.S == 0 || cores >= n.config.C {
		return n.Regions
	}
	return cores * n.Per / n.config.S // the largest n with ceil(S*n/Per) <= cores
}

// warmRoom returns the largest number of regions that one running VM could take.
func (n need) warmRoom(offers []Offer, here []int) int {
	most := 0
	for _, i := range here {
		if o := offers[i]; o.Warm > 0 {
			most = max(most, n.fitIn(o.Memory, o.Cores).regions)
		}
	}
	return most
}

func (n need) server(s Server) fit {
	if s.Transport != n.Transport {
		return fit{why: fmt.Sprintf(otherTransport, s.Transport, n.Transport)}
	}
	return n.fitIn(s.Free, s.Cores)
}

// cautious returns the number of regions that one cache gets of a fresh server.
func (n need) cautious(s Server) int {
	return int(min(s.Memory/2/n.RegionSize, uint64(n.Regions)))
}

func (n need) offer(o Offer) fit {
	cores := o.Cores
	if o.Fitted {
		cores = n.config.C
		if o.Memory == 0 {
			o.Memory = math.MaxUint64
		}
	}
	f := n.fitIn(o.Memory, cores)
	if o.Spot && f.regions > 0 {
		regions, why := n.leave(o)
		f = f.bound(regions, "%s", why)
	}
	switch {
	case n.Room != nil && o.Ready == 0 && !o.Fitted && o.Memory > *n.Room:
		f = fit{why: fmt.Sprintf("one has %v, and %v are left for VMs", units.Size(o.Memory), units.Size(*n.Room))}
	case o.Available == 0:
		f = fit{why: "none is available"}
	}
	return f
}

// leave returns the number of regions that can be migrated from a spot VM before its end
// (R27, A28), and the limit that applies.
func (n need) leave(o Offer) (int, string) {
	switch {
	case n.Duration == 0:
		return 0, "a cache without a duration gets no spot VMs"
	case n.MigrationRate <= 0:
		return 0, "its migration rate is unknown"
	case o.Lifetime > 0 && o.Lifetime < n.MinLifetime:
		return 0, fmt.Sprintf("expected lifetime %v, want at least %v", o.Lifetime.Round(time.Second), n.MinLifetime)
	}
	within := func(d time.Duration) int {
		bytes := (d - n.Margin).Seconds() * n.MigrationRate / float64(n.RegionSize)
		return int(max(0, min(bytes, float64(n.Regions))))
	}
	cold := within(o.Notice - n.Provision)
	// A VM that runs already needs no provision time, if it has the room.
	if warm := min(within(o.Notice), n.warm); warm > cold {
		return warm, fmt.Sprintf("%v of notice less a margin of %v, at %v/s, with a warm VM", o.Notice, n.Margin, units.Size(n.MigrationRate))
	}
	return cold, fmt.Sprintf("%v of notice less a margin of %v, of which a new VM takes %v, at %v/s", o.Notice, n.Margin, n.Provision, units.Size(n.MigrationRate))
}

// Share returns a cache's price for so many regions of a shared server.
func (s Server) Share(regions int, size uint64) Price { return s.region(size) * Price(regions) }

// region returns the price of one region, rounded up, so that a server with a higher price
// per byte has no cheaper regions.
func (s Server) region(size uint64) Price {
	if s.Price <= 0 || s.Memory == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(s.Price), size)
	if high >= s.Memory {
		return MaxPrice // the region is much larger than the server
	}
	price, rest := bits.Div64(high, low, s.Memory)
	if rest > 0 {
		price++
	}
	return Price(min(price, uint64(MaxPrice)))
}
