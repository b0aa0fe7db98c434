package manager

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// DefaultSLOMargin is the default of Options.SLOMargin (A26).
const DefaultSLOMargin = 0.1

// MaxSLOMargin is the maximum of Options.SLOMargin.
const MaxSLOMargin = 0.9

// searcher finds configurations for SLOs (5.2) in models: those of the options, those that come with
// the program, scaled by calibrations (calibrate.go), and both corrected by what caches give
// (correct.go).
type searcher struct {
	own, others          []*model.Model // of the options, and of the program
	margin, uncalibrated float64        // of predictions with ground, and without (ground.go)
	strict               bool           // what has no ground is refused
	warn                 func(msg string, args ...any)
	once                 sync.Once // of the warning that a prediction has no ground
	now                  atomic.Pointer[predictions]

	mu           sync.Mutex // guards the fields below, and the change of now
	calibrations []*catalogv1.Calibration
	corrections  map[model.Place][]heldObservation
	doubts       map[model.Place]time.Time // when what caches give disagreed last
	failures     map[model.Place]failure   // of calibrations
	asked        map[network]bool          // over which caches have asked for an SLO
	built        time.Time                 // when the predictions were made
}

// network is a transport with a network as clients model it.
type network struct{ transport, name string }

// predictions are the models that are searched. They are immutable.
type predictions struct {
	base      *model.Library // without corrections
	library   *model.Library
	corrected map[model.Place]bool
	// What they were made of, as records, which are not changed.
	calibrations []*catalogv1.Calibration
	corrections  []*catalogv1.Correction
}

// newSearcher returns a searcher of the options' models, and those that come with the program.
func newSearcher(opts *Options) (*searcher, error) {
	for _, m := range opts.Models {
		if t := m.Provenance.Transport; t != opts.Transport {
			return nil, fmt.Errorf("manager: %w: a model of transport %s does not predict %s, the transport of this manager's caches (A25)", allocator.ErrTransport, t, opts.Transport)
		}
	}
	for _, m := range opts.Models {
		if err := checkComplete(m, opts.Logger); err != nil {
			return nil, fmt.Errorf("manager: %w", err)
		}
	}
	s := &searcher{
		own: opts.Models, others: model.Shipped(), margin: opts.SLOMargin, uncalibrated: opts.UncalibratedMargin, strict: opts.SLOStrict, warn: opts.Logger.Warn,
		corrections: make(map[model.Place][]heldObservation), asked: make(map[network]bool),
		doubts: make(map[model.Place]time.Time), failures: make(map[model.Place]failure),
	}
	if err := s.rebuild(time.Time{}); err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	return s, nil
}

// rebuild makes the predictions from models, calibrations and the corrections that hold. Called
// under mu, or before the searcher is used.
func (s *searcher) rebuild(now time.Time) error {
	base, err := model.NewLibrary(slices.Concat(s.own, s.calibrated(), s.others)...)
	if err != nil {
		return err
	}
	scalings := s.scalings(now)
	library, err := base.Corrected(scalings)
	if err == nil {
		corrected := make(map[model.Place]bool)
		for at := range scalings {
			corrected[at] = true
		}
		s.now.Store(&predictions{base, library, corrected, slices.Clone(s.calibrations), s.storedCorrections()})
		s.built = now
	}
	return err
}

// library returns the models that are searched now.
func (s *searcher) library() *model.Library { return s.now.Load().library }

// checkComplete reports a model without a complete measurement, and logs the incomplete
// measurements of others, which are not searched.
func checkComplete(m *model.Model, log *slog.Logger) error {
	complete := 0
	for _, n := range m.Measurements {
		if n.Complete() {
			complete++
			continue
		}
		log.Warn("incomplete measurement of a model is not searched: complete it by redykv model build --resume",
			"record_size", n.RecordSize, "distance", n.Distance, "measured", len(n.Points), "of", n.Size())
	}
	if complete == 0 {
		return fmt.Errorf("model of transport %s, begun %s: it has no complete measurement: go on with redykv model build --resume",
			m.Provenance.Transport, m.Provenance.Date.Format(time.DateOnly))
	}
	return nil
}

