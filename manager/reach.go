package manager

import (
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// reach is the network distances at which a cache's configuration is what its SLO
// calls for. nil: not known, as where the cache has named its configuration.
type reach map[int]bool

// knownReach is the reach of a demand. It is looked for again and again while caches
// stay where they are, and does not change unless what it follows from does.
type knownReach struct {
	slo    *managerv1.Slo
	config *managerv1.Configuration
	client *managerv1.Client
	within reach
}

// of says whether it is that of a demand.
func (k knownReach) of(d demand) bool {
	return k.slo == d.slo && k.config == d.config && k.client == d.client
}

// reachOf compares a configuration with those that were found for the SLO.
func reachOf(found map[int]*managerv1.Configuration, config *managerv1.Configuration) reach {
	var r reach
	for distance, c := range found {
		if proto.Equal(c, config) {
			if r == nil {
				r = make(reach)
			}
			r[distance] = true
		}
	}
	return r
}

// holds says whether the SLO is met at a distance: at one in reach, or nearer than all.
func (r reach) holds(distance uint32) bool {
	if r[0] || r[int(distance)] {
		return true
	}
	for within := range r {
		if within < int(distance) {
			return false
		}
	}
	return len(r) > 0
}

// bound keeps a demand within reach. What is nearer than the cache's VMs does too.
func (r reach) bound(d demand) demand {
	if r == nil || r[0] || d.distance == 0 {
		return d
	}
	for !r.holds(d.distance) { // the cache stands too far away already
		d.distance--
	}
	d.configs = map[int]*managerv1.Configuration{int(d.distance): d.config}
	for distance := range r {
		d.configs[distance] = d.config
	}
	return d
}

// note says in a decision that VMs were chosen at a distance where the SLO is not known
// to be met. present is the distance of those that the cache had.
func (r reach) note(d *managerv1.Decision, present uint32) {
	for _, s := range d.GetSites() {
		met := r.holds(s.GetDistance()) || r == nil && s.GetDistance() <= present
		if s.GetChosen() && !met {
			s.Reason += "; the cache's SLO is not known to be met there"
		}
	}
}
