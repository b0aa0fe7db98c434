package ycsb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
)

// Memory of processes in addition to the Shape's, in bytes.
const (
	programMemory = 48 << 20 // the pages of the program that run, which all processes share
	processMemory = 32 << 20 // heap and kernel memory of a process that has a store
	diskMemory    = 48 << 20 // of what measures the disk
	serverMemory  = 24 << 20 // of a server that is started for a device
)

// overhead is the fraction of the estimate added for page tables and for the rounding of
// allocators.
const overhead = 1.0 / 50

const (
	// readMemory is the memory of a pending cold read in addition to its record: the aligned
	// blocks around it and the session's state.
	readMemory = 8 << 10
	// goroutineMemory is that of a goroutine that reads from a peer.
	goroutineMemory = 16 << 10
	// latenciesMemory is the size of a histogram of latencies, see NewLatencies.
	latenciesMemory = 256 << 10
	// largeRecord is the size from which cached records are on the Go heap, with as much
	// garbage.
	largeRecord = 16 << 10
	// peerMemory is what a peer takes however small its caches are, for memtables and compactions.
	peerMemory = 32 << 20
	// peerFiles is the most that a peer's files take, in logs: a compaction writes them again.
	peerFiles = 2
)

// part is the memory of one part of a store.
type part struct {
	name  string
	bytes float64
	// local memory is that of the process that has the store; other memory is a server's.
	local bool
}

// MemoryOn returns an upper estimate of this machine's memory, in bytes, that a store of
// redykv of the shape takes on a device, without its files and those who load and read it. Page
// cache, which the kernel can drop, does not count. The result is a float64, so that it cannot
// overflow.
func (s Shape) MemoryOn(device Device) float64 { return total(s.parts(device), false) }

// parts returns the memory of a store of redykv on a device, the local parts first.
func (s Shape) parts(device Device) []part {
	log, index := float64(s.LogBytes()), float64(kv.IndexMemory(s.Records))
	all := []part{{"local memory", float64(s.Memory), true}, {"index", index, true}}
	if RecordBytes(s.ValueSize) > largeRecord && s.ReadCache > 0 {
		all = append(all, part{"garbage of the read cache", s.ReadCache * float64(s.Memory), true})
	}
	switch device {
	case Redy:
		all = append(all, part{"remote memory", float64(s.Cache) + serverMemory, false})
	case SMB:
		all = append(all, part{"share in memory", log + serverMemory, false})
	case Memory:
		all = append(all, part{"log", log, true})
	}
	return all
}

// process returns the memory of a process with a store of redykv, with those who load it and
// read it by a number of threads.
func (s Shape) process(threads int) []part {
	readers, value := max(loadThreads, threads), 2*float64(KeySize+s.ValueSize)
	return []part{processPart(readers), {"readers", float64(readers) * float64(s.Depth) * (readMemory + value), true}}
}

// peerParts returns the memory of a peer with caches of that many bytes and its process.
func (s Shape) peerParts(caches float64, threads int) []part {
	readers, value := max(loadThreads, threads), 2*float64(KeySize+s.ValueSize)
	return []part{
		{"caches", caches, true},
		{"memtables and compactions", peerMemory, true},
		processPart(readers),
		{"loading", 3 * float64(s.peerBatch()) * (value + 128), true},
		{"readers", float64(readers) * float64(s.Depth) * (goroutineMemory + value), true},
	}
}

// processPart is the memory of a process, with the histograms of its readers.
func processPart(readers int) part {
	return part{"process", processMemory + (2*float64(readers)+2)*latenciesMemory, true}
}

// total adds up parts: all of them, or the local ones.
func total(parts []part, local bool) float64 {
	sum := 0.0
	for _, p := range parts {
		if p.local || !local {
			sum += p.bytes
		}
	}
	return sum * (1 + overhead)
}

// parts returns the memory of one store of the comparison and its process.
func (c Comparison) parts(s subject) []part {
	if isPeer(s.device) {
		return c.peerParts(s, float64(c.caches(s)))
	}
	shape := c.shape(s)
	return slices.Concat(shape.parts(s.device), shape.process(slices.Max(c.Threads)), c.filesPart(s))
}

func (c Comparison) peerParts(s subject, caches float64) []part {
	return append(c.Shape.peerParts(caches, slices.Max(c.Threads)), c.filesPart(s)...)
}

// filesPart returns the memory of a store's files, if the comparison's directory is in memory.
// The kernel counts them for the process that writes them.
func (c Comparison) filesPart(s subject) []part {
	if !s.hasFiles() || !machine.InMemory(c.Dir) {
		return nil
	}
	return []part{{"files in memory", float64(c.files(s)), true}}
}

// local returns an upper estimate of the memory of a store's process.
func local(parts []part) float64 { return total(parts, true) + programMemory }

// limitBytes returns the memory limit of the stores' processes: what the largest store of
// redykv is estimated to take, on the SSD if peers alone are compared; or, where that is more,
// what a peer takes with half the caches that redykv has. 0: no store has a limit.
func (c Comparison) limitBytes() (most float64) {
	for _, s := range c.subjects() {
		switch {
		case isPeer(s.device):
			most = max(most, local(c.parts(subject{SSD, c.ReadCache})), local(c.peerParts(s, c.memory()/2)))
		case s.limited():
			most = max(most, local(c.parts(s)))
		}
	}
	return most
}

// memory returns the bytes of a store's local memory and index.
func (c Comparison) memory() float64 { return float64(c.Memory) + float64(kv.IndexMemory(c.Records)) }

// caches returns the bytes that a peer has for its caches: as much as redykv has for its local
// memory and index, or less if a peer's process takes more beside them: all have one limit.
func (c Comparison) caches(s subject) int64 {
	left := (c.limitBytes() - local(c.peerParts(s, 0))) / (1 + overhead)
	return int64(size(min(c.memory(), left)))
}

// MemoryBytes returns an upper estimate of this machine's memory that a comparison takes. All
// stores are open at once, as devices are measured alternately.
func (c Comparison) MemoryBytes() int64 { return int64(size(c.memoryBytes())) }

func (c Comparison) memoryBytes() float64 {
	sum := float64(programMemory)
	if c.Child != nil {
		sum += processMemory // of the process that compares
	}
	for _, load := range c.diskLoads() { // buffers of the device and of fio, and fio
		sum += diskMemory + 4*float64(load.Depth)*float64(load.Block)
		if machine.InMemory(c.Dir) {
			sum += float64(load.files())
		}
	}
	for _, s := range c.subjects() {
		sum += total(c.parts(s), false)
	}
	return sum
}

// fits returns an error if the comparison needs more memory than this process may have, or
// more than is available of that.
func (c Comparison) fits(have, available int64) error {
	need := c.memoryBytes()
	if need <= float64(min(have, available)) {
		return nil
	}
	var each []string
	for _, s := range c.subjects() {
		var parts []string
		for _, p := range c.parts(s) {
			parts = append(parts, fmt.Sprintf("%s %v", p.name, size(p.bytes)))
		}
		each = append(each, fmt.Sprintf("%v (%s)", s, strings.Join(parts, ", ")))
	}
	return fmt.Errorf("needs about %v of memory for %s, and this process may have %v, the machine's memory or the limit of its control group, of which %v are available: "+
		"lower --records, --memory, --cache, --threads or --depth, or compare fewer devices", size(need), strings.Join(each, ", "), units.Size(have), units.Size(available))
}

// size converts a number of bytes to a Size, and limits it to 2^62.
func size(bytes float64) units.Size { return units.Size(min(bytes, 1<<62)) }
