package ycsb

import (
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/bench/peers"
)

// subject is one store of a comparison.
type subject struct {
	device    Device
	readCache float64 // see Shape.ReadCache
}

// String returns the subject's name, in the names of experiments and of its directory.
func (s subject) String() string {
	if s.readCache == 0 {
		return string(s.device)
	}
	return fmt.Sprintf("%s+%g", s.device, s.readCache)
}

// isPeer says whether a device is another project's store.
func isPeer(d Device) bool { return slices.Contains(Peers, d) }

// environment returns what the environment of the store's process has in addition.
func (s subject) environment() []string {
	if isPeer(s.device) {
		return peers.Environment(string(s.device))
	}
	return nil
}

// hasFiles says whether a store has files in the comparison's directory.
func (s subject) hasFiles() bool { return s.device == SSD || s.device == Redy || isPeer(s.device) }

// subjects returns the stores of the comparison: one on each device for each read cache, and
// one of each peer, whose memory is all cache.
func (c Comparison) subjects() (all []subject) {
	for _, d := range c.Devices {
		if isPeer(d) {
			all = append(all, subject{device: d})
			continue
		}
		for _, share := range c.readCaches() {
			all = append(all, subject{d, share})
		}
	}
	return all
}

func (c Comparison) readCaches() []float64 {
	if len(c.ReadCaches) == 0 {
		return []float64{c.ReadCache}
	}
	return c.ReadCaches
}

// shape returns the shape of a subject's store.
func (c Comparison) shape(s subject) Shape {
	shape := c.Shape
	shape.ReadCache, shape.Written = s.readCache, c.writes()
	return shape
}

func (c Comparison) mixes() []MixName {
	if len(c.Mixes) == 0 {
		return []MixName{MixC}
	}
	return c.Mixes
}

// writes says whether there is a mix that writes.
func (c Comparison) writes() bool { return slices.ContainsFunc(c.mixes(), MixName.Writes) }

// depths returns the numbers of operations that a thread keeps under way: the comparison's, and
// for a peer also one at a time.
func (c Comparison) depths(s subject) []int {
	if isPeer(s.device) && c.Depth > 1 {
		return []int{c.Depth, 1}
	}
	return []int{c.Depth}
}

// specs returns the experiments in the order in which they run. All stores run one after
// another under the same load, so that other work on the machine affects them alike.
func (c Comparison) specs() (specs []Spec) {
	for _, mix := range c.mixes() {
		for _, distribution := range c.Distributions {
			for _, threads := range c.Threads {
				for _, s := range c.subjects() {
					for _, depth := range c.depths(s) {
						spec := Spec{
							Shape: c.shape(s), Device: s.device, Mix: mix, Distribution: distribution,
							Threads: threads, Duration: c.Duration, Warmup: c.Warmup, Rate: c.Rate,
						}
						spec.Depth = depth
						specs = append(specs, spec)
					}
				}
			}
		}
	}
	return specs
}

// seed returns the seed of an experiment in a round: no two experiments or rounds share one,
// so that neither a read cache nor a page cache has the records of another run.
func seed(round, experiments, experiment int) int64 {
	return int64(round*experiments + experiment + 1)
}

func (s Spec) subject() subject {
	if isPeer(s.Device) {
		return subject{device: s.Device}
	}
	return subject{s.Device, s.ReadCache}
}

// name returns the experiment's name, as in ssd/uniform/2; with the mix if it writes, as in
// ssd/a/uniform/2; for a peer with the operations under way per thread, as in pebble/uniform/2x128.
func (s Spec) name() string {
	name := s.subject().String()
	if s.Mix.Writes() {
		name += "/" + string(s.Mix)
	}
	name += fmt.Sprintf("/%s/%d", s.Distribution, s.Threads)
	if isPeer(s.Device) {
		name += fmt.Sprintf("x%d", s.Depth)
	}
	return name
}
