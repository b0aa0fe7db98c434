package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// The program comes with models of other machines. When servers come of a kind of machine for which
// this manager has no model of its own, it measures a few configurations on memory of such a
// server, in the background, and scales the nearest model by what it found. That is a calibration:
// of a transport, a network as clients model it, a distance, and a kind of machine. It is kept in
// the catalog, for the next leader. Where servers of several kinds are at one distance, the worse
// figures count, as a cache may be on any of them.

// Calibrator measures the bases of a calibration on a cache that it allocates from self, and deletes
// again. It measures nothing, with ErrBusy, if this machine is not idle. The manager does not do
// it alone, as clients are made of it.
type Calibrator func(ctx context.Context, self managerv1connect.ManagerServiceClient, job Calibration) ([]model.Sampled, error)

// ErrBusy is the error of a Calibrator on a machine that is not idle.
var ErrBusy = errors.New("the machine is busy")

// ErrDisturbed is the error of a calibration most of whose factors no other machine explains. It
// changes no model.
var ErrDisturbed = errors.New("something disturbed the measurement")

// Calibration is what a Calibrator measures.
type Calibration struct {
	model.Place
	// Host is the kind of the server's machine.
	Host model.Host
	// VM is whose memory is measured; empty: of any that is launched.
	VM string
	// Memory is how much it has free, in bytes; 0: not known.
	Memory uint64
	// ClientThreads and ServerThreads are the most of each; without server threads, access is one-sided.
	ClientThreads, ServerThreads int
	// Bases are the measurements that are scaled, of one network.
	Bases []*model.Measurement
	// Budget is the time in which it measures.
	Budget time.Duration
	// Now says to measure on a busy machine as well.
	Now bool
}

const (
	// calibrationBudget is the time for measuring, and calibrationTimeout bounds all of a calibration.
	calibrationBudget  = 17 * time.Second
	calibrationTimeout = 20 * time.Second
	// calibrateEvery is the interval at which the manager looks for something to calibrate.
	calibrateEvery = 5 * time.Second
	// quietFor is how long no server and no cache has come before a calibration begins.
	quietFor = 10 * time.Second
	// calibrateAgain is the time after which a calibration that has failed is tried again.
	calibrateAgain = 10 * time.Minute
	// busyAgain is the same for a machine that was not idle.
	busyAgain = 15 * time.Second

	maxCalibrations = 64
	maxSamples      = 256
)

// calibrator is the loop that calibrates what lacks a model.
func (l *leader) calibrator() {
	again := make(map[calibrationKey]time.Time)
	for clock.Sleep(l.ctx, calibrateEvery) {
		now := l.opts.now()
		job, ok := l.nextCalibration(now, again)
		if !ok {
			continue
		}
		_, err := l.calibrateBy(l.ctx, l.opts.Calibrate, job)
		switch key := keyOf(job); {
		case l.ctx.Err() != nil:
		case errors.Is(err, ErrBusy):
			again[key] = now.Add(busyAgain)
		case err != nil:
			again[key] = now.Add(calibrateAgain)
			l.opts.Logger.Warn("not calibrated: predictions come from models of other machines", "transport", job.Transport, "network", job.Network, "machine", kindOfHost(job.Host), "err", err)
		}
	}
}

// calibrationKey identifies a calibration.
type calibrationKey struct {
	model.Place
	processor  string
	processors int
}

func keyOf(job Calibration) calibrationKey {
	return calibrationKey{job.Place, job.Host.CPU, job.Host.Cores}
}

func keyOfStored(c *catalogv1.Calibration) calibrationKey {
	return calibrationKey{placeOfStored(c), c.GetProcessor(), int(c.GetProcessors())}
}

func placeOfStored(c *catalogv1.Calibration) model.Place {
	return model.Place{Transport: c.GetTransport(), Network: c.GetNetwork(), Distance: int(c.GetDistance())}
}

func kindOfHost(h model.Host) string {
	return fmt.Sprintf("%s, %d CPUs", cmp.Or(h.CPU, "processors of unknown kind"), h.Cores)
}

