package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Library answers SLOs by the models that it has. It never changes, so any number of
// goroutines may use it.
type Library struct {
	models []*Model
	shelf  []volume
}

// volume is one complete measurement and what it says.
type volume struct {
	*Measurement
	from     Provenance
	surfaces [Writes + 1]*Surface // by Ops
}

// NewLibrary makes a library of models. Where several have measured the same, the
// first of them counts. Measurements that are not complete are left out.
func NewLibrary(models ...*Model) (*Library, error) {
	l := &Library{models: slices.Clone(models)}
	for _, m := range models {
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		for _, n := range m.Measurements {
			if !n.Complete() {
				continue
			}
			v := volume{Measurement: n, from: m.Provenance}
			for ops := range v.surfaces {
				var err error
				if v.surfaces[ops], err = n.SurfaceOf(Ops(ops)); err != nil {
					return nil, err
				}
			}
			l.shelf = append(l.shelf, v)
		}
	}
	return l, nil
}

// Models are what the library was made of.
func (l *Library) Models() []*Model { return slices.Clone(l.models) }

// Query is an SLO and what is known of who asks.
type Query struct {
	SLO
	Ops Ops // that the SLO is of
	// Margin is how much better than the SLO the prediction has to be, as a part of
	// each of its bounds, below 1 (A26).
	Margin     float64
	RecordSize int // bytes (R10)
	Transport  string
	// Network names the network that the client models at a distance; NoNetwork: the
	// transport is all there is.
	Network     func(distance int) string
	ClientCores int // most client threads; 0: as many as were measured
	QueueDepth  int // most batches in flight on a connection; 0: as many as were measured
}

// NoNetwork is what a network is called that adds nothing to a transport.
const NoNetwork = "none"

// Search finds for each distance, in switches, the configuration that meets the SLO
// there (R25). A distance of which there is no model has none (A24). If no distance
// has one, the error is that of the nearest: an *[ImpossibleError], or [ErrNoModel].
func (l *Library) Search(q Query) (map[int]Found, error) {
	type answer struct {
		found Found
		err   error
	}
	answers := map[*Surface]answer{}
	found := map[int]Found{}
	var nearest error
	for distance := 1; distance <= MaxDistance; distance++ {
		v := l.find(q, distance)
		if v == nil {
			continue
		}
		surface := v.surfaces[q.Ops]
		a, ok := answers[surface]
		if !ok {
			a.found, a.err = surface.Search(v.spaceFor(q), q.tightened(q.Margin))
			a.err = promise(a.err, q)
			answers[surface] = a
		}
		switch {
		case a.err == nil:
			found[distance] = a.found
		case nearest == nil:
			nearest = a.err
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case nearest != nil:
		return nil, nearest
	}
	return nil, fmt.Errorf("%w of records of %d bytes over %s%s", ErrNoModel, q.RecordSize, q.Transport, l.instead(q))
}

// Extent is what configurations achieve that a query can be answered with, at the
// least distance of which there is a model: the least and the most of each, and how
// many configurations there are.
func (l *Library) Extent(q Query) (least, most Performance, leaves int64, err error) {
	for distance := 1; distance <= MaxDistance; distance++ {
		if v := l.find(q, distance); v != nil {
			space := v.spaceFor(q)
			least, most = v.surfaces[q.Ops].extent(space)
			return least, most, space.Leaves(), nil
		}
	}
	_, err = l.Search(q)
	return least, most, 0, err
}

// Source is where the model comes from that answers a query at a distance; false if
// there is none.
func (l *Library) Source(q Query, distance int) (Provenance, bool) {
	v := l.find(q, distance)
	if v == nil {
		return Provenance{}, false
	}
	return v.from, true
}

// tightened is an SLO that leaves a margin to the one that is asked for.
func (o SLO) tightened(margin float64) SLO {
	return SLO{LatencyUs: o.LatencyUs * (1 - margin), Mops: o.Mops * (1 + margin)}
}

// promise makes of what is possible instead of a tightened SLO what can be promised,
// which is that with the margin taken off.
func promise(err error, q Query) error {
	var impossible *ImpossibleError
	if !errors.As(err, &impossible) || q.Margin == 0 {
		return err
	}
	e := &ImpossibleError{Asked: q.SLO, AtLatency: impossible.AtLatency, AtThroughput: impossible.AtThroughput}
	for _, f := range []*Found{&e.AtLatency, &e.AtThroughput} {
		p := &f.Predicted
		// A little less than that, so that it is not lost to rounding when it is asked
		// for; but what was asked for and can be had is just that.
		const rounding = 1e-9
		p.LatencyUs *= (1 + rounding) / (1 - q.Margin)
		p.Mops *= (1 - rounding) / (1 + q.Margin)
		if asked := q.latency(); p.LatencyUs > asked && p.LatencyUs < asked*(1+2*rounding) {
			p.LatencyUs = asked
		}
		if p.Mops < q.Mops && p.Mops > q.Mops*(1-2*rounding) {
			p.Mops = q.Mops
		}
	}
	return e
}

// find returns what was measured of the least record size that is not below the one
// asked for (A23), or nil.
func (l *Library) find(q Query, distance int) *volume {
	network := q.Network(distance)
	var best *volume
	for i := range l.shelf {
		v := &l.shelf[i]
		if v.from.Transport != q.Transport || v.Network != network || v.RecordSize < q.RecordSize || v.Distance != distance && !v.anyDistance() {
			continue
		}
		if best == nil || v.RecordSize < best.RecordSize || v.RecordSize == best.RecordSize && v.Distance == distance && best.Distance != distance {
			best = v
		}
	}
	return best
}

// anyDistance says whether a volume speaks of every distance at which the client is
// behind the same network: where that is modelled, it is all that distance does, and
// on one host distance does nothing.
func (v *volume) anyDistance() bool {
	return v.Network != NoNetwork || v.from.Transport == "mem" || v.from.Transport == "shm"
}

// spaceFor is the part of the space that a client can use.
func (v *volume) spaceFor(q Query) Space {
	limit := func(measured, asked int) int {
		if asked > 0 {
			return min(measured, asked)
		}
		return measured
	}
	s := Space{C: limit(v.ClientCores, q.ClientCores), B: BatchLimit(max(1, q.RecordSize)), Q: limit(v.QueueDepth, q.QueueDepth)}
	s.Opt = min(v.Opt, s.Q)
	return s
}

// instead says of what else there are models.
func (l *Library) instead(q Query) string {
	var others []string
	for _, v := range l.shelf {
		s := fmt.Sprintf("%s, network %s, distance %d, up to %d bytes", v.from.Transport, v.Network, v.Distance, l.largest(&v))
		if !slices.Contains(others, s) {
			others = append(others, s)
		}
	}
	if others == nil {
		return ""
	}
	return fmt.Sprintf(", network %s at distance 1; there are models of %s", q.Network(1), strings.Join(others, "; "))
}

// largest is the largest record that was measured like those of v.
func (l *Library) largest(v *volume) int {
	largest := 0
	for _, o := range l.shelf {
		if o.from.Transport == v.from.Transport && o.Network == v.Network && o.Distance == v.Distance {
			largest = max(largest, o.RecordSize)
		}
	}
	return largest
}