// errNoRecordSize is the error of an SLO with bounds and without a record size, on which
// performance depends.
var errNoRecordSize = fmt.Errorf("slo: record_size 0: a bound needs the size of the records, 1 to %d bytes", maxRecordSize)

// bounded reports whether an SLO has a bound.
func bounded(slo *managerv1.Slo) bool {
	return slo.GetMaxLatencyUs() > 0 || slo.GetMinThroughputMops() > 0
}

// search returns the configurations that meet an SLO by network distance (R25), or nil for an
// SLO without bounds. A configuration for all distances is at 0. The error is the call's.
func (s *searcher) search(slo *managerv1.Slo, transport string, client *managerv1.Client) (map[int]*managerv1.Configuration, error) {
	return s.searchWith(0, slo, transport, client)
}

// searchWith is search with more margin.
func (s *searcher) searchWith(more float64, slo *managerv1.Slo, transport string, client *managerv1.Client) (map[int]*managerv1.Configuration, error) {
	if !bounded(slo) {
		return nil, nil
	}
	if err := checkSLO(slo); err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, err)
	}
	if slo.GetRecordSize() == 0 {
		return nil, api.Refuse(connect.CodeInvalidArgument, errNoRecordSize)
	}
	q, err := queryOf(slo, transport, client)
	if err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("client: %w", err))
	}
	s.ask(network{transport, q.Network(1)})
	in := s.now.Load()
	q.SLO = model.SLO{LatencyUs: slo.GetMaxLatencyUs(), Mops: slo.GetMinThroughputMops()}
	// A model may have been measured beyond a cache's bounds.
	q.ClientCores = int(min(cmp.Or(client.GetCores(), redywire.MaxClientThreads), redywire.MaxClientThreads))
	q.QueueDepth = int(min(cmp.Or(client.GetQueueDepth(), redywire.MaxQueueDepth), redywire.MaxQueueDepth))
	grounded, guessed := false, false // at some distance
	q.Margin = func(at model.Place, from model.Provenance) (float64, bool) {
		ground := s.grounded(in, at, from)
		grounded, guessed = grounded || ground, guessed || !ground
		return min(s.marginOf(ground)+more, MaxSLOMargin), ground || !s.strict
	}
	found, err := in.library.Search(q)
	if guessed {
		s.once.Do(func() {
			s.warn("an SLO without a calibration: its prediction comes from a model of another machine", "transport", transport, "network", q.Network(1), "margin", s.uncalibrated, "strict", s.strict)
		})
	}
	switch onlyGuessed := guessed && !grounded; {
	case onlyGuessed && s.strict:
		return nil, api.Refuse(connect.CodeFailedPrecondition, errNoGround)
	case err != nil && onlyGuessed:
		return nil, refuseSLO(slo, err, fmt.Sprintf(" (by a model of another machine, with a margin of %.4g %% until this one is calibrated: redykv model calibrate)", 100*s.uncalibrated))
	case err != nil:
		return nil, refuseSLO(slo, err, "")
	}
	configs := configurations(found)
	for _, c := range configs {
		// A catalog with an invalid configuration could not be loaded.
		if err := checkConfiguration(c, slo.GetRecordSize()); err != nil {
			return nil, api.Refuse(connect.CodeInternal, fmt.Errorf("configuration found for the slo: %w", err))
		}
	}
	return configs, nil
}

// predict returns what the configuration of a cache is predicted to give for the operations and the
// record size of its SLO; nil: no model says.
func (s *searcher) predict(d demand) *managerv1.Performance {
	p, known := predictIn(s.library(), d)
	if !known {
		return nil
	}
	return &managerv1.Performance{LatencyUs: p.LatencyUs, ThroughputMops: p.Mops}
}

// predictIn predicts what a cache's configuration gives by some models; false: they do not say.
func predictIn(models *model.Library, d demand) (model.Performance, bool) {
	q, err := queryOf(d.slo, d.transport, d.client)
	if err != nil || d.config == nil || d.slo.GetRecordSize() == 0 {
		return model.Performance{}, false
	}
	return models.Predict(q, int(max(1, d.distance)), model.Config(planConfig(d.config)))
}