// nextCalibration finds a server without grants whose kind of machine has no model. If VMs are
// launched on this machine, one is launched for it once an SLO was asked for and there is no cache.
func (l *leader) nextCalibration(now time.Time, again map[calibrationKey]time.Time) (job Calibration, ok bool) {
	due := func(j Calibration) bool {
		j.Bases = l.search.bases(j, now)
		if len(j.Bases) == 0 || now.Before(again[keyOf(j)]) {
			return false
		}
		job, ok = j, true
		return true
	}
	idle, quiet := l.state.idleServers(now, quietFor)
	if !quiet {
		return job, false
	}
	networks := l.search.networks()
	for _, j := range idle {
		for _, n := range append(networks, network{j.Transport, model.NoNetwork}) {
			if n.transport == j.Transport {
				j.Network = n.name
				if due(j) {
					return job, ok
				}
			}
		}
	}
	if caches, _ := l.state.size(); caches > 0 || !l.launchesHere() {
		return job, ok
	}
	for _, n := range networks {
		if n.transport == l.opts.Transport && due(here(n)) {
			return job, ok
		}
	}
	return job, ok
}

// here returns the calibration of this machine.
func here(n network) Calibration {
	h := model.ThisHost()
	half := max(1, h.Cores/2)
	return Calibration{Place: model.Place{Transport: n.transport, Network: n.name, Distance: 1}, Host: h, ClientThreads: half, ServerThreads: half}
}

// launchesHere reports whether VMs are launched on this machine.
func (m *Manager) launchesHere() bool {
	switch m.opts.Allocator.(type) {
	case *allocator.Local, *allocator.InProcess:
		return true
	}
	return false
}

// idleServers lists the servers on which no cache has memory, of each kind of machine the one with the most
// server threads and memory, but those that have come within a while. quiet says that no cache has
// come for as long; otherwise there are none.
func (c *state) idleServers(now time.Time, while time.Duration) (all []Calibration, quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ca := range pieces(c, c.caches) {
		if now.Sub(ca.created) < while {
			return nil, false
		}
	}
	best := make(map[calibrationKey]Calibration)
	for v := range pieces(c, c.vms) {
		if v.ControlURL == "" || v.launched || v.usable() != nil || v.lent > 0 || now.Sub(v.Started) < while {
			continue
		}
		j := Calibration{
			Place: model.Place{Transport: v.Transport, Distance: int(max(1, v.Distance))}, Host: model.Host{CPU: v.Processor, Cores: int(v.Processors)},
			VM: v.id, Memory: v.free(), ClientThreads: max(1, model.ThisHost().Cores/2),
		}
		j.ServerThreads = min(j.ClientThreads, int(v.Cores))
		if b, ok := best[keyOf(j)]; !ok || cmp.Or(cmp.Compare(j.ServerThreads, b.ServerThreads), cmp.Compare(j.Memory, b.Memory), cmp.Compare(b.VM, j.VM)) > 0 {
			best[keyOf(j)] = j
		}
	}
	return slices.SortedFunc(maps.Values(best), func(a, b Calibration) int { return cmp.Compare(a.VM, b.VM) }), true
}

// calibrateNow serves Calibrate. It measures each kind of machine, whatever models there are of it, also
// while this machine is busy.
func (l *leader) calibrateNow(ctx context.Context, req *managerv1.CalibrateRequest) (*managerv1.CalibrateResponse, error) {
	if l.opts.Calibrate == nil {
		return nil, api.Refuse(connect.CodeFailedPrecondition, errors.New("this manager does not calibrate (redykv manager --calibrate=false)"))
	}
	net, err := fabric.ParseNetwork(cmp.Or(req.GetNetwork(), model.NoNetwork))
	if err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, err)
	}
	n := network{cmp.Or(req.GetTransport(), l.opts.Transport), net.At(1).String()}
	jobs, _ := l.state.idleServers(l.opts.now(), 0)
	jobs = slices.DeleteFunc(jobs, func(j Calibration) bool { return j.Transport != n.transport })
	if len(jobs) == 0 && n.transport == l.opts.Transport && l.launchesHere() {
		jobs = append(jobs, here(n))
	}
	if len(jobs) == 0 {
		return nil, api.Refuse(connect.CodeFailedPrecondition, fmt.Errorf("there is no server over %s on which no cache has memory", n.transport))
	}
	answer := new(managerv1.CalibrateResponse)
	for _, job := range jobs {
		job.Network, job.Now = n.name, true
		if job.Bases = model.Nearest(job.Place, l.search.unscaled()...); len(job.Bases) == 0 {
			return nil, api.Refuse(connect.CodeFailedPrecondition, fmt.Errorf("there is no model of %s over %s to scale: build one (redykv model build)", n.name, n.transport))
		}
		m, err := l.calibrateBy(ctx, l.opts.Calibrate, job)
		if err != nil {
			return nil, api.Refuse(connect.CodeAborted, fmt.Errorf("calibrating %s: %w", kindOfHost(job.Host), err))
		}
		answer.Models = append(answer.Models, m)
	}
	return answer, nil
}

