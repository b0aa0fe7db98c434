package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
)

// keepers are caches of one manager whose clients report windows. The manager considers them when
// a test says so.
type keepers struct {
	t      *testing.T
	m      *Manager
	client access.Client
	clock  *handClock
	number uint64
}

func newKeepers(t *testing.T, opts Options) *keepers {
	t.Helper()
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	k := &keepers{t: t, clock: &handClock{now: time.Unix(1e9, 0)}}
	opts.Allocator, opts.Models, opts.SLOMargin, opts.now, opts.byHand = a, []*model.Model{testModel(t, "mem")}, -1, k.clock.read, true
	k.m, k.client = serve(t, opts)
	return k
}

// allocate allocates a cache for 25 us and 0.6 Mop/s. One client thread suffices by the model, and
// two do while everything takes half as long again.
func (k *keepers) allocate(named *managerv1.Configuration) string {
	k.t.Helper()
	answer, err := k.client.Allocate(testContext(k.t), connect.NewRequest(&managerv1.AllocateRequest{
		RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(25, 0.6, 64), Configuration: named,
	}))
	if err != nil {
		k.t.Fatal(err)
	}
	return answer.Msg.GetCacheId()
}

// gives reports a window in which a cache is that many times slower than the model, with full
// queues, and lets the manager consider what to do.
func (k *keepers) gives(cache string, slow float64) {
	k.t.Helper()
	d := k.demand(cache)
	p, ok := predictIn(k.m.search.now.Load().base, d)
	if !ok {
		k.t.Fatal("no model says what the cache gives")
	}
	k.clock.advance(5 * time.Second)
	k.number++
	allowed := allowedBy(d.config)
	_, err := k.client.Renew(testContext(k.t), connect.NewRequest(&managerv1.RenewRequest{CacheId: cache, Windows: []*managerv1.Window{{
		Number: k.number, LastedMs: 5000, Reads: &managerv1.Measured{
			ThroughputMops: allowed / (p.LatencyUs * slow), MeanLatencyUs: p.LatencyUs * slow, P99LatencyUs: 2 * p.LatencyUs * slow, InFlight: allowed, RecordSize: 64,
		},
	}}}))
	if err != nil {
		k.t.Fatal(err)
	}
	k.m.led().keepDue()
}

func (k *keepers) demand(cache string) demand {
	k.t.Helper()
	d, err := k.m.led().state.demand(cache)
	if err != nil {
		k.t.Fatal(err)
	}
	return d
}

func (k *keepers) events(cache string, kind managerv1.WatchResponse_Kind) (all []*managerv1.WatchResponse) {
	k.t.Helper()
	d, err := k.client.DescribeCache(testContext(k.t), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: cache}))
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range d.Msg.GetEvents() {
		if e.GetKind() == kind {
			all = append(all, e)
		}
	}
	return all
}

// obeys does what the last wish asks for, as a client does; false: there is none.
func (k *keepers) obeys(cache string) bool {
	k.t.Helper()
	wishes := k.events(cache, managerv1.WatchResponse_KIND_RECONFIGURE)
	if len(wishes) == 0 {
		return false
	}
	to, from := wishes[len(wishes)-1].GetConfiguration(), wishes[len(wishes)-1].GetInsteadOf()
	both := &managerv1.Configuration{
		ClientThreads: max(to.GetClientThreads(), from.GetClientThreads()), ServerThreads: max(to.GetServerThreads(), from.GetServerThreads()),
		BatchSize: max(to.GetBatchSize(), from.GetBatchSize()), QueueDepth: max(to.GetQueueDepth(), from.GetQueueDepth()),
	}
	k.settle(cache, both)
	k.settle(cache, to)
	return true
}

func (k *keepers) settle(cache string, config *managerv1.Configuration) {
	k.t.Helper()
	d, err := k.client.DescribeCache(testContext(k.t), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: cache}))
	if err != nil {
		k.t.Fatal(err)
	}
	req := &managerv1.SettleRequest{CacheId: cache, Change: nextChange(), Capacity: 1 << 20, Configuration: config}
	for _, g := range d.Msg.GetCache().GetGrants() {
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.GetId(), Regions: g.GetRegions()})
	}
	if _, err := k.client.Settle(testContext(k.t), connect.NewRequest(req)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keepers) threads(cache string) uint32 { return k.demand(cache).config.GetClientThreads() }

