package manager

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// sampled measures the first configurations of a job's bases, everything that many times slower than
// they say.
func sampled(job Calibration, slow float64) (all []model.Sampled) {
	for _, base := range job.Bases {
		for _, p := range base.Points[:min(8, len(base.Points))] {
			by := func(p model.Performance) model.Performance {
				return model.Performance{LatencyUs: p.LatencyUs * slow, Mops: p.Mops / slow}
			}
			if !p.Skipped {
				all = append(all, model.Sampled{RecordSize: base.RecordSize, At: p.Config, Read: by(p.Read), Write: by(p.Write)})
			}
		}
	}
	return all
}

// calibrationOf returns a calibration of tcp by which everything is that many times slower.
func calibrationOf(s *searcher, slow float64, at time.Time) *catalogv1.Calibration {
	c := &catalogv1.Calibration{Transport: "tcp", Network: model.NoNetwork, Distance: 1, Processor: "Z80", Processors: 2, AtUnixMs: at.UnixMilli()}
	for _, x := range sampled(Calibration{Bases: model.Nearest(placeOfStored(c), s.unscaled()...)}, slow) {
		c.Samples = append(c.Samples, &catalogv1.Sample{
			RecordSize: uint32(x.RecordSize), Configuration: configurationOf(plan.Config(x.At)), Reads: performanceOf(x.Read), Writes: performanceOf(x.Write),
		})
	}
	return c
}

func searcherOf(t *testing.T, opts Options) *searcher {
	t.Helper()
	opts.Transport, opts.Logger = "tcp", quiet()
	if err := opts.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	s, err := newSearcher(&opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUncalibratedMargin checks by how much a prediction beats the SLO: by the larger margin as long as
// only a model of another machine answers, and by the smaller one once that is calibrated, or corrected by
// what a cache gave, or of the options.
func TestUncalibratedMargin(t *testing.T) {
	now := time.Unix(1e9, 0)
	at := model.Place{Transport: "tcp", Network: model.NoNetwork, Distance: 1}
	least := func(s *searcher) float64 { // that can be asked for
		t.Helper()
		_, err := s.search(slo(1e-3, 0, 64), "tcp", nil)
		if err == nil {
			t.Fatal("a latency of a nanosecond is promised")
		}
		return sloDetail(t, err).GetNearest().GetMaxLatencyUs()
	}
	best := func(s *searcher) float64 {
		p, _, _, err := s.library().Extent(model.Query{RecordSize: 64, Transport: "tcp", Network: func(int) string { return model.NoNetwork }})
		if err != nil {
			t.Fatal(err)
		}
		return p.LatencyUs
	}
	check := func(s *searcher, what string, margin float64) {
		t.Helper()
		if got := 1 - best(s)/least(s); math.Abs(got-margin) > 1e-6 {
			t.Errorf("%s: a margin of %v, want %v", what, got, margin)
		}
		d := demand{transport: "tcp", distance: 1, slo: slo(1, 0, 64)}
		if m, said := s.basis(d); m == nil || said != margin {
			t.Errorf("%s: it says a margin of %v by %v", what, said, m)
		}
	}
	s := searcherOf(t, Options{})
	check(s, "shipped", DefaultUncalibratedMargin)
	if _, err := s.search(slo(1e-3, 0, 64), "tcp", nil); !strings.Contains(err.Error(), "by a model of another machine, with a margin of 50 %") {
		t.Errorf("an SLO that is impossible: %v", err)
	}
	if _, err := s.calibrate(calibrationOf(s, 1.5, now), now); err != nil {
		t.Fatal(err)
	}
	check(s, "calibrated", DefaultSLOMargin)
	s = searcherOf(t, Options{SLOMargin: 0.2, UncalibratedMargin: -1})
	check(s, "shipped, with one margin for all", 0.2)
	s = searcherOf(t, Options{SLOMargin: 0.2, UncalibratedMargin: 0.3})
	check(s, "shipped, with margins of its own", 0.3)
	if learnt, err := s.observe(at, model.Observation{Config: model.Config{C: 1, B: 1, Q: 1}, Latency: 1.1, Mops: 0.9}, now); err != nil || !learnt {
		t.Fatal(learnt, err)
	}
	check(s, "corrected", 0.2)
	check(searcherOf(t, Options{Models: []*model.Model{testModel(t, "tcp")}}), "of the options", DefaultSLOMargin)
	for _, margin := range []float64{math.NaN(), 1} {
		if _, err := New(Options{UncalibratedMargin: margin, Logger: quiet()}); err == nil {
			t.Errorf("a margin of %v is taken", margin)
		}
	}
}

// TestStrict checks that a strict manager refuses an SLO that only a model of another machine answers,
// promises what can be promised after a calibration, and is not asked about SLOs without bounds.
func TestStrict(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := searcherOf(t, Options{SLOStrict: true})
	for _, asked := range []*managerv1.Slo{slo(1e6, 0, 64), slo(1e-3, 0, 64)} {
		if _, err := s.search(asked, "tcp", nil); !errors.Is(err, errNoGround) || connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%v: %v", asked, err)
		}
	}
	if configs, err := s.search(slo(0, 0, 0), "tcp", nil); configs != nil || err != nil {
		t.Errorf("without bounds: %v, %v", configs, err)
	}
	if _, err := s.search(slo(0, 1, 1<<20), "tcp", nil); errors.Is(err, errNoGround) || connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("without a model: %v", err)
	}
	if n := s.networks(); len(n) != 1 {
		t.Errorf("asked for: %v, so that nothing is calibrated", n)
	}
	if _, err := s.calibrate(calibrationOf(s, 1.5, now), now); err != nil {
		t.Fatal(err)
	}
	if configs, err := s.search(slo(1e6, 0, 64), "tcp", nil); err != nil || len(configs) == 0 {
		t.Errorf("calibrated: %v, %v", configs, err)
	}
	if _, err := s.search(slo(1e-3, 0, 64), "tcp", nil); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("calibrated, and impossible: %v", err)
	}
	// A model of distance 1 alone is ground there, and not at 3.
	far := testModel(t, "tcp")
	far.Measurements = far.Measurements[:1]
	s = searcherOf(t, Options{SLOStrict: true, Models: []*model.Model{far}})
	shipped := *testModel(t, "tcp")
	shipped.Provenance.Revision = "another"
	s.others = []*model.Model{&shipped}
	if err := s.rebuild(now); err != nil {
		t.Fatal(err)
	}
	if configs, err := s.search(slo(20, 0, 64), "tcp", nil); err != nil || len(configs) != 1 || configs[1] == nil {
		t.Errorf("%v, %v: want it at distance 1 alone", configs, err)
	}
	// What only a model of another machine can promise, farther away, is not promised.
	for i := range far.Measurements[0].Points {
		p := &far.Measurements[0].Points[i]
		p.Read.LatencyUs *= 10
		p.Write.LatencyUs *= 10
	}
	if err := s.rebuild(now); err != nil {
		t.Fatal(err)
	}
	if configs, err := s.search(slo(30, 0, 64), "tcp", nil); connect.CodeOf(err) != connect.CodeInvalidArgument || configs != nil {
		t.Errorf("possible at distance 3 alone: %v, %v", configs, err)
	}
}

