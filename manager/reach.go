package manager

import (
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// reach is the set of network distances at which a cache's configuration is the one found for
// its SLO. nil: unknown, as for a configuration that the client named.
type reach map[int]bool

// knownReach caches the reach of a demand, which mover needs repeatedly.
type knownReach struct {
	slo    *managerv1.Slo
	config *managerv1.Configuration
	client *managerv1.Client
	models *predictions
	within reach
}

// of reports whether it is the reach of a demand, by some models.
func (k knownReach) of(d demand, models *predictions) bool {
	return k.slo == d.slo && k.config == d.config && k.client == d.client && k.models == models
}

// reachOf returns the distances for which a configuration was found.
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

// holds reports whether the SLO is met at a distance: one in reach, or nearer than all.
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

// bound restricts a demand to distances within reach, or nearer than the cache's VMs.
func (r reach) bound(d demand) demand {
	if r == nil || r[0] || d.distance == 0 {
		return d
	}
	for !r.holds(d.distance) { // the cache is too far away already
		d.distance--
	}
	d.configs = map[int]*managerv1.Configuration{int(d.distance): d.config}
	for distance := range r {
		d.configs[distance] = d.config
	}
	return d
}

// note adds to a decision that VMs were chosen at a distance where the SLO may not be met.
// present is the distance of the cache's VMs.
func (r reach) note(d *managerv1.Decision, present uint32) {
	for _, s := range d.GetSites() {
		met := r.holds(s.GetDistance()) || r == nil && s.GetDistance() <= present
		if s.GetChosen() && !met {
			s.Reason += "; the cache's SLO is not known to be met there"
		}
	}
}