// calibrateBy carries a calibration out, keeps what it found, and returns that as a model. While another
// one is carried out, it is ErrBusy.
func (l *leader) calibrateBy(ctx context.Context, by Calibrator, job Calibration) (_ *managerv1.Model, err error) {
	defer func() {
		if err != nil && !errors.Is(err, ErrBusy) {
			l.search.calibrationFailed(job.Place, err, l.opts.now())
		}
	}()
	if !l.calibrating.TryLock() {
		return nil, fmt.Errorf("%w: another calibration is under way", ErrBusy)
	}
	defer l.calibrating.Unlock()
	ctx, cancel := context.WithTimeout(ctx, calibrationTimeout)
	defer cancel()
	self, end := l.ownClient()
	defer end()
	job.Budget = calibrationBudget
	began, visits := time.Now(), l.state.visits(job.VM)
	samples, err := by(ctx, self, job)
	if err != nil {
		return nil, err
	}
	if l.state.visits(job.VM) != visits {
		return nil, fmt.Errorf("%w: caches have got memory on %s meanwhile", ErrDisturbed, job.VM)
	}
	if len(samples) == 0 || len(samples) > maxSamples {
		return nil, fmt.Errorf("%d configurations were measured: want 1 to %d", len(samples), maxSamples)
	}
	c := &catalogv1.Calibration{
		Transport: job.Transport, Network: job.Network, Distance: uint32(job.Distance), Processor: job.Host.CPU, Processors: uint32(job.Host.Cores),
		Kernel: model.ThisHost().Kernel, AtUnixMs: l.opts.now().UnixMilli(), Revision: machine.Revision(),
	}
	for _, s := range samples {
		c.Samples = append(c.Samples, &catalogv1.Sample{
			RecordSize: uint32(s.RecordSize), Configuration: configurationOf(plan.Config(s.At)), Reads: performanceOf(s.Read), Writes: performanceOf(s.Write),
		})
	}
	found, err := l.search.calibrate(c, l.opts.now())
	if err != nil {
		return nil, err
	}
	if err := l.state.put(&l.state.learnt); err != nil {
		return nil, err
	}
	l.counts.note(func(n *Metrics) { n.Calibrated++ })
	l.opts.Logger.Info("calibrated", "transport", job.Transport, "network", job.Network, "distance", job.Distance, "machine", kindOfHost(job.Host),
		"configurations", len(samples), "took", time.Since(began).Round(time.Millisecond), "found", found)
	return modelOf(provenanceOf(c), managerv1.Model_ORIGIN_SCALED, found), nil
}

func performanceOf(p model.Performance) *managerv1.Performance {
	return &managerv1.Performance{LatencyUs: p.LatencyUs, ThroughputMops: p.Mops}
}

func performanceFrom(p *managerv1.Performance) model.Performance {
	return model.Performance{LatencyUs: p.GetLatencyUs(), Mops: p.GetThroughputMops()}
}

// ask notes that an SLO was asked for over a network, if a calibration can find anything for it.
func (s *searcher) ask(n network) {
	const most = 16 // that clients can make the manager calibrate
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked[n] && len(s.asked) < most && len(model.Nearest(model.Place{Transport: n.transport, Network: n.name, Distance: 1}, s.unscaled()...)) > 0 {
		s.asked[n] = true
	}
}

// networks lists the networks over which SLOs were asked for.
func (s *searcher) networks() (all []network) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.asked {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b network) int {
		return cmp.Or(cmp.Compare(a.transport, b.transport), cmp.Compare(a.name, b.name))
	})
	return all
}