// queryOf returns the query for an SLO's operations and records, without bounds. The error is that of the
// client's network.
func queryOf(slo *managerv1.Slo, transport string, client *managerv1.Client) (model.Query, error) {
	network, err := fabric.ParseNetwork(cmp.Or(client.GetNetwork(), model.NoNetwork))
	return model.Query{
		Ops: opsOf(slo), RecordSize: int(slo.GetRecordSize()), Transport: transport,
		Network: func(distance int) string { return network.At(distance).String() },
	}, err
}

// placeOf returns where corrections for a demand apply.
func placeOf(d demand) model.Place {
	at, _ := fabric.ParseNetwork(cmp.Or(d.client.GetNetwork(), model.NoNetwork)) // search has refused others
	distance := int(max(1, d.distance))
	return model.Place{Transport: d.transport, Network: at.At(distance).String(), Distance: distance}
}

// opsOf returns the operations to which an SLO applies.
func opsOf(slo *managerv1.Slo) model.Ops {
	switch slo.GetOperations() {
	case managerv1.Slo_OPERATIONS_READS:
		return model.Reads
	case managerv1.Slo_OPERATIONS_WRITES:
		return model.Writes
	}
	return model.Both
}

// configurations returns the found configurations. One for all distances is at 0.
func configurations(found map[int]model.Found) map[int]*managerv1.Configuration {
	configs := make(map[int]*managerv1.Configuration)
	same := len(found) == model.MaxDistance
	for distance, f := range found {
		configs[distance] = configurationOf(plan.Config(f.Config))
		same = same && f.Config == found[1].Config
	}
	if same {
		return map[int]*managerv1.Configuration{0: configs[1]}
	}
	return configs
}

// nearest returns the configuration of the smallest distance.
func nearest(configs map[int]*managerv1.Configuration) *managerv1.Configuration {
	return configs[slices.Min(slices.Collect(maps.Keys(configs)))]
}

// refuseSLO returns the error of an SLO without a configuration. The hint ends it.
func refuseSLO(asked *managerv1.Slo, err error, hint string) error {
	var impossible *model.ImpossibleError
	if !errors.As(err, &impossible) {
		return api.Refuse(connect.CodeFailedPrecondition, fmt.Errorf("slo: %w; name a configuration, or see redykv model build", err))
	}
	what := "slo"
	if ops := opsOf(asked); ops != model.Both {
		what += " of " + ops.String()
	}
	near := impossible.Nearest()
	return api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("%s: %w%s", what, &api.SLOError{
		Asked: asked,
		Nearest: &managerv1.Slo{
			MaxLatencyUs: near.Predicted.LatencyUs, MinThroughputMops: near.Predicted.Mops,
			RecordSize: asked.GetRecordSize(), Operations: asked.GetOperations(),
		},
		Configuration: configurationOf(plan.Config(near.Config)),
		Cause:         impossible,
	}, hint))
}

// models lists the models that are searched.
func (s *searcher) models() []*managerv1.Model {
	var all []*managerv1.Model
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.own {
		all = append(all, modelOf(m.Provenance, managerv1.Model_ORIGIN_MEASURED, ""))
	}
	for _, c := range s.calibrations {
		all = append(all, modelOf(provenanceOf(c), managerv1.Model_ORIGIN_SCALED, s.foundBy(c)))
	}
	for _, m := range s.others {
		all = append(all, modelOf(m.Provenance, managerv1.Model_ORIGIN_SHIPPED, ""))
	}
	return append(all, s.corrected()...)
}

// modelOf names a model.
func modelOf(p model.Provenance, origin managerv1.Model_Origin, note string) *managerv1.Model {
	return &managerv1.Model{
		Name:       fmt.Sprintf("%s, network %s", p.Transport, p.Network),
		Transport:  p.Transport,
		Provenance: fmt.Sprintf("%s, %s, by revision %s", p.On(), p.Date.Format("2006-01-02"), p.Revision),
		Note:       note, Origin: origin, MeasuredUnixMs: api.ToMillis(p.Date),
	}
}