// TestDoubts checks that a calibration is made anew where caches give something else, but not within an
// hour, and that what they gave before is compared with the new one no more.
func TestDoubts(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := searcherOf(t, Options{})
	at := model.Place{Transport: "tcp", Network: model.NoNetwork, Distance: 1}
	job := Calibration{Place: at, Host: model.Host{CPU: "Z80", Cores: 2}}
	due := func(now time.Time) bool { return len(s.bases(job, now)) > 0 }
	gives := func(factor float64) {
		t.Helper()
		if learnt, err := s.observe(at, model.Observation{Config: model.Config{C: 1, B: 1, Q: 1}, Latency: factor, Mops: 1 / factor}, now); err != nil || !learnt {
			t.Fatal(learnt, err)
		}
	}
	calibrate := func(slow float64) {
		t.Helper()
		if _, err := s.calibrate(calibrationOf(s, slow, now), now); err != nil {
			t.Fatal(err)
		}
	}
	calibrate(1.5)
	if due(now.Add(2 * doubtsAfter)) {
		t.Error("due without a doubt")
	}
	now = now.Add(doubtsAfter / 2)
	gives(1.1)
	if due(now.Add(2 * doubtsAfter)) {
		t.Error("due for a tenth")
	}
	now = now.Add(2 * time.Minute)
	gives(1.4)
	if due(now) || !due(now.Add(doubtsAfter)) {
		t.Errorf("caches are 1.4 times slower than it says: due at once %t, later %t", due(now), due(now.Add(doubtsAfter)))
	}
	now = now.Add(doubtsAfter)
	d := demand{transport: "tcp", distance: 1, slo: slo(1, 0, 64), config: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1}}
	before := s.predict(d).GetLatencyUs()
	calibrate(2.1)
	if is := s.predict(d).GetLatencyUs(); is < before*0.9 || is > before*1.6 || s.correctedAt(at) {
		t.Errorf("predicted %v, and %v after the calibration; corrected as well: %t", before, is, s.correctedAt(at))
	}
	if due(now.Add(2 * doubtsAfter)) {
		t.Error("due again")
	}
	s.doubt(at, now.Add(time.Minute))
	if !due(now.Add(doubtsAfter)) {
		t.Error("not due although windows missed the SLO")
	}
}

