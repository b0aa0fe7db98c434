package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
)

// A prediction has ground if its model was measured where the caches are: the model is one of the
// options, or is scaled by a calibration, or what caches gave at that place corrects it. A model that
// comes with the program has none: it was measured on another machine, even if that has processors of
// the same name. What has no ground is promised with a larger margin, or not at all.

// DefaultUncalibratedMargin is the default of Options.UncalibratedMargin.
const DefaultUncalibratedMargin = 0.5

// errNoGround is the error of an SLO that only models of other machines answer, of a manager that
// refuses these.
var errNoGround = errors.New("slo: predictions for it come from a model of another machine, and this manager promises nothing by these (--slo strict): " +
	"try again when it has calibrated itself, calibrate it at once (redykv model calibrate), or name a configuration")

// originOf says how the figures of a model came about.
func (s *searcher) originOf(from model.Provenance) managerv1.Model_Origin {
	of := func(m *model.Model) bool { return m.Provenance == from }
	switch {
	case slices.ContainsFunc(s.own, of):
		return managerv1.Model_ORIGIN_MEASURED
	case slices.ContainsFunc(s.others, of):
		return managerv1.Model_ORIGIN_SHIPPED
	}
	return managerv1.Model_ORIGIN_SCALED
}

// grounded reports whether a prediction has ground.
func (s *searcher) grounded(in *predictions, at model.Place, from model.Provenance) bool {
	return in.corrected[at] || s.originOf(from) != managerv1.Model_ORIGIN_SHIPPED
}

// marginOf returns by how much a prediction with or without ground must be better than an SLO, as a share
// of its bounds.
func (s *searcher) marginOf(ground bool) float64 {
	if ground {
		return s.margin
	}
	return s.uncalibrated
}

// basis says on which model the prediction for a demand stands, and what margin that takes; nil: no
// model says.
func (s *searcher) basis(d demand) (*managerv1.Model, float64) {
	q, err := queryOf(d.slo, d.transport, d.client)
	if err != nil {
		return nil, 0
	}
	in, at := s.now.Load(), placeOf(d)
	from, known := in.library.Source(q, at.Distance)
	if !known {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := modelOf(from, s.originOf(from), "")
	var notes []string
	if in.corrected[at] {
		m.Origin, notes = managerv1.Model_ORIGIN_SCALED, append(notes, "corrected by what caches gave")
	}
	if f, failed := s.failures[at]; failed {
		notes = append(notes, fmt.Sprintf("the calibration of %s failed: %v", f.at.UTC().Format(time.DateTime), f.err))
	}
	m.Note = strings.Join(notes, "; ")
	return m, s.marginOf(s.grounded(in, at, from))
}

// A calibration is made anew when what caches give disagrees with it: when it was corrected by more
// than worldChanged, or when a cache there has kept less than leastKept of its windows.

const (
	// leastKept is the share of the windows of a cache that keep its SLO where the model is right, once
	// enoughJudged are judged.
	leastKept    = 0.95
	enoughJudged = 20

	// doubtsAfter is how old a calibration must be to be made anew: longer than what disturbs it for a
	// while.
	doubtsAfter = time.Hour
)

// failure is the last calibration that failed at a place.
type failure struct {
	at  time.Time
	err error
}

// doubt notes that what caches give at a place disagrees with the models there.
func (s *searcher) doubt(at model.Place, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubted(at, now)
}

// doubted is doubt, called under mu.
func (s *searcher) doubted(at model.Place, now time.Time) {
	if _, known := s.doubts[at]; known || len(s.doubts) < maxCorrections {
		s.doubts[at] = now
	}
}

// due reports whether a calibration is to be made anew. Called under mu.
func (s *searcher) due(c *catalogv1.Calibration, now time.Time) bool {
	made := api.FromMillis(c.GetAtUnixMs())
	return s.doubts[placeOfStored(c)].After(made) && now.Sub(made) >= doubtsAfter
}

// calibrationFailed notes why a calibration failed, for those who ask on what predictions stand.
func (s *searcher) calibrationFailed(at model.Place, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.failures[at]; known || len(s.failures) < maxCorrections {
		s.failures[at] = failure{now, err}
	}
}
