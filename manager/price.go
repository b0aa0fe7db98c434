package manager

import (
	"cmp"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// costs says what each of a cache's grants costs. A VM that was launched serves one
// cache, which pays all of it with the first grant; of a server that others share a
// cache pays what it has. Called under mu.
func costs(grants []*grant) []plan.Price {
	all := make([]plan.Price, len(grants))
	paid := make(map[*vm]bool)
	for i, s := range grants {
		switch {
		case s.vm.failed != "":
		case !s.vm.launched:
			all[i] = plan.Server{Memory: s.vm.Memory, Price: s.vm.Price}.Share(int(s.regions), s.bytes/uint64(s.regions))
		case !paid[s.vm]:
			all[i], paid[s.vm] = s.vm.Price, true
		}
	}
	return all
}

// cost is that of all grants together: while a cache moves, of the old ones and of
// the new ones (A30, A39). Called under mu.
func (ca *cache) cost() plan.Price { return total(ca.all()) }

func total(grants []*grant) plan.Price {
	sum := plan.Price(0)
	for _, p := range costs(grants) {
		sum += p
	}
	return sum
}

// priced says what a cache costs, and each of its grants. Called under mu.
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

// distance is that of the VMs which a cache has, as far as they are there; 0: not known.
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
