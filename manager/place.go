package manager

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// maxVMsPerCache bounds the VMs of one request.
const maxVMsPerCache = 256

// maxGrantsPerCache bounds a cache's grants with pending ones: all VMs of the largest cache
// can be replaced at once.
const maxGrantsPerCache = 2 * maxVMsPerCache

// candidate is a running VM from which placement can choose.
type candidate struct {
	vm        *vm
	transport string
	memory    uint64 // bytes in all
	free      uint64 // bytes not reserved
	cores     uint32 // server threads not reserved
	distance  uint32
	price     plan.Price
	fresh     bool // it has registered recently, unlike others
}

// supply is a snapshot of the offers from which a placement can choose, and its policy.
type supply struct {
	offers []plan.Offer // what the allocator can launch
	region string       // of the cloud
	policy plan.Policy
	now    time.Time

	economy Economy
}

// part is one VM's part of a placement.
type part struct {
	vm      *vm // nil: to be launched
	offer   plan.Offer
	regions uint32
	cores   uint32 // server threads on this VM
}

// placement is a choice of VMs, and its explanation.
type placement struct {
	parts    []part
	filled   int // number of parts, the first ones, on VMs that the cache uses already
	config   *managerv1.Configuration
	distance uint32
	decision *managerv1.Decision
}

// place chooses the VMs of a cache: first those that it uses already and that have room
// (present, R72), then the cheapest (package plan). The error for too little memory is an
// *api.CapacityError.
func place(d demand, present, pool []candidate, s supply) (placement, error) {
	p := placement{config: d.config, distance: d.distance}
	p.parts, d = d.fill(present)
	p.filled = len(p.parts)
	for i := range pool {
		for _, part := range p.parts {
			if part.vm == pool[i].vm {
				pool[i].free -= uint64(part.regions) * d.regionSize
				pool[i].cores -= part.cores
			}
		}
	}
	if d.regions == 0 {
		return p, nil
	}
	chosen, err := plan.Choose(d.plan(), s.offers, servers(pool), s.policy)
	var none *plan.NoneError
	switch {
	case errors.As(err, &none):
		return p, d.tooLarge(none, s)
	case err != nil:
		return p, err
	}
	for _, c := range chosen.Parts {
		add := part{regions: uint32(c.Regions), cores: uint32(c.Cores)}
		if c.Server >= 0 {
			add.vm = pool[c.Server].vm
		} else {
			add.offer = s.offers[c.Offer]
			if add.offer.Fitted {
				add.offer.Memory, add.offer.Cores = uint64(c.Regions)*d.regionSize, c.Cores
			}
		}
		p.parts = append(p.parts, add)
	}
	p.config, p.distance = configurationOf(chosen.Config), max(d.distance, uint32(chosen.Distance))
	p.decision = decisionOf(chosen.Explanation, chosen.Price, s.now)
	return p, nil
}

// plan converts the demand for package plan.
func (d demand) plan() plan.Demand {
	configs := make(map[int]plan.Config)
	for distance, c := range d.configs {
		configs[distance] = planConfig(c)
	}
	if len(configs) == 0 {
		configs[0] = planConfig(d.config)
	}
	return plan.Demand{
		RegionSize: d.regionSize, Regions: int(d.regions), Per: int(d.per), Configs: configs, Distance: int(d.distance),
		Transport: d.transport, Duration: time.Duration(d.duration) * time.Second,
	}
}

func planConfig(c *managerv1.Configuration) plan.Config {
	return plan.Config{C: int(c.GetClientThreads()), S: int(c.GetServerThreads()), B: int(c.GetBatchSize()), Q: int(c.GetQueueDepth())}
}

func configurationOf(c plan.Config) *managerv1.Configuration {
	return &managerv1.Configuration{ClientThreads: uint32(c.C), ServerThreads: uint32(c.S), BatchSize: uint32(c.B), QueueDepth: uint32(c.Q)}
}

