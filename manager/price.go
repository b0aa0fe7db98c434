package manager

import (
	"cmp"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// costs returns the price of each of a cache's grants. A launched VM serves one cache, whose
// first grant has its whole price; a grant of the pool has its part of the server's price.
// Called under mu.
func costs(grants []*grant) []plan.Price {
	all := make([]plan.Price, len(grants))
	paid := make(map[*vm]bool)
	for i, s := range grants {
		switch {
		case s.vm.failed != "":
		case !s.vm.launched:
			all[i] = plan.Server{Memory: s.vm.Memory, Price: s.vm.Price}.Share(int(s.regions), s.regionSize)
		case !paid[s.vm]:
			all[i], paid[s.vm] = s.vm.Price, true
		}
	}
	return all
}

// total is called under mu.
func total(grants []*grant) plan.Price {
	sum := plan.Price(0)
	for _, p := range costs(grants) {
		sum += p
	}
	return sum
}

// priced adds the prices of a cache and its grants. Called under mu.
func (ca *cache) priced(p *managerv1.Cache) *managerv1.Cache {
	for i, price := range costs(ca.all()) {
		p.PriceMicros += int64(price)
		if i < len(p.Grants) {
			p.Grants[i].PriceMicros = int64(price)
		}
	}
	p.DurationSeconds, p.Distance, p.CreatedUnixMs = ca.demand.duration, ca.distance(), api.ToMillis(ca.created)
	return p
}

// distance returns the largest distance of a cache's VMs that have not failed; 0: unknown.
// Called under mu.
func (ca *cache) distance() uint32 {
	far := uint32(0)
	for _, s := range ca.grants {
		if s.vm.failed == "" {
			far = max(far, s.vm.Distance)
		}
	}
	return cmp.Or(far, ca.demand.distance)
}