// bases returns the measurements that a calibration scales. There are none if the kind of machine
// has a model of its own, or is calibrated and that is not in doubt, or no model is near, or as many
// other kinds are calibrated as can be kept.
func (s *searcher) bases(j Calibration, now time.Time) []*model.Measurement {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch i := slices.IndexFunc(s.calibrations, func(c *catalogv1.Calibration) bool { return keyOfStored(c) == keyOf(j) }); {
	case i >= 0 && !s.due(s.calibrations[i], now), i < 0 && len(s.calibrations) >= maxCalibrations:
		return nil
	}
	for _, m := range s.own {
		if m.Provenance.Host.Same(j.Host) && len(model.Nearest(j.Place, m)) > 0 {
			return nil
		}
	}
	return model.Nearest(j.Place, s.unscaled()...)
}

// unscaled returns the models that are not scaled, those of the options first.
func (s *searcher) unscaled() []*model.Model { return slices.Concat(s.own, s.others) }

// calibrate adds a calibration, or replaces the one of the same kind, and says what it found.
func (s *searcher) calibrate(c *catalogv1.Calibration, now time.Time) (found string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkCalibration(c); err != nil {
		return "", err
	}
	if r := s.ratios(c); 2*r.doubtful > r.all {
		return "", fmt.Errorf("%w: %d of %d factors are out of range, the worst latency is %.3g times the model's", ErrDisturbed, r.doubtful, r.all, r.worst)
	}
	// What caches gave was compared with the predictions of before.
	at, before := placeOfStored(c), s.calibrations
	gave := s.corrections[at]
	delete(s.corrections, at)
	s.calibrations = slices.DeleteFunc(slices.Clone(before), func(o *catalogv1.Calibration) bool { return keyOfStored(o) == keyOfStored(c) })
	s.calibrations = append(s.calibrations, c)
	s.calibrations = s.calibrations[max(0, len(s.calibrations)-maxCalibrations):]
	if err := s.rebuild(now); err != nil {
		s.calibrations = before
		if gave != nil {
			s.corrections[at] = gave
		}
		return "", err
	}
	delete(s.doubts, at)
	delete(s.failures, at)
	return s.foundBy(c), nil
}

func checkCalibration(c *catalogv1.Calibration) error {
	if d := c.GetDistance(); d < 1 || d > model.MaxDistance || len(c.GetSamples()) > maxSamples {
		return fmt.Errorf("calibration at distance %d with %d samples", d, len(c.GetSamples()))
	}
	for _, s := range samplesOf(c) {
		if err := s.Check(); err != nil {
			return err
		}
	}
	return nil
}

func samplesOf(c *catalogv1.Calibration) (all []model.Sampled) {
	for _, s := range c.GetSamples() {
		all = append(all, model.Sampled{
			RecordSize: int(s.GetRecordSize()), At: model.Config(planConfig(s.GetConfiguration())), Read: performanceFrom(s.GetReads()), Write: performanceFrom(s.GetWrites()),
		})
	}
	return all
}

func provenanceOf(c *catalogv1.Calibration) model.Provenance {
	return model.Provenance{
		Transport: c.GetTransport(), Network: c.GetNetwork(), Host: model.Host{CPU: c.GetProcessor(), Cores: int(c.GetProcessors()), Kernel: c.GetKernel()},
		Date: api.FromMillis(c.GetAtUnixMs()).UTC(), Revision: c.GetRevision(),
	}
}

// calibrated makes the models that calibrations scale: one for each place, of the worse figures of
// all kinds of machines there. Called under mu.
func (s *searcher) calibrated() (all []*model.Model) {
	at := make(map[model.Place]*model.Model)
	for _, c := range s.calibrations {
		bases, samples := model.Nearest(placeOfStored(c), s.unscaled()...), samplesOf(c)
		m := at[placeOfStored(c)]
		if m == nil {
			m = model.New(provenanceOf(c))
			at[placeOfStored(c)] = m
			all = append(all, m)
		}
		for i, base := range bases {
			n := base.Calibrated(samples)
			n.Distance = int(c.GetDistance())
			if i < len(m.Measurements) { // of another kind of machine; the bases are the same
				n = m.Measurements[i].Worse(n)
				m.Measurements[i] = n
				continue
			}
			m.Measurements = append(m.Measurements, n)
		}
	}
	return all
}

