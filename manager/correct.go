package manager

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// What caches give corrects the models: for each transport, network and distance there are the
// observations of some configurations, by which the search scales its predictions
// (model.Scaling). An observation holds for a while. After that the model is believed again, as
// nobody measures a configuration that no cache has; if the configuration then turns out to be as
// before, its observation holds twice as long.

const (
	correctionHolds     = 10 * time.Minute
	correctionHoldsMost = 8 * time.Hour
	maxObserved         = 16  // configurations at one place
	maxCorrections      = 256 // places

	// worldChanged is the ratio of two observations of one configuration from which on those of
	// others, which are older, do not hold any more.
	worldChanged = 1.25
	// sameAsBefore is the ratio up to which an observation confirms the one before.
	sameAsBefore = 1.15
	// An observation that differs from a young one by less changes nothing.
	nothingNew, young = 1.05, time.Minute
)

// heldObservation is an observation of what caches gave.
type heldObservation struct {
	model.Observation
	at    time.Time
	holds time.Duration
}

func (o *heldObservation) held(now time.Time) bool { return now.Before(o.at.Add(o.holds)) }

// observe corrects the predictions at a place by an observation. It reports whether that says
// something new.
func (s *searcher) observe(at model.Place, o model.Observation, now time.Time) (learnt bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.corrections[at]
	if before == nil && len(s.corrections) >= maxCorrections {
		return false, nil
	}
	ratio := func(a, b float64) float64 { return math.Exp(math.Abs(math.Log(a / b))) }
	next, others := heldObservation{Observation: o, at: now, holds: correctionHolds}, []heldObservation(nil)
	changed := false
	for _, b := range before {
		if b.Config != o.Config {
			others = append(others, b)
			continue
		}
		switch r := ratio(b.Latency, o.Latency); {
		case b.held(now) && r < nothingNew && now.Sub(b.at) < young:
			return false, nil
		case b.held(now):
			next.holds, changed = b.holds, r > worldChanged
		case r < sameAsBefore:
			next.holds = min(2*b.holds, correctionHoldsMost)
		}
	}
	if changed {
		others = nil
	}
	slices.SortFunc(others, func(a, b heldObservation) int { return b.at.Compare(a.at) })
	others = others[:min(len(others), maxObserved-1)]
	s.corrections[at] = append([]heldObservation{next}, others...)
	if err := s.rebuild(now); err != nil {
		s.corrections[at] = before
		return false, err
	}
	if max(ratio(o.Latency, 1), ratio(o.Mops, 1)) > worldChanged {
		s.doubted(at, now)
	}
	return true, nil
}

// correctedAt reports whether there are corrections at a place.
func (s *searcher) correctedAt(at model.Place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.corrections[at]) > 0
}

// expire lets observations end that do not hold any more, and forgets those that ended long ago.
func (s *searcher) expire(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := false
	for at, all := range s.corrections {
		for i := range all {
			o := &all[i]
			ended = ended || !o.held(now) && o.at.Add(o.holds).After(s.built)
		}
		kept := slices.DeleteFunc(slices.Clone(all), func(o heldObservation) bool { return now.Sub(o.at) > 3*o.holds })
		if s.corrections[at] = kept; len(kept) == 0 {
			delete(s.corrections, at)
		}
	}
	if !ended {
		return nil
	}
	return s.rebuild(now)
}

// scalings returns the corrections that hold. Called under mu.
func (s *searcher) scalings(now time.Time) map[model.Place]model.Scaling {
	by := make(map[model.Place]model.Scaling)
	for at, all := range s.corrections {
		for _, o := range all {
			if o.held(now) {
				by[at] = append(by[at], o.Observation)
			}
		}
	}
	return by
}

// corrected lists the corrections that hold, for people. Called under mu.
func (s *searcher) corrected() (all []*managerv1.Model) {
	for at, some := range s.corrections {
		for _, o := range some {
			if !o.held(s.built) {
				continue
			}
			all = append(all, &managerv1.Model{
				Name: fmt.Sprintf("%s, network %s", at.Transport, at.Network), Transport: at.Transport,
				Provenance: fmt.Sprintf("what caches gave at distance %d, %s", at.Distance, o.at.UTC().Format(time.DateTime)),
				Note:       fmt.Sprintf("corrected: %v has latency x %.2f, throughput x %.2f, until %s", o.Config, o.Latency, o.Mops, o.at.Add(o.holds).UTC().Format(time.TimeOnly)),
				Origin:     managerv1.Model_ORIGIN_SCALED, MeasuredUnixMs: api.ToMillis(o.at),
			})
		}
	}
	slices.SortFunc(all, func(a, b *managerv1.Model) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provenance, b.Provenance), cmp.Compare(a.Note, b.Note))
	})
	return all
}

// storedCorrections returns the corrections as records. Called under mu.
func (s *searcher) storedCorrections() (all []*catalogv1.Correction) {
	for at, some := range s.corrections {
		c := &catalogv1.Correction{Transport: at.Transport, Network: at.Network, Distance: uint32(at.Distance)}
		for _, o := range some {
			c.Observed = append(c.Observed, &catalogv1.Observed{
				Configuration: configurationOf(plan.Config(o.Config)), Latency: o.Latency, Throughput: o.Mops, AtUnixMs: api.ToMillis(o.at), HoldsMs: o.holds.Milliseconds(),
			})
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *catalogv1.Correction) int {
		return cmp.Or(cmp.Compare(a.GetTransport(), b.GetTransport()), cmp.Compare(a.GetNetwork(), b.GetNetwork()), cmp.Compare(a.GetDistance(), b.GetDistance()))
	})
	return all
}

// restoreCorrections restores records. An observation of a clock that was ahead is one of now.
// Called under mu.
func (s *searcher) restoreCorrections(all []*catalogv1.Correction, now time.Time) {
	s.corrections = make(map[model.Place][]heldObservation)
	for _, c := range all[:min(len(all), maxCorrections)] {
		at := model.Place{Transport: c.GetTransport(), Network: c.GetNetwork(), Distance: int(c.GetDistance())}
		for _, p := range c.GetObserved()[:min(len(c.GetObserved()), maxObserved)] {
			o := heldObservation{
				Observation: model.Observation{Config: model.Config(planConfig(p.GetConfiguration())), Latency: p.GetLatency(), Mops: p.GetThroughput()},
				at:          api.FromMillis(p.GetAtUnixMs()), holds: time.Duration(min(max(0, p.GetHoldsMs()), correctionHoldsMost.Milliseconds())) * time.Millisecond,
			}
			if o.at.After(now) {
				o.at = now
			}
			if err := o.Check(); err != nil {
				s.warn("a stored correction is left out", "err", err)
				continue
			}
			s.corrections[at] = append(s.corrections[at], o)
		}
	}
}
