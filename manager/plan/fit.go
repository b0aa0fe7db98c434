package plan

import (
	"cmp"
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
	limit   limit
}

// limit is what keeps a VM from holding the whole demand. Its text is made only for the
// VMs that an explanation names.
type limit uint8

const (
	noLimit limit = iota
	limitedMemory
	limitedCores
	otherTransport
	noDuration
	noRate
	shortLived
	coldNotice
	warmNotice
	noRoom
	unavailable
)

func (f fit) bound(regions int, by limit) fit {
	if regions < f.regions {
		return fit{regions, by}
	}
	return f
}

// fitIn applies the limits of memory and cores.
func (n need) fitIn(memory uint64, cores int) fit {
	return fit{regions: n.Regions}.bound(n.byMemory(memory), limitedMemory).bound(n.byCores(cores), limitedCores)
}

// whyServer explains the limit of a server.
func (n need) whyServer(f fit, s Server) string {
	if f.limit == otherTransport {
		return otherTransportText(s.Transport, n.Transport)
	}
	return n.whyIn(f, s.Free, s.Cores)
}

func otherTransportText(of, wanted string) string {
	return fmt.Sprintf("it lends over %s, not %s", of, wanted)
}

func (n need) whyIn(f fit, memory uint64, cores int) string {
	switch f.limit {
	case limitedMemory:
		return fmt.Sprintf("%v of memory", units.Size(memory))
	case limitedCores:
		return fmt.Sprintf("%s, for %s per %s", count(cores, "core"), count(n.config.S, "server thread"), count(n.Per, "region"))
	}
	return ""
}

// whyOffer explains the limit of a VM type.
func (n need) whyOffer(f fit, o Offer) string {
	switch f.limit {
	case noDuration:
		return "a cache without a duration gets no spot VMs"
	case noRate:
		return "its migration rate is unknown"
	case shortLived:
		return fmt.Sprintf("expected lifetime %v, want at least %v", o.Lifetime.Round(time.Second), n.MinLifetime)
	case warmNotice:
		return fmt.Sprintf("%v of notice less a margin of %v, at %v/s, with a warm VM", o.Notice, n.Margin, units.Size(n.MigrationRate))
	case coldNotice:
		return fmt.Sprintf("%v of notice less a margin of %v, of which a new VM takes %v, at %v/s", o.Notice, n.Margin, n.Provision, units.Size(n.MigrationRate))
	case noRoom:
		return fmt.Sprintf("one has %v, and %v are left for VMs", units.Size(o.Memory), units.Size(*n.Room))
	case unavailable:
		return cmp.Or(o.Note, "none is available")
	}
	return n.whyIn(f, o.Memory, o.Cores)
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
		return fit{limit: otherTransport}
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
		f = f.bound(n.leave(o))
	}
	switch {
	case n.Room != nil && o.Ready == 0 && !o.Fitted && o.Memory > *n.Room:
		f = fit{limit: noRoom}
	case o.Available == 0:
		f = fit{limit: unavailable}
	}
	return f
}

// leave returns the number of regions that can be migrated from a spot VM before its end
// (R27, A28), and the limit that applies.
func (n need) leave(o Offer) (int, limit) {
	switch {
	case n.Duration == 0:
		return 0, noDuration
	case n.MigrationRate <= 0:
		return 0, noRate
	case o.Lifetime > 0 && o.Lifetime < n.MinLifetime:
		return 0, shortLived
	}
	within := func(d time.Duration) int {
		bytes := (d - n.Margin).Seconds() * n.MigrationRate / float64(n.RegionSize)
		return int(max(0, min(bytes, float64(n.Regions))))
	}
	cold := within(o.Notice - n.Provision)
	// A VM that runs already needs no provision time, if it has the room.
	if warm := min(within(o.Notice), n.warm); warm > cold {
		return warm, warmNotice
	}
	return cold, coldNotice
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
