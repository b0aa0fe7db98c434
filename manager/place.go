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

// place chooses the VMs of a cache: the first server of the pool that holds it
// whole; else VMs to be launched, as few as their size limit allows; else, with
// no allocator, as many servers of the pool as it takes, in their order. The
// error is a *CapacityError where there is too little memory.
func place(d demand, pool []candidate, l launcher) ([]part, error) {
	for _, c := range pool {
		if d.takes(c) == d.regions {
			return []part{d.part(c.vm, d.regions)}, nil
		}
	}
	if l.available {
		return launchParts(d, l.vmMemory)
	}
	var parts []part
	left, possible, servers := d.regions, uint64(0), 0
	for _, c := range pool {
		if c.transport == d.transport {
			servers++
		}
		n := d.takes(c)
		possible += uint64(n) * d.regionSize
		if n = min(n, left); n > 0 {
			parts = append(parts, d.part(c.vm, n))
			left -= n
		}
	}
	if left > 0 {
		what := fmt.Sprintf("%d registered cache servers over %s", servers, d.transport)
		if s := d.config.GetServerThreads(); s > 0 {
			what += fmt.Sprintf(", for %d server threads in all", s)
		}
		return nil, &CapacityError{
			What:      what,
			Asked:     uint64(d.regions) * d.regionSize,
			Available: possible,
		}
	}
	return parts, nil
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
	if s := uint64(d.config.GetServerThreads()); s > 0 {
		// The largest n with ceil(s*n/regions) <= cores.
		n = min(n, uint64(c.cores)*uint64(d.regions)/s)
	}
	return uint32(n)
}

// part gives n regions to a VM, and the share of the cache's server threads that
// keeps the configuration's ratio of cores to memory (R26, A17).
func (d demand) part(v *vm, n uint32) part {
	s := uint64(d.config.GetServerThreads())
	return part{vm: v, regions: n, cores: uint32((s*uint64(n) + uint64(d.regions) - 1) / uint64(d.regions))}
}
