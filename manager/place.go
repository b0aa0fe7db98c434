package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// maxVMsPerCache bounds the VMs of one request.
const maxVMsPerCache = 1024

// maxGrantsPerCache bounds a cache's grants with pending ones: all VMs of the largest cache
// can be replaced at once.
const maxGrantsPerCache = 2 * maxVMsPerCache

// supply is a snapshot of the offers from which a placement can choose, and its policy.
type supply struct {
	from
	offers []plan.Offer // what the allocator can launch
	policy plan.Policy  // but for the migration rate: see policyFor
	rates  *rates
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

// place chooses the VMs of a cache, not those to avoid: first those that it uses already and
// that have room (present, R72), then the cheapest (package plan). The error for too little
// memory is an *api.CapacityError.
func (c *state) place(d demand, present []*vm, avoid map[string]bool, s supply) (placement, error) {
	p := placement{config: d.config, distance: d.distance}
	p.parts, d = c.fill(d, present)
	p.filled = len(p.parts)
	if d.regions == 0 {
		return p, nil
	}
	chosen, err := c.choose(d, avoid, p.parts, s)
	var none *plan.NoneError
	switch {
	case errors.As(err, &none):
		return p, d.tooLarge(none, s)
	case err != nil:
		return p, err
	}
	for _, planned := range chosen.Parts {
		add := part{regions: uint32(planned.Regions), cores: uint32(planned.Cores)}
		if planned.Server >= 0 {
			add.vm = chosen.vms[planned.Server]
		} else {
			add.offer = s.offers[planned.Offer]
			if add.offer.Fitted {
				add.offer.Memory, add.offer.Cores = uint64(planned.Regions)*d.regionSize, planned.Cores
			}
		}
		p.parts = append(p.parts, add)
	}
	p.config, p.distance = configurationOf(chosen.Config), max(d.distance, uint32(chosen.Distance))
	p.decision = decisionOf(chosen.Explanation, chosen.Price, s.now)
	return p, nil
}

// chosen is a plan, and the VMs of its servers.
type chosen struct {
	*plan.Plan
	vms []*vm
}

// choose makes the best plan for a demand. Parts of the VMs are taken before. mu is not held
// while the planner works, so the memory may no longer be free when it is reserved: see
// stillFree.
func (c *state) choose(d demand, avoid map[string]bool, taken []part, s supply) (chosen, error) {
	wanted, policy := d.plan(), s.policyFor(d)
	c.mu.Lock()
	from, err := c.pool.Candidates(wanted, policy, avoid, s.now)
	if err != nil {
		c.mu.Unlock()
		return chosen{}, err
	}
	vms := make([]*vm, len(from.Servers))
	for i, server := range from.Servers {
		vms[i] = c.vms[server.ID]
	}
	c.mu.Unlock()
	for _, p := range taken {
		if i := slices.Index(vms, p.vm); i >= 0 {
			server := &from.Servers[i]
			server.Free -= min(server.Free, uint64(p.regions)*d.regionSize)
			server.Cores -= min(server.Cores, int(p.cores))
		}
	}
	best, err := from.Choose(wanted, s.offers, policy)
	c.mu.Lock()
	c.pool.Done(from)
	c.mu.Unlock()
	return chosen{best, vms}, err
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

// fill places regions on VMs in their order, and returns the demand for the rest.
func (c *state) fill(d demand, present []*vm) ([]part, demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []part
	for _, v := range present {
		if n := d.takes(v); n > 0 {
			parts = append(parts, part{vm: v, regions: n, cores: d.coresFor(n)})
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
		if why := s.whyNone(); why != "" {
			what += " (" + why + ")"
		}
		if room := s.policy.Room; room != nil && *room < none.Asked {
			what += fmt.Sprintf(" that may have %v together", units.Size(*room))
		}
	}
	return &api.CapacityError{What: what, Asked: none.Asked, Available: none.Available, Why: none.Explanation.String()}
}

// whyNone returns why no VM can be launched, as the allocator says.
func (s supply) whyNone() string {
	var all []string
	for _, o := range s.offers {
		if o.Available != 0 || o.Note == "" {
			return ""
		}
		all = append(all, o.Name()+": "+o.Note)
	}
	return strings.Join(all, "; ")
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

// takes returns how many of the demand's regions fit on a VM, by memory and by the server
// threads that they need. Called under state.mu.
func (d demand) takes(v *vm) uint32 {
	if v.Transport != d.transport || v.usable() != nil {
		return 0
	}
	n := min(uint64(d.regions), v.free()/d.regionSize)
	cores := v.Cores - min(v.Cores, v.threads)
	if s := uint64(d.config.GetServerThreads()); s > 0 && cores < d.config.GetClientThreads() {
		// The largest n with ceil(s*n/per) <= cores.
		n = min(n, uint64(cores)*uint64(d.per)/s)
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
