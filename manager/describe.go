package manager

import (
	"cmp"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
)

// describe lists caches by id, and VMs by age: those that are up, and failed ones of which
// caches have grants. What changes meanwhile may be described as it was or as it is.
func (c *state) describe() *managerv1.DescribeResponse {
	c.mu.Lock()
	r := &managerv1.DescribeResponse{Vms: c.describedVMs()}
	for ca := range pieces(c, c.caches) {
		if ca.ready {
			r.Caches = append(r.Caches, ca.whole())
		}
	}
	c.mu.Unlock()
	slices.SortFunc(r.Caches, func(a, b *managerv1.Cache) int { return cmp.Compare(a.Id, b.Id) })
	return r
}

// describeCache describes one cache, also one that waits for its first VMs.
func (c *state) describeCache(id string) (*managerv1.DescribeCacheResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	if ca == nil {
		return nil, noCache(id)
	}
	r := &managerv1.DescribeCacheResponse{
		Cache: ca.whole(), Events: ca.log.after(0, c.writer.written.Load(), time.Time{}), Decisions: ca.decisions.p.GetDecisions(), LeaseExpiresUnixMs: api.ToMillis(ca.expires),
	}
	if ca.request != nil {
		r.Pending = ca.request.starting()
	}
	return r, nil
}

// perform adds to described caches what they are predicted to give, on what model that stands, and what
// they give.
func (l *leader) perform(caches ...*managerv1.Cache) {
	for i, t := range l.state.perform(caches, l.opts.now()) {
		p := caches[i]
		if p.Predicted = l.search.predict(t.demand); p.Predicted == nil {
			continue
		}
		p.Model, p.Margin = l.search.basis(t.demand)
		if t.known {
			o := model.Observe(model.Config(planConfig(t.config)), performanceFrom(p.Predicted), t.got)
			if p.LatencyOfPredicted = o.Latency; t.full {
				p.ThroughputOfPredicted = o.Mops
			}
		}
	}
}

// performed is what a cache needs, and what it gives with full queues, as far as that is known.
type performed struct {
	demand
	got         model.Performance
	full, known bool
}

// perform adds to described caches what they give, and returns what they need. A cache that has
// ended needs nothing.
func (c *state) perform(caches []*managerv1.Cache, now time.Time) []performed {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]performed, len(caches))
	for i, p := range caches {
		if ca := c.caches[p.GetId()]; ca != nil {
			p.Measured, p.SloBroken = ca.measurements.latest(now), ca.measurements.broken
			judged, missed := ca.measurements.share()
			p.WindowsJudged, p.WindowsMissed = uint32(judged), uint32(missed)
			t := &all[i]
			t.demand = ca.demand
			t.got, t.full, t.known = ca.gives(brokenWindows, verdictNone, time.Time{})
		}
	}
	return all
}

// windows returns the windows of a cache that are kept.
func (c *state) windows(id string, now time.Time) []*managerv1.Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ca := c.caches[id]; ca != nil {
		return ca.measurements.all(now)
	}
	return nil
}

// proto returns the VM as a message; its free memory is the memory not granted. Called
// under mu.
func (v *vm) proto() *managerv1.Vm {
	info := v.VM
	info.ID = v.id
	info.Free = v.free()
	p := info.Proto(v.failed == "")
	p.Warm, p.Suspected = v.warm, v.suspected
	p.Machine, p.Name = v.place.Machine, v.place.Name
	p.Leaving, p.DeadlineUnixMs = !v.leaves.IsZero(), api.ToMillis(v.leaves)
	return p
}

// proto returns the cache as a message, without pending grants. Called under mu.
func (ca *cache) proto() *managerv1.Cache {
	return &managerv1.Cache{
		Id: ca.id, Capacity: ca.demand.capacity, Slo: ca.demand.slo,
		Configuration: ca.demand.config, RegionSize: ca.demand.regionSize, Grants: protos(ca.grants, false),
		LingerMs: ca.linger.Milliseconds(), LingersUnixMs: api.ToMillis(ca.lingers), Holder: ca.holder, Owner: ca.owner,
	}
}

// whole is proto with pending grants and prices. Called under mu.
func (ca *cache) whole() *managerv1.Cache {
	p := ca.proto()
	p.Grants = append(p.Grants, protos(ca.pending, true)...)
	return ca.priced(p)
}

// leastKeep is the least time for which a server keeps a grant whose client is silent.
const leastKeep = time.Minute

// termsLife is the time within which a client connects with the terms that it was given, by the clocks
// of machines. It is long beside what an allocation takes, and what the clocks differ by.
const termsLife = time.Hour

// withTokens adds the grants' terms and tokens to messages, for the cache's present holder. The error
// says that the call's is another. Called under state.mu.
func (l *leader) withTokens(ca *cache, holder uint64, all []*managerv1.Grant, grants []*grant) ([]*managerv1.Grant, error) {
	if err := ca.checkHolder(holder); err != nil {
		return nil, err // it has come while the call waited
	}
	keep := time.Duration(0)
	if ca.lease > 0 {
		keep = max(2*ca.lease, leastKeep) + ca.linger
	}
	for i, g := range grants {
		all[i].Terms = &managerv1.Terms{
			CacheId: g.cache, Grant: g.id, VmId: g.vm.id, Regions: g.regions, RegionSize: g.regionSize, Cores: g.cores,
			Epoch: l.self.Epoch, KeepMs: keep.Milliseconds(), Holder: ca.holder, NotAfterUnixMs: api.ToMillis(time.Now().Add(termsLife)),
		}
		all[i].Token = g.vm.Token(all[i].Terms)
	}
	return all, nil
}

// protos is called under mu.
func protos(grants []*grant, pending bool) []*managerv1.Grant {
	var all []*managerv1.Grant
	for _, s := range grants {
		all = append(all, &managerv1.Grant{Vm: s.vm.proto(), Regions: s.regions, Id: s.id, Cores: s.cores, Pending: pending})
	}
	return all
}

// describedVMs lists VMs that are up, and failed ones of which caches have grants, by age.
// Called under mu.
func (c *state) describedVMs() []*managerv1.Vm {
	type described struct {
		order uint64
		vm    *managerv1.Vm
	}
	var vms []described
	for v := range pieces(c, c.orders) {
		if v.ControlURL != "" && (v.failed == "" || v.lent > 0) {
			vms = append(vms, described{v.order, v.proto()})
		}
	}
	slices.SortFunc(vms, func(a, b described) int { return cmp.Compare(a.order, b.order) })
	all := make([]*managerv1.Vm, len(vms))
	for i, d := range vms {
		all[i] = d.vm
	}
	return all
}