// TestShareOfWindows checks that a cache shows how many of its windows kept its SLO, and that the models
// are in doubt once that is less than 95 % of 20.
func TestShareOfWindows(t *testing.T) {
	r := newMeasuring(t)
	l := r.m.led()
	l.state.mu.Lock()
	l.state.watch = Correct
	l.state.mu.Unlock()
	doubted := func() bool {
		r.m.search.mu.Lock()
		defer r.m.search.mu.Unlock()
		return len(r.m.search.doubts) > 0
	}
	share := func(judged, missed uint32) {
		t.Helper()
		if c := r.describe().GetCache(); c.GetWindowsJudged() != judged || c.GetWindowsMissed() != missed {
			t.Errorf("%d windows judged, %d missed; want %d and %d", c.GetWindowsJudged(), c.GetWindowsMissed(), judged, missed)
		}
	}
	r.gives(32)
	for range 9 {
		r.gives(20)
	}
	share(10, 1)
	for range 10 {
		r.gives(20)
	}
	if share(20, 1); doubted() {
		t.Error("in doubt for one of 20")
	}
	r.gives(32)
	if share(21, 2); !doubted() {
		t.Error("no doubt for two of 21")
	}
	c := r.describe().GetCache()
	if m := c.GetModel(); m.GetOrigin() != managerv1.Model_ORIGIN_MEASURED || !strings.Contains(m.GetProvenance(), "revision test") || c.GetMargin() != 0 {
		t.Errorf("it stands on %v with a margin of %v", m, c.GetMargin())
	}
	if l, tp := c.GetLatencyOfPredicted(), c.GetThroughputOfPredicted(); math.Abs(l-23.0/20) > 1e-9 || math.Abs(tp-(0.5+3*0.8)/4/0.8) > 1e-9 {
		t.Errorf("the last four windows gave %v and %v of the prediction", l, tp) // three of 20 us and one of 32
	}
	for range 64 {
		r.gives(20)
	}
	share(64, 0)
}

// TestCalibrationFails checks that a calibration that fails leaves the model as it was, and that a cache
// says so; and that one that the catalog does not take is an error, and the next manager's no model.
func TestCalibrationFails(t *testing.T) {
	var fail error
	calibrate := func(_ context.Context, _ managerv1connect.ManagerServiceClient, job Calibration) ([]model.Sampled, error) {
		return sampled(job, 1.5), fail
	}
	m, client := serve(t, Options{Transport: "tcp", Calibrate: calibrate})
	v := testVM("a", 1<<30, 4, "http://127.0.0.1:1")
	v.Processor, v.Processors = "Z80", 2
	if err := m.led().state.register(v, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := client.Calibrate(testContext(t), connect.NewRequest(&managerv1.CalibrateRequest{}))
		return err
	}
	d := demand{transport: "tcp", distance: 1, slo: slo(1, 0, 64)}
	fail = errors.New("the server left")
	if err := ask(); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("it fails: %v", err)
	}
	if m, margin := m.search.basis(d); m.GetOrigin() != managerv1.Model_ORIGIN_SHIPPED || !strings.Contains(m.GetNote(), "failed: the server left") || margin != DefaultUncalibratedMargin {
		t.Errorf("after a failure: %v, margin %v", m, margin)
	}
	fail = nil
	store := newCrashStore()
	crashing, err := New(Options{Transport: "tcp", store: store, Calibrate: calibrate, URL: "http://127.0.0.1:1", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = crashing.Close(testContext(t)) }() // it has crashed
	if err := crashing.led().state.register(v, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	store.arm(1, false)
	if _, err := crashing.led().calibrateNow(t.Context(), &managerv1.CalibrateRequest{}); connect.CodeOf(err) != connect.CodeAborted || !errors.Is(err, errCrash) {
		t.Errorf("a calibration that is not stored: %v", err)
	}
	next, _ := serve(t, Options{Transport: "tcp", store: store.next()})
	if m, margin := next.search.basis(d); m.GetOrigin() != managerv1.Model_ORIGIN_SHIPPED || margin != DefaultUncalibratedMargin {
		t.Errorf("the next manager: %v, margin %v", m, margin)
	}
}
