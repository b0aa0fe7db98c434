package plan

import (
	"cmp"
	"slices"
)

// bin is a server with free regions.
type bin struct {
	server  int // index of the server
	regions int // regions that it can take; at least 1
	price   Price
}

// sharing finds the cheapest servers for any number of regions. A cache pays per region, so
// the cheapest servers are filled first. Of servers at one price the largest come first, so
// that their number is least.
type sharing struct {
	bins  []bin  // by price, then largest first, then in the order of servers
	least []cost // by regions, up to what all servers together can take
}

func newSharing(bins []bin, regions int) *sharing {
	s := &sharing{bins: slices.Clone(bins), least: []cost{0}}
	slices.SortStableFunc(s.bins, largestOfCheapest)
	for _, b := range s.bins {
		for i := 0; i < b.regions && len(s.least) <= regions; i++ {
			vms := 0
			if i == 0 {
				vms = 1
			}
			s.least = append(s.least, s.least[len(s.least)-1].plus(costOf(b.price, vms)))
		}
	}
	return s
}

func largestOfCheapest(a, b bin) int {
	return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.regions, a.regions))
}

// most returns the number of regions that the servers can take together, up to the demand.
func (s *sharing) most() int { return len(s.least) - 1 }

// taken is a server with the number of regions placed on it.
type taken struct {
	bin
	n int // regions
}

// take picks servers for the regions: all that are cheaper than the dearest one taken, and
// at its price as few as possible, the first in the order of servers.
func (s *sharing) take(regions int) []taken {
	var all []taken
	for len(s.bins) > 0 && regions > 0 {
		price := s.bins[0].price
		end := slices.IndexFunc(s.bins, func(b bin) bool { return b.price != price })
		if end < 0 {
			end = len(s.bins)
		}
		group := s.bins[:end]
		for _, b := range first(group, regions) {
			n := min(b.regions, regions)
			all = append(all, taken{b, n})
			regions -= n
		}
		s = &sharing{bins: s.bins[end:]}
	}
	return all
}

// first returns the fewest bins that hold the regions. Of equally small choices it returns
// the first in the order of servers; if all bins together hold less, it returns them all.
// The argument largest is sorted by size, the largest first.
func first(largest []bin, regions int) []bin {
	fewest, held := 0, 0
	for fewest < len(largest) && held < regions {
		held += largest[fewest].regions
		fewest++
	}
	// The reserve is the largest bins that are not yet passed, as many as may still be
	// chosen. A bin is chosen if it is in the reserve, or if it can replace the reserve's
	// smallest bin. The reserve is largest[:fewest] without the bins that left it.
	type ranked struct {
		bin
		rank int // in largest
	}
	order := make([]ranked, len(largest))
	for i, b := range largest {
		order[i] = ranked{b, i}
	}
	slices.SortFunc(order, func(a, b ranked) int { return cmp.Compare(a.server, b.server) })
	left := make([]bool, fewest) // the reserve
	smallest := fewest - 1
	var chosen []bin
	for _, b := range order {
		for smallest >= 0 && left[smallest] {
			smallest--
		}
		if smallest < 0 {
			break
		}
		out := smallest
		if b.rank < fewest && !left[b.rank] {
			out = b.rank
		} else if regions-b.regions > held-largest[smallest].regions {
			continue
		}
		left[out] = true
		held -= largest[out].regions
		regions -= b.regions
		chosen = append(chosen, b.bin)
	}
	return chosen
}
