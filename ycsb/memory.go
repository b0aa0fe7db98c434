package ycsb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
)

// What processes take beside what a Shape says, in bytes: code and heap of this one, and
// of a server that is started for a device.
const (
	processMemory = 32 << 20
	serverMemory  = 24 << 20
)

// overhead is the part of all that is estimated that no estimate is of: page tables,
// and what allocators round up.
const overhead = 1.0 / 50

// readMemory is what a cold read of a store has under way beside its record: aligned
// blocks around it, and what the session keeps of it.
const readMemory = 8 << 10

// MemoryOn is about how many bytes of this machine's memory a store of that shape
// takes on a device, at most, while it is loaded and read. What the kernel can drop at
// once, of files that are read by way of the page cache, does not count. It is no whole
// number, so that no Shape is too large for it.
func (s Shape) MemoryOn(device Device) float64 {
	sum := 0.0
	for _, p := range s.parts(device) {
		sum += p.bytes
	}
	return sum
}

// part is what one part of a store takes.
type part struct {
	name  string
	bytes float64
}

// parts are those of a store on a device, the local ones first.
func (s Shape) parts(device Device) []part {
	log := float64(s.LogBytes())
	parts := []part{{"local memory", float64(s.Memory)}, {"index", float64(kv.IndexMemory(s.Records))}}
	if slices.Contains(Peers, device) { // these two are its cache
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
	case "badger": // its defaults, and the tables' own indexes and filters
		parts = append(parts, part{"memtables", 48<<20 + min(3*log, 7*64<<20)}, part{"tables' indexes", 20 * float64(s.Records)})
	}
	return parts
}

// MemoryBytes is about what a comparison takes of this machine's memory, at most. All stores are open at once, so
// that devices are measured alternately; the readers of one at a time.
func (c Comparison) MemoryBytes() int64 { return int64(size(c.memoryBytes())) }

func (c Comparison) memoryBytes() float64 {
	threads := max(loadThreads, slices.Max(c.Threads))
	sum := processMemory + float64(threads)*float64(c.Depth)*(readMemory+2*float64(KeySize+c.ValueSize))
	for _, d := range c.Devices {
		sum += c.MemoryOn(d)
	}
	return sum * (1 + overhead)
}

// fits refuses a comparison that needs more memory than there is.
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

// size is a number of bytes that may be too large for its type.
func size(bytes float64) units.Size { return units.Size(min(bytes, 1<<62)) }