// ratios are the factors by which a calibration differs from the nearest model.
type ratios struct {
	latency, mops []float64 // those that are trusted
	all, doubtful int       // factors, and how many of them are not trusted
	worst         float64   // latency, trusted or not
}

// ratios returns the factors of a calibration. Called under mu.
func (s *searcher) ratios(c *catalogv1.Calibration) (r ratios) {
	for _, base := range model.Nearest(placeOfStored(c), s.unscaled()...) {
		at := make(map[model.Config]model.Point)
		for _, p := range base.Points {
			if !p.Skipped {
				at[p.Config] = p
			}
		}
		for _, x := range samplesOf(c) {
			p, ok := at[x.At]
			if !ok || x.RecordSize != base.RecordSize {
				continue
			}
			for _, o := range []model.Observation{model.Observe(x.At, p.Read, x.Read), model.Observe(x.At, p.Write, x.Write)} {
				r.all++
				r.worst = max(r.worst, o.Latency)
				if !o.Trusted() {
					r.doubtful++
					continue
				}
				r.latency, r.mops = append(r.latency, o.Latency), append(r.mops, o.Mops)
			}
		}
	}
	return r
}

// foundBy says by how much a calibration has scaled the nearest model. Called under mu.
func (s *searcher) foundBy(c *catalogv1.Calibration) string {
	r := s.ratios(c)
	if len(r.latency) == 0 {
		return "calibrated: the model is not changed"
	}
	found := fmt.Sprintf("calibrated: latency x %.2f (%.2f to %.2f), throughput x %.2f (%.2f to %.2f) of the nearest model's, in %d configurations",
		geometric(r.latency), slices.Min(r.latency), slices.Max(r.latency), geometric(r.mops), slices.Min(r.mops), slices.Max(r.mops), len(c.GetSamples()))
	if r.doubtful > 0 {
		found += fmt.Sprintf("; %d of %d factors are out of range and left out", r.doubtful, r.all)
	}
	return found
}

// geometric returns the geometric mean.
func geometric(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(all)))
}

// learnt returns the calibrations and corrections to store: those of the present predictions. It waits
// for nobody, as state.mu may be held.
func (s *searcher) learnt() ([]*catalogv1.Calibration, []*catalogv1.Correction) {
	in := s.now.Load()
	return in.calibrations, in.corrections
}

// relearn restores what an earlier leader has stored. What makes no sense to this program is left
// out: it is measured again.
func (s *searcher) relearn(p *catalogv1.Learnt, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calibrations = nil
	for _, c := range p.GetCalibrations() {
		if err := checkCalibration(c); err != nil {
			s.warn("a stored calibration is left out", "err", err)
			continue
		}
		s.calibrations = append(s.calibrations, proto.CloneOf(c))
	}
	s.restoreCorrections(p.GetCorrections(), now)
	if err := s.rebuild(now); err != nil {
		s.warn("stored calibrations and corrections are left out", "err", err)
		s.calibrations, s.corrections = nil, make(map[model.Place][]heldObservation)
		_ = s.rebuild(now) // as when the manager was opened
	}
}

// ownClient returns a client of the leader's manager that needs no token and no network, and what ends
// it.
func (l *leader) ownClient() (_ managerv1connect.ManagerServiceClient, end func()) {
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(service{m: l.Manager}))
	pipes := newPipes()
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: calibrationTimeout,
		BaseContext: func(net.Listener) context.Context { return context.WithValue(context.Background(), ownKey{}, true) },
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(pipes) // until end
	}()
	transport := &http.Transport{DialContext: pipes.dial}
	client := managerv1connect.NewManagerServiceClient(&http.Client{Transport: transport}, "http://self")
	return client, func() {
		_ = server.Close()
		<-served
		transport.CloseIdleConnections()
	}
}

// ownKey is the key of a context in which isOwn is true.
type ownKey struct{}

// isOwn reports whether a call comes from the manager's own client.
func isOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// visits counts the grants of a server that caches other than a calibration's have got.
func (c *state) visits(id string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil {
		return v.visits
	}
	return 0
}

// pipes is a listener of connections within this process.
type pipes struct {
	some   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{some: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.some <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.some:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "self", Net: "pipe"} }