// A broken SLO corrects the model, and the cache gets another configuration, once. When the network
// is fast again, and the correction holds no more, the cache gets the cheaper one back.
func TestSLOIsKept(t *testing.T) {
	k := newKeepers(t, Options{})
	cache := k.allocate(nil)
	for range 20 {
		k.gives(cache, 1)
	}
	if k.obeys(cache) || k.threads(cache) != 1 {
		t.Fatalf("%d threads at the start", k.threads(cache))
	}
	for range 3 {
		k.gives(cache, 1.5)
	}
	if !k.obeys(cache) || k.threads(cache) != 2 {
		t.Fatalf("%d threads with a broken SLO: %v", k.threads(cache), k.events(cache, managerv1.WatchResponse_KIND_SLO_CHANGE))
	}
	for range 40 {
		k.gives(cache, 1.5)
		if k.obeys(cache) {
			t.Fatalf("changed again: %v", k.events(cache, managerv1.WatchResponse_KIND_SLO_CHANGE))
		}
	}
	if m := k.m.Metrics(); m.ReconfiguresAsked != 1 || m.Corrected == 0 || m.WindowsMissed != 3 {
		t.Errorf("%d asked, %d corrected, %d windows missed", m.ReconfiguresAsked, m.Corrected, m.WindowsMissed)
	}
	changes := k.events(cache, managerv1.WatchResponse_KIND_SLO_CHANGE)
	if len(changes) != 1 || !strings.Contains(changes[0].GetReason(), "the model is corrected") {
		t.Errorf("changes %v", changes)
	}
	for range 12 * 20 {
		k.gives(cache, 1)
		if err := k.m.search.expire(k.clock.read()); err != nil {
			t.Fatal(err)
		}
		k.obeys(cache)
	}
	if n := k.threads(cache); n != 1 {
		t.Errorf("%d threads after the network was fast for 20 minutes", n)
	}
	if m := k.m.Metrics(); m.ReconfiguresAsked != 2 {
		t.Errorf("%d asked, want 2", m.ReconfiguresAsked)
	}
}

// A cache that is slow with each configuration, and a client that is too old to have another, are
// asked for so many changes, and no more.
func TestSLOChangesAreBounded(t *testing.T) {
	k := newKeepers(t, Options{SLOChanges: 2})
	cache := k.allocate(nil)
	for range 12 * 50 {
		k.gives(cache, 1.5)
	}
	m := k.m.Metrics()
	if n := m.ReconfiguresAsked + m.MovesAsked; n != 2 {
		t.Errorf("%d changes in 50 minutes, want 2: %v", n, k.events(cache, managerv1.WatchResponse_KIND_SLO_CHANGE))
	}
}

// If most caches at a place get what the model says, the VMs of one that does not are slow, and the
// model is right.
func TestSlowVMIsLeft(t *testing.T) {
	k := newKeepers(t, Options{})
	slow, fine := k.allocate(nil), []string{k.allocate(nil), k.allocate(nil)}
	for range 4 {
		k.gives(slow, 3)
		for _, id := range fine {
			k.gives(id, 1)
		}
	}
	dear := k.events(slow, managerv1.WatchResponse_KIND_VM_DEAR)
	if len(dear) != 1 || len(dear[0].GetVmIds()) != 1 || k.obeys(slow) || k.m.Metrics().Corrected != 0 {
		t.Fatalf("asked to leave %v, corrected %d times", dear, k.m.Metrics().Corrected)
	}
	// If it is slow all the same, the others still show that the model is right.
	for range 8 {
		k.gives(slow, 3)
		for _, id := range fine {
			k.gives(id, 1)
		}
	}
	if n := k.m.Metrics().Corrected; n != 0 {
		t.Errorf("corrected %d times by one cache of three", n)
	}
	// The move that it was asked to make succeeds at any price.
	answer, err := k.client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{
		CacheId: slow, Regions: 1, AvoidVms: dear[0].GetVmIds(), Voluntary: true, Change: nextChange(),
	}))
	if err != nil || answer.Msg.GetGrants()[0].GetVm().GetId() == dear[0].GetVmIds()[0] {
		t.Errorf("%v, %v", answer, err)
	}
}

// A cache so slow that no machine or network explains it does not correct the model, for which other
// caches would be refused.
func TestSLOOfADisturbedCache(t *testing.T) {
	k := newKeepers(t, Options{})
	cache := k.allocate(nil)
	for range 4 {
		k.gives(cache, 43)
	}
	if k.obeys(cache) || k.m.Metrics().Corrected != 0 || len(k.events(cache, managerv1.WatchResponse_KIND_VM_DEAR)) != 1 {
		t.Errorf("corrected %d times: %v", k.m.Metrics().Corrected, k.events(cache, managerv1.WatchResponse_KIND_SLO_CHANGE))
	}
	k.allocate(nil)
}

