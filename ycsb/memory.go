package ycsb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
)

// Memory of processes in addition to the Shape's, in bytes: code and heap of this process, and
// of a server that is started for a device.
const (
	processMemory = 32 << 20
	serverMemory  = 24 << 20
)

// overhead is the fraction of the estimate added for page tables and for the rounding of
// allocators.
const overhead = 1.0 / 50

// readMemory is the memory of a pending cold read in addition to its record: the aligned
// blocks around it and the session's state.
const readMemory = 8 << 10

// MemoryOn returns an upper estimate of this machine's memory, in bytes, that a store of the
// shape takes on a device while it is loaded and read. Page cache, which the kernel can drop,
// does not count. The result is a float64, so that it cannot overflow.
func (s Shape) MemoryOn(device Device) float64 {
	sum := 0.0
	for _, p := range s.parts(device) {
		sum += p.bytes
	}
	return sum
}

// part is the memory of one part of a store.
type part struct {
	name  string
	bytes float64
}

// parts returns the parts of a store on a device, the local ones first.
func (s Shape) parts(device Device) []part {
	log := float64(s.LogBytes())
	parts := []part{{"local memory", float64(s.Memory)}, {"index", float64(kv.IndexMemory(s.Records))}}
	if slices.Contains(Peers, device) { // a peer's cache gets the memory of both
		parts = []part{{"cache", parts[0].bytes + parts[1].bytes}}
	}
	switch device {
	case Redy:
		parts = append(parts, part{"remote memory", float64(s.Cache) + serverMemory})
	case SMB:
		parts = append(parts, part{"share in memory", log + serverMemory})
	case Memory:
		parts = append(parts, part{"log", log})
	case "pebble": // see peers.PebbleOptions
		parts = append(parts, part{"memtables", min(log, 9*64<<20)})
	case "badger": // its default memtables, and the indexes and filters of its tables
		parts = append(parts, part{"memtables", 48<<20 + min(3*log, 7*64<<20)}, part{"tables' indexes", 20 * float64(s.Records)})
	}
	return parts
}

// MemoryBytes returns an upper estimate of this machine's memory that a comparison takes. All
// stores are open at once, as devices are measured alternately; the readers of only one run at
// a time.
func (c Comparison) MemoryBytes() int64 { return int64(size(c.memoryBytes())) }

func (c Comparison) memoryBytes() float64 {
	threads := max(loadThreads, slices.Max(c.Threads))
	sum := processMemory + float64(threads)*float64(c.Depth)*(readMemory+2*float64(KeySize+c.ValueSize))
	for _, d := range c.Devices {
		sum += c.MemoryOn(d)
	}
	return sum * (1 + overhead)
}

// fits returns an error if the comparison needs more memory than have.
func (c Comparison) fits(have int64) error {
	need := c.memoryBytes()
	if need <= float64(have) {
		return nil
	}
	var each []string
	for _, d := range c.Devices {
		var parts []string
		for _, p := range c.parts(d) {
			parts = append(parts, fmt.Sprintf("%s %v", p.name, size(p.bytes)))
		}
		each = append(each, fmt.Sprintf("%s (%s)", d, strings.Join(parts, ", ")))
	}
	return fmt.Errorf("needs about %v of memory for %s, and this process may have %v, the machine's memory or the limit of its control group: "+
		"lower --records, --memory or --cache, or compare fewer devices", size(need), strings.Join(each, ", "), units.Size(have))
}

// size converts a number of bytes to a Size, and limits it to 2^62.
func size(bytes float64) units.Size { return units.Size(min(bytes, 1<<62)) }