func servers(pool []candidate) []plan.Server {
	var all []plan.Server
	for _, c := range pool {
		all = append(all, plan.Server{
			ID: c.vm.id, Transport: c.transport, Free: c.free, Memory: c.memory, Cores: int(c.cores),
			Distance: int(c.distance), Price: c.price, Fresh: c.fresh,
		})
	}
	return all
}

// fill places regions on candidates in their order, and returns the demand for the rest.
func (d demand) fill(candidates []candidate) ([]part, demand) {
	var parts []part
	for _, c := range candidates {
		if n := d.takes(c); n > 0 {
			parts = append(parts, part{vm: c.vm, regions: n, cores: d.coresFor(n)})
			d.regions -= n
		}
	}
	return parts, d
}

// tooLarge returns the error of a demand for which there is too little memory.
func (d demand) tooLarge(none *plan.NoneError, s supply) error {
	what := fmt.Sprintf("%d registered cache servers over %s", none.Servers, d.transport)
	if n := d.config.GetServerThreads(); n > 0 {
		what += fmt.Sprintf(", for %d server threads in all", n)
	}
	if none.Offers > 0 {
		most := s.largest()
		if most > 0 && most < d.regionSize && none.Servers == 0 && !d.shrinks {
			return &api.CapacityError{What: "one region on one VM", Asked: d.regionSize, Available: most, Why: none.Explanation.String()}
		}
		what += fmt.Sprintf(", and %d VM types", none.Offers)
		if room := s.policy.Room; room != nil && *room < none.Asked {
			what += fmt.Sprintf(" that may have %v together", units.Size(*room))
		}
	}
	return &api.CapacityError{What: what, Asked: none.Asked, Available: none.Available, Why: none.Explanation.String()}
}

// largest returns the largest memory of one VM to launch; 0: no limit.
func (s supply) largest() uint64 {
	if slices.ContainsFunc(s.offers, func(o plan.Offer) bool { return o.Fitted && o.Memory == 0 }) {
		return 0
	}
	most := uint64(0)
	for _, o := range s.offers {
		most = max(most, o.Memory)
	}
	return most
}

// takes returns how many of the demand's regions fit on a candidate, by memory and by the
// server threads that they need.
func (d demand) takes(c candidate) uint32 {
	if c.transport != d.transport {
		return 0
	}
	n := min(uint64(d.regions), c.free/d.regionSize)
	if s := uint64(d.config.GetServerThreads()); s > 0 && c.cores < d.config.GetClientThreads() {
		// The largest n with ceil(s*n/per) <= cores.
		n = min(n, uint64(c.cores)*uint64(d.per)/s)
	}
	return uint32(n)
}

// coresFor returns the server threads for n regions, in the configuration's ratio of cores to
// memory (R26, R73, A17), at most one for each connection, i.e. client thread (R57).
func (d demand) coresFor(n uint32) uint32 {
	s := uint64(d.config.GetServerThreads())
	return uint32(min((s*uint64(n)+uint64(d.per)-1)/uint64(d.per), uint64(d.config.GetClientThreads())))
}

// decisionOf converts an explanation to a message.
func decisionOf(e plan.Explanation, price plan.Price, now time.Time) *managerv1.Decision {
	d := &managerv1.Decision{AtUnixMs: now.UnixMilli(), PriceMicros: int64(price)}
	for _, s := range e.Sites {
		d.Sites = append(d.Sites, &managerv1.SiteVerdict{
			Distance: uint32(s.Distance), Configuration: configurationOf(s.Config), Vms: uint32(s.VMs),
			PriceMicros: int64(s.Price), Chosen: s.Chosen, Reason: s.Reason,
		})
	}
	for _, v := range e.Verdicts {
		d.Verdicts = append(d.Verdicts, &managerv1.Verdict{
			Name: v.Name, Distance: uint32(v.Distance), Vms: uint32(v.VMs), PriceMicros: int64(v.Price), Reason: v.Reason,
		})
	}
	return d
}