// The configuration that a client has named is not changed, and modes other than on change nothing.
func TestSLOWatchModes(t *testing.T) {
	named := &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 8}
	for _, c := range []struct {
		watch  SLOWatch
		named  *managerv1.Configuration
		judged uint64
	}{{Correct, named, 4}, {Observe, nil, 4}, {Ignore, nil, 0}} {
		k := newKeepers(t, Options{SLOWatch: c.watch})
		cache := k.allocate(c.named)
		for range 4 {
			k.gives(cache, 1.5)
		}
		if m := k.m.Metrics(); k.obeys(cache) || m.ReconfiguresAsked > 0 || m.WindowsJudged != c.judged {
			t.Errorf("%v: %d asked, %d windows judged", c.watch, m.ReconfiguresAsked, m.WindowsJudged)
		}
		if mode, err := ParseSLOWatch(c.watch.String()); err != nil || mode != c.watch {
			t.Errorf("%v: %v, %v", c.watch, mode, err)
		}
	}
	if _, err := ParseSLOWatch("maybe"); err == nil {
		t.Error("maybe is a mode")
	}
}

// What was learnt is the next leader's, which goes on from there: the cache is one whose
// configuration was found, and predictions are corrected.
func TestNextLeaderKeepsSLOs(t *testing.T) {
	k := newKeepers(t, Options{})
	cache := k.allocate(nil)
	for range 3 {
		k.gives(cache, 1.5)
	}
	if !k.obeys(cache) {
		t.Fatal("nothing was asked")
	}
	d := k.demand(cache)
	if !demandFrom(d.stored()).chosen {
		t.Error("the next leader leaves the configuration alone")
	}
	next, err := newSearcher(&k.m.opts)
	if err != nil {
		t.Fatal(err)
	}
	next.relearn(k.m.learnt(), k.clock.read())
	if was, is := k.m.search.predict(d), next.predict(d); was.String() != is.String() {
		t.Errorf("predicted %v, then %v", was, is)
	}
	if base, _ := predictIn(next.now.Load().base, d); base == performanceFrom(next.predict(d)) {
		t.Error("the prediction is not corrected")
	}
	next.relearn(k.m.learnt(), k.clock.advance(time.Hour))
	if base, _ := predictIn(next.now.Load().base, d); base != performanceFrom(next.predict(d)) {
		t.Error("the correction holds for an hour")
	}
}

