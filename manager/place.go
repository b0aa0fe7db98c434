package manager

import (
	"fmt"

	"github.com/redykv/redykv/internal/units"
)

// maxVMsPerCache bounds how many VMs one request may make the allocator launch.
const maxVMsPerCache = 256

// candidate is a VM of the pool as placement sees it.
type candidate struct {
	vm        *vm
	transport string
	free      uint64 // bytes not reserved
	cores     uint32 // server threads not reserved
}

// launcher says what the allocator can be asked for.
type launcher struct {
	available bool
	vmMemory  uint64 // most bytes of one VM; 0: no limit
}

// part is what one VM contributes to a cache.
type part struct {
	vm      *vm // of the pool; nil: to be launched
	regions uint32
	cores   uint32 // server threads on this VM
}

// place chooses the VMs of a cache: first what those have room for that it uses
// already (present), then the first server of the pool that holds the rest
// whole; else VMs to be launched, as few as their size limit allows; else, with
// no allocator, as many servers of the pool as it takes, in their order. The
// error is a *CapacityError where there is too little memory.
func place(d demand, present, pool []candidate, l launcher) ([]part, error) {
	parts, d := d.fill(present)
	for i := range pool {
		for _, p := range parts {
			if p.vm == pool[i].vm {
				pool[i].free -= uint64(p.regions) * d.regionSize
				pool[i].cores -= p.cores
			}
		}
	}
	if d.regions == 0 {
		return parts, nil
	}
	for _, c := range pool {
		if d.takes(c) == d.regions {
			return append(parts, d.part(c.vm, d.regions)), nil
		}
	}
	if l.available {
		more, err := launchParts(d, l.vmMemory)
		return append(parts, more...), err
	}
	more, rest := d.fill(pool)
	if rest.regions > 0 {
		return nil, d.tooLarge(pool)
	}
	return append(parts, more...), nil
}

// fill gives the candidates as many regions as they take, in their order, and
// returns the demand for those that are left.
func (d demand) fill(candidates []candidate) ([]part, demand) {
	var parts []part
	for _, c := range candidates {
		if n := d.takes(c); n > 0 {
			parts = append(parts, d.part(c.vm, n))
			d.regions -= n
		}
	}
	return parts, d
}

// tooLarge says how much of the demand the pool could take.
func (d demand) tooLarge(pool []candidate) error {
	servers, possible := 0, uint64(0)
	for _, c := range pool {
		if c.transport == d.transport {
			servers++
		}
		possible += uint64(d.takes(c)) * d.regionSize
	}
	what := fmt.Sprintf("%d registered cache servers over %s", servers, d.transport)
	if s := d.config.GetServerThreads(); s > 0 {
		what += fmt.Sprintf(", for %d server threads in all", s)
	}
	return &CapacityError{What: what, Asked: uint64(d.regions) * d.regionSize, Available: possible}
}

// launchParts cuts a cache into equal VMs, the last one possibly smaller.
func launchParts(d demand, vmMemory uint64) ([]part, error) {
	each := d.regions
	if vmMemory > 0 {
		each = uint32(min(uint64(d.regions), vmMemory/d.regionSize))
	}
	if each == 0 {
		return nil, fmt.Errorf("region_size %v: one VM has at most %v", units.Size(d.regionSize), units.Size(vmMemory))
	}
	if n := (d.regions-1)/each + 1; n > maxVMsPerCache {
		return nil, &CapacityError{
			What:      fmt.Sprintf("%d VMs of at most %v", maxVMsPerCache, units.Size(vmMemory)),
			Asked:     uint64(d.regions) * d.regionSize,
			Available: maxVMsPerCache * uint64(each) * d.regionSize,
		}
	}
	var parts []part
	for left := d.regions; left > 0; left -= min(left, each) {
		parts = append(parts, d.part(nil, min(left, each)))
	}
	return parts, nil
}

// takes returns how many of the demand's regions fit a candidate, by memory and
// by the server threads that so many regions need.
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

// part gives n regions to a VM, and the server threads that they need.
func (d demand) part(v *vm, n uint32) part { return part{vm: v, regions: n, cores: d.coresFor(n)} }

// coresFor keeps the configuration's ratio of cores to memory (R26, R73, A17). A
// VM has no use for more threads than it has connections, one for each client
// thread (R57).
func (d demand) coresFor(n uint32) uint32 {
	s := uint64(d.config.GetServerThreads())
	return uint32(min((s*uint64(n)+uint64(d.per)-1)/uint64(d.per), uint64(d.config.GetClientThreads())))
}
