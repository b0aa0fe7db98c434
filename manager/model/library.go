package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Library answers queries from its models. It is immutable and safe for concurrent use.
type Library struct {
	models  []*Model
	volumes []volume
	// corrected are volumes, in their order, with the predictions that hold at a place; those without
	// a Measurement are not corrected there.
	corrected map[Place][]volume
}

// Place is where a correction applies: a transport, a network as clients model it, and a distance
// in switches.
type Place struct {
	Transport, Network string
	Distance           int
}

// volume is one complete measurement with its surfaces.
type volume struct {
	*Measurement
	from     Provenance
	surfaces [Writes + 1]*Surface // by Ops
}

// NewLibrary makes a library of models. Of several measurements of the same thing the first
// counts. Incomplete measurements are left out.
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
			v, err := newVolume(n, m.Provenance)
			if err != nil {
				return nil, err
			}
			l.volumes = append(l.volumes, v)
		}
	}
	return l, nil
}

func newVolume(n *Measurement, from Provenance) (volume, error) {
	v := volume{Measurement: n, from: from}
	for ops := range v.surfaces {
		var err error
		if v.surfaces[ops], err = n.SurfaceOf(Ops(ops)); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Corrected returns the library with other predictions at some places, for records of all sizes.
func (l *Library) Corrected(by map[Place]Scaling) (*Library, error) {
	c := &Library{models: l.models, volumes: l.volumes, corrected: make(map[Place][]volume)}
	for at, scaling := range by {
		all := make([]volume, len(l.volumes))
		for i := range l.volumes {
			v := &l.volumes[i]
			if v.from.Transport != at.Transport || v.Network != at.Network || v.Distance != at.Distance && !v.anyDistance() {
				continue
			}
			var err error
			if all[i], err = newVolume(v.Scaled(scaling, scaling), v.from); err != nil {
				return nil, err
			}
		}
		c.corrected[at] = all
	}
	return c, nil
}

// Models returns the models of the library.
func (l *Library) Models() []*Model { return slices.Clone(l.models) }

// Query is an SLO with what is known of the client.
type Query struct {
	SLO
	Ops Ops // that the SLO applies to
	// Margin returns how much better than each bound of the SLO a model's prediction must be at a
	// place, as a fraction below 1 (A26); false: the model is not searched there. Nil: no better.
	Margin     func(at Place, from Provenance) (margin float64, ok bool)
	RecordSize int // bytes (R10)
	Transport  string
	// Network returns the name of the network that the client models at a distance;
	// NoNetwork if there is only the transport.
	Network     func(distance int) string
	ClientCores int // maximum client threads; 0: as many as were measured
	QueueDepth  int // maximum batches in flight on a connection; 0: as many as were measured
}

// NoNetwork is the name of a network that adds nothing to a transport.
const NoNetwork = "none"

// Search finds for each distance, in switches, the configuration that meets the SLO there
// (R25). A distance without a model has none (A24). If no distance has one, the error is
// that of the nearest: an *[ImpossibleError], or [ErrNoModel].
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
		margin, ok := 0.0, true
		if q.Margin != nil {
			margin, ok = q.Margin(q.at(distance), v.from)
		}
		if !ok {
			continue
		}
		surface := v.surfaces[q.Ops]
		a, ok := answers[surface]
		if !ok {
			a.found, a.err = surface.Search(v.spaceFor(q), q.tightened(margin))
			a.err = withoutMargin(a.err, q.SLO, margin)
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
	return nil, fmt.Errorf("%w of records of %d bytes over %s%s", ErrNoModel, q.RecordSize, q.Transport, l.available(q))
}

// Predict predicts the performance of a configuration for a query's operations and records at a
// distance; false if no model says.
func (l *Library) Predict(q Query, distance int, at Config) (Performance, bool) {
	v := l.find(q, distance)
	if v == nil {
		return Performance{}, false
	}
	p := v.surfaces[q.Ops].At(at)
	return p, !math.IsInf(p.LatencyUs, 1)
}

// Extent returns the least and the highest figures of the configurations that can answer a
// query, and their number, at the least distance that has a model.
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

// Source returns the provenance of the model that answers a query at a distance; false if
// there is none.
func (l *Library) Source(q Query, distance int) (Provenance, bool) {
	v := l.find(q, distance)
	if v == nil {
		return Provenance{}, false
	}
	return v.from, true
}

// at returns the place of a query's caches at a distance.
func (q *Query) at(distance int) Place { return Place{q.Transport, q.Network(distance), distance} }

// tightened returns the SLO with a margin added to its bounds.
func (o SLO) tightened(margin float64) SLO {
	return SLO{LatencyUs: o.LatencyUs * (1 - margin), Mops: o.Mops * (1 + margin)}
}

// withoutMargin turns an ImpossibleError about a tightened SLO into one about the SLO that was
// asked for, with the margin taken off its predictions.
func withoutMargin(err error, asked SLO, margin float64) error {
	var impossible *ImpossibleError
	if !errors.As(err, &impossible) || margin == 0 {
		return err
	}
	e := &ImpossibleError{Asked: asked, AtLatency: impossible.AtLatency, AtThroughput: impossible.AtThroughput}
	for _, f := range []*Found{&e.AtLatency, &e.AtThroughput} {
		p := &f.Predicted
		// Promise slightly less, so that rounding does not refuse the promised figures when
		// they are asked for; but a bound of the query that can be met is promised as it
		// is.
		const rounding = 1e-9
		p.LatencyUs *= (1 + rounding) / (1 - margin)
		p.Mops *= (1 - rounding) / (1 + margin)
		if most := asked.latency(); p.LatencyUs > most && p.LatencyUs < most*(1+2*rounding) {
			p.LatencyUs = most
		}
		if p.Mops < asked.Mops && p.Mops > asked.Mops*(1-2*rounding) {
			p.Mops = asked.Mops
		}
	}
	return e
}

// find returns the measurement with the least record size that is not below the query's
// (A23), or nil.
func (l *Library) find(q Query, distance int) *volume {
	place := q.at(distance)
	var best *volume
	at := 0
	for i := range l.volumes {
		v := &l.volumes[i]
		if v.from.Transport != q.Transport || v.Network != place.Network || v.RecordSize < q.RecordSize || v.Distance != distance && !v.anyDistance() {
			continue
		}
		if best == nil || v.RecordSize < best.RecordSize || v.RecordSize == best.RecordSize && v.Distance == distance && best.Distance != distance {
			best, at = v, i
		}
	}
	if some := l.corrected[place]; best != nil && some != nil && some[at].Measurement != nil {
		return &some[at]
	}
	return best
}

// anyDistance reports whether a volume applies to every distance at which the client has
// the same network. A modelled network includes all effects of distance, and on one host
// distance has none.
func (v *volume) anyDistance() bool {
	return v.Network != NoNetwork || v.from.Transport == "mem" || v.from.Transport == "shm"
}

// spaceFor returns the part of the space that the client can use.
func (v *volume) spaceFor(q Query) Space {
	s := Space{
		C: min(v.ClientCores, cmp.Or(max(0, q.ClientCores), v.ClientCores)), B: BatchLimit(max(1, q.RecordSize)),
		Q: min(v.QueueDepth, cmp.Or(max(0, q.QueueDepth), v.QueueDepth)),
	}
	s.Opt = min(v.Opt, s.Q)
	return s
}

// available lists the models of the library.
func (l *Library) available(q Query) string {
	var others []string
	for _, v := range l.volumes {
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

// largest returns the largest record size measured under the same conditions as v.
func (l *Library) largest(v *volume) int {
	largest := 0
	for _, o := range l.volumes {
		if o.from.Transport == v.from.Transport && o.Network == v.Network && o.Distance == v.Distance {
			largest = max(largest, o.RecordSize)
		}
	}
	return largest
}
