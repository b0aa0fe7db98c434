package redytier

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// vm is one VM that holds regions of the cache. Constant but for lost.
type vm struct {
	id         string
	controlURL string
	fabricAddr string
	distance   int // switches on the way there; 0: not known
	ticket     redywire.Ticket
	tokens     []fabric.Token // of its regions, by the server's index
	first      int            // virtual number of its first region

	// lost is why the VM's regions are gone; nil while they are not. It is set
	// once and never cleared: what was in them does not come back.
	lost atomic.Pointer[error]
}

// table maps virtual regions to those of VMs (R12): address a is in region
// a >> shift at offset a & mask. VM after VM holds a run of them.
type table struct {
	capacity int64
	shift    uint
	mask     int64
	vms      []*vm
	regions  []place
}

// place is where one virtual region lives.
type place struct {
	vm    int    // in table.vms
	index uint32 // at the VM
}

func newTable(capacity, regionSize int64) *table {
	return &table{capacity: capacity, shift: uint(bits.TrailingZeros64(uint64(regionSize))), mask: regionSize - 1}
}

// need is how many regions the capacity takes.
func (t *table) need() int { return int((t.capacity-1)>>t.shift) + 1 }

// add appends a VM's regions. It fails if they are more than the capacity takes.
func (t *table) add(v *vm) error {
	if len(t.regions)+len(v.tokens) > t.need() {
		return fmt.Errorf("VM %s brings %d regions, %d are left to place", v.id, len(v.tokens), t.need()-len(t.regions))
	}
	v.first = len(t.regions)
	for i := range v.tokens {
		t.regions = append(t.regions, place{vm: len(t.vms), index: uint32(i)})
	}
	t.vms = append(t.vms, v)
	return nil
}

// span is the addresses that VM v holds.
func (t *table) span(v *vm) (from, to int64) {
	from = int64(v.first) << t.shift
	return from, min(from+int64(len(v.tokens))<<t.shift, t.capacity)
}
