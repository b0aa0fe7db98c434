package plan

import (
	"cmp"
	"slices"
)

// bin is a registered server as sharing sees it.
type bin struct {
	server  int // its index
	regions int // that it can take; at least 1
	price   Price
}

// sharing finds the cheapest servers for any number of regions. A cache pays for
// the regions that it uses, so the cheapest servers are filled first; of those at
// one price the largest, which makes them as few as possible.
type sharing struct {
	bins  []bin  // by price, then the largest first, then in the order of servers
	least []cost // by regions, up to what all of them together can take
}

func newSharing(bins []bin, regions int) *sharing {
	s := &sharing{bins: slices.Clone(bins), least: []cost{0}}
	slices.SortStableFunc(s.bins, func(a, b bin) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.regions, a.regions))
	})
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

// most is how many regions the servers can take together, up to the demand.
func (s *sharing) most() int { return len(s.least) - 1 }

// taken is what one server gets.
type taken struct {
	bin
	n int // regions
}

// take picks the servers for so many regions: all that are cheaper than the last
// one that it takes, and of those at that one's price as few as it takes, the first
// in their order.
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

// first returns the fewest bins that hold so many regions, and of all such choices
// the one that comes first in the order of servers; all bins if they hold less. The
// largest bins come first in largest.
func first(largest []bin, regions int) []bin {
	fewest := 0
	for sum := 0; fewest < len(largest) && sum < regions; fewest++ {
		sum += largest[fewest].regions
	}
	order := slices.Clone(largest)
	slices.SortFunc(order, func(a, b bin) int { return cmp.Compare(a.server, b.server) })
	var chosen []bin
	dropped := make(map[int]bool) // servers that were passed by or chosen
	for _, b := range order {
		if len(chosen) == fewest {
			break
		}
		// Can the largest of those that come later hold what b leaves?
		rest, more := regions-b.regions, fewest-len(chosen)-1
		dropped[b.server] = true
		for _, other := range largest {
			if more == 0 || rest <= 0 {
				break
			}
			if !dropped[other.server] {
				rest -= other.regions
				more--
			}
		}
		if rest <= 0 || fewest == len(largest) {
			chosen = append(chosen, b)
			regions -= b.regions
		}
	}
	return chosen
}