// An operator has servers measured at once, and again: each kind of machine, on servers that no cache uses.
// What fails leaves the earlier calibration.
func TestCalibrateByHand(t *testing.T) {
	factor, fail := 1.5, error(nil)
	var jobs []Calibration
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	calibrate := func(ctx context.Context, _ managerv1connect.ManagerServiceClient, job Calibration) (all []model.Sampled, _ error) {
		jobs = append(jobs, job)
		if factor == 0 {
			began <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return nil, errors.New("interrupted")
		}
		for _, base := range job.Bases {
			for _, p := range base.Points {
				by := func(p model.Performance) model.Performance {
					return model.Performance{LatencyUs: p.LatencyUs * factor, Mops: p.Mops / factor}
				}
				if !p.Skipped && len(all) < 8 {
					all = append(all, model.Sampled{RecordSize: base.RecordSize, At: p.Config, Read: by(p.Read), Write: by(p.Write)})
				}
			}
		}
		return all, fail
	}
	m, client := serve(t, Options{Transport: "tcp", SLOMargin: -1, Calibrate: calibrate})
	ask := func(req *managerv1.CalibrateRequest) (notes []string, err error) {
		r, err := client.Calibrate(testContext(t), connect.NewRequest(req))
		if err == nil {
			for _, m := range r.Msg.GetModels() {
				if m.GetOrigin() != managerv1.Model_ORIGIN_SCALED || time.Since(time.UnixMilli(m.GetMeasuredUnixMs())) > time.Hour {
					t.Errorf("model %v", m)
				}
				notes = append(notes, m.GetProvenance()+": "+m.GetNote())
			}
		}
		return notes, err
	}
	listed := func() string {
		r, err := client.ListModels(testContext(t), connect.NewRequest(&managerv1.ListModelsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.GetModels()[0].GetNote()
	}
	if _, err := ask(&managerv1.CalibrateRequest{}); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "no server over tcp") {
		t.Errorf("without servers: %v", err)
	}
	for i, of := range []string{"Z80", "6502", "Z80"} {
		v := testVM(string(rune('a'+i)), 1<<30, uint32(2-i), "http://127.0.0.1:1") // the last one has no server threads
		v.Processor, v.Processors = of, 2
		if err := m.led().state.register(v, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for req, code := range map[*managerv1.CalibrateRequest]connect.Code{
		{Network: "slow"}:      connect.CodeInvalidArgument,
		{Network: "1us,1Gbit"}: connect.CodeFailedPrecondition, // no model is near
		{Transport: "verbs"}:   connect.CodeFailedPrecondition,
	} {
		if _, err := ask(req); connect.CodeOf(err) != code {
			t.Errorf("%v: %v, want %v", req, err, code)
		}
	}
	if len(jobs) > 0 {
		t.Fatalf("%d measurements that nobody asked for", len(jobs))
	}
	for _, factor = range []float64{1.5, 2} {
		notes, err := ask(&managerv1.CalibrateRequest{})
		want := fmt.Sprintf("latency x %.2f", factor)
		if err != nil || len(notes) != 2 || !strings.Contains(notes[0], "Z80, 2 CPUs") || !strings.Contains(notes[1], "6502, 2 CPUs") || !strings.Contains(notes[0], want) || !strings.Contains(notes[1], want) {
			t.Errorf("times %g: %q, %v", factor, notes, err)
		}
	}
	if len(jobs) != 4 || !jobs[0].Now || jobs[0].VM != "a" || jobs[1].VM != "b" || jobs[0].ServerThreads < 1 {
		t.Errorf("measured: %v", jobs)
	}
	kept := listed()
	fail = errors.New("no")
	if _, err := ask(&managerv1.CalibrateRequest{}); connect.CodeOf(err) != connect.CodeAborted || listed() != kept {
		t.Errorf("a measurement that fails: %v, and %q", err, listed())
	}
	// Two at a time are one too many; one that is interrupted changes nothing.
	factor = 0
	first := make(chan error, 1)
	go func() {
		_, err := ask(&managerv1.CalibrateRequest{})
		first <- err
	}()
	testrun.Receive(t, "a measurement begins", began)
	if _, err := ask(&managerv1.CalibrateRequest{}); connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "another calibration") {
		t.Errorf("beside another: %v", err)
	}
	close(goOn)
	if err := testrun.Receive(t, "the measurement ends", first); connect.CodeOf(err) != connect.CodeAborted || listed() != kept {
		t.Errorf("interrupted: %v, and %q", err, listed())
	}
	off, client := serve(t, Options{Transport: "tcp"})
	if _, err := client.Calibrate(testContext(t), connect.NewRequest(&managerv1.CalibrateRequest{})); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "--calibrate=false") {
		t.Errorf("a manager that does not calibrate (%v): %v", off.URL(), err)
	}
}

// Servers of a kind of machine without a model are measured once, when nothing has come for a
// while. The predictions are scaled, also those of the next leader.
func TestCalibration(t *testing.T) {
	hand := &handClock{now: time.Unix(1e9, 0)}
	slow := 1.5
	var jobs []Calibration
	fail, visited := error(nil), false
	m, client := serve(t, Options{Transport: "tcp", SLOMargin: -1, now: hand.read})
	calibrate := func(ctx context.Context, self managerv1connect.ManagerServiceClient, job Calibration) (all []model.Sampled, _ error) {
		if _, err := self.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{})); err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
		for i, by := range []managerv1connect.ManagerServiceClient{self, client} {
			if i == 1 && !visited {
				break
			}
			ca, err := by.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, VmId: job.VM}))
			if err == nil {
				_, err = by.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.Msg.GetCacheId()}))
			}
			if err != nil {
				return nil, err
			}
		}
		for _, base := range job.Bases {
			for _, at := range base.Spread(job.ClientThreads, job.ServerThreads, 8) {
				for _, p := range base.Points {
					if p.Config == at {
						by := func(p model.Performance) model.Performance {
							return model.Performance{LatencyUs: p.LatencyUs * slow, Mops: p.Mops / slow}
						}
						all = append(all, model.Sampled{RecordSize: base.RecordSize, At: at, Read: by(p.Read), Write: by(p.Write)})
					}
				}
			}
		}
		return all, fail
	}
	l := m.led()
	next := func() (Calibration, bool) { return l.nextCalibration(hand.read(), nil) }
	v := testVM("a", 1<<30, 4, "http://127.0.0.1:1")
	v.Processor, v.Processors, v.Started = "Z80", 2, hand.read()
	if err := l.state.register(v, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if job, due := next(); due {
		t.Errorf("%v is due at once", job)
	}
	hand.advance(quietFor)
	young := testVM("b", 1<<30, 4, "http://127.0.0.1:1") // and comes again and again
	young.Processor, young.Processors, young.Started = "6502", 2, hand.read()
	if err := l.state.register(young, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	job, due := next()
	if !due || job.VM != "a" || job.Host.CPU != "Z80" || job.Network != model.NoNetwork || len(job.Bases) == 0 {
		t.Fatalf("due: %v, %v", job, due)
	}
	before, err := m.search.search(slo(0, 0.02, 64), "tcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	fail = errors.New("no")
	if _, err := l.calibrateBy(t.Context(), calibrate, job); !errors.Is(err, fail) {
		t.Error(err)
	}
	if _, again := next(); !again {
		t.Error("not due after a failure")
	}
	fail, slow = nil, 43
	was := m.search.library()
	if _, err := l.calibrateBy(t.Context(), calibrate, job); !errors.Is(err, ErrDisturbed) || m.search.library() != was || len(m.search.calibrations) > 0 {
		t.Errorf("a calibration without sense: %v, %d kept", err, len(m.search.calibrations))
	}
	slow, visited = 1.5, true
	if _, err := l.calibrateBy(t.Context(), calibrate, job); !errors.Is(err, ErrDisturbed) || len(m.search.calibrations) > 0 {
		t.Errorf("a calibration beside a cache on its server: %v, %d kept", err, len(m.search.calibrations))
	}
	visited = false
	if _, err := l.calibrateBy(t.Context(), calibrate, job); err != nil {
		t.Fatal(err)
	}
	if job, again := next(); again {
		t.Errorf("due again: %v", job)
	}
	d := demand{transport: "tcp", distance: 1, slo: slo(0, 0.02, 64), config: before[1]}
	if before[1] == nil {
		d.config = before[0]
	}
	plain, err := newSearcher(&m.opts)
	if err != nil {
		t.Fatal(err)
	}
	uncalibrated, is := plain.predict(d), m.search.predict(d)
	if r := is.GetLatencyUs() / uncalibrated.GetLatencyUs(); r < slow-0.05 || r > slow+0.05 {
		t.Errorf("predicted %v, and %v when calibrated", uncalibrated, is)
	}
	plain.relearn(m.learnt(), hand.read())
	if again := plain.predict(d); again.String() != is.String() {
		t.Errorf("predicted %v, by the next leader %v", is, again)
	}
	models, err := client.ListModels(testContext(t), connect.NewRequest(&managerv1.ListModelsRequest{}))
	if err != nil || !strings.Contains(models.Msg.GetModels()[0].GetNote(), "latency x 1.50 (1.50 to 1.50), throughput x 0.67") || !strings.Contains(models.Msg.GetModels()[0].GetProvenance(), "Z80, 2 CPUs") {
		t.Errorf("models %v, %v", models.Msg.GetModels()[0], err)
	}
	if len(jobs) != 4 || m.Metrics().Calibrated != 1 {
		t.Errorf("%d measurements, %d calibrations", len(jobs), m.Metrics().Calibrated)
	}
	// One kind of machine more than calibrations can be kept is not measured: each would take another's place.
	hand.advance(quietFor)
	if job, due := next(); !due || job.VM != "b" {
		t.Errorf("due: %v, %v", job, due)
	}
	for i := range maxCalibrations - 1 {
		c := proto.CloneOf(m.search.calibrations[0])
		c.Processors = uint32(3 + i)
		if _, err := m.search.calibrate(c, hand.read()); err != nil {
			t.Fatal(err)
		}
	}
	if job, due := next(); due {
		t.Errorf("due beyond %d calibrations: %v", maxCalibrations, job)
	}
}

// What is learnt can be stored while models are made anew, which takes long.
func TestLearntWaitsForNobody(t *testing.T) {
	m, _ := serve(t, Options{Transport: "tcp"})
	m.search.mu.Lock()
	defer m.search.mu.Unlock()
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		m.led().remember()
	}()
	testrun.Receive(t, "what is learnt is stored", stored)
}

// Only networks for which a calibration can find something are noted.
func TestNetworksAsked(t *testing.T) {
	m, _ := serve(t, Options{Transport: "tcp"})
	for i := range 100 {
		m.search.ask(network{"tcp", fmt.Sprintf("%dus,1Gbit", 1000+i)})
	}
	m.search.ask(network{"tcp", model.NoNetwork})
	if all := m.search.networks(); len(all) != 1 || all[0].name != model.NoNetwork {
		t.Errorf("%v", all)
	}
}
