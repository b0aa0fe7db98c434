package manager

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
)

// testModel returns a model of a transport, for records of 64 bytes, at distances 1 and 3,
// without a modelled network. One-sided access is fast; batches and threads increase the
// throughput; at distance 3 everything takes twice as long.
func testModel(t testing.TB, transport string) *model.Model {
	m := model.New(model.Provenance{Transport: transport, Network: model.NoNetwork, Host: model.ThisHost(), Revision: "test"})
	for _, distance := range []int{1, 3} {
		n, err := m.Add(&model.Measurement{
			RecordSize: 64, Distance: distance, Network: model.NoNetwork, ClientCores: 4, QueueDepth: 16,
		})
		if err != nil {
			t.Fatal(err)
		}
		for at, ok := n.Next(); ok; at, ok = n.Next() {
			flight := float64(at.C * at.B * at.Q)
			most := float64(at.C)
			if at.S > 0 {
				most = 10 * float64(at.S)
			}
			latency := 4*float64(distance+1)/2 + flight/most
			p := model.Performance{LatencyUs: latency, Mops: flight / latency}
			if err := n.Report(at, p, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// serveModel starts a manager with a model, no margin, and enough cores.
func serveModel(t testing.TB) (*Manager, access.Client) {
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, Options{Allocator: a, Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1})
}

func slo(latency, mops float64, record uint32) *managerv1.Slo {
	return &managerv1.Slo{MaxLatencyUs: latency, MinThroughputMops: mops, RecordSize: record}
}

// R16, R67: a cache without a requested configuration gets the cheapest one that meets its
// SLO.
func TestAllocateBySLO(t *testing.T) {
	_, client := serveModel(t)
	for _, tc := range []struct {
		name   string
		slo    *managerv1.Slo
		client *managerv1.Client
		check  func(c *managerv1.Configuration) bool
	}{
		{"latency alone", slo(6, 0, 64), nil, func(c *managerv1.Configuration) bool {
			return c.GetServerThreads() == 0 && c.GetClientThreads() == 1 && c.GetQueueDepth() == 1
		}},
		{"throughput of one-sided access", slo(0, 2, 64), nil, func(c *managerv1.Configuration) bool {
			return c.GetServerThreads() == 0 && c.GetClientThreads() > 1
		}},
		{"throughput of a server thread", slo(0, 8, 64), nil, func(c *managerv1.Configuration) bool {
			return c.GetServerThreads() == 1 && c.GetBatchSize() > 1
		}},
		{"throughput of three", slo(0, 25, 64), nil, func(c *managerv1.Configuration) bool {
			return c.GetServerThreads() == 3
		}},
		{"smaller records", slo(0, 8, 50), nil, func(c *managerv1.Configuration) bool { return c.GetServerThreads() == 1 }},
		{"a client of one core", slo(0, 2, 64), &managerv1.Client{Cores: 1}, func(c *managerv1.Configuration) bool {
			return c.GetServerThreads() == 1 && c.GetClientThreads() == 1
		}},
		{"a NIC of few operations", slo(0, 1, 64), &managerv1.Client{QueueDepth: 2}, func(c *managerv1.Configuration) bool {
			return c.GetQueueDepth() <= 2
		}},
		{"no bounds", slo(0, 0, 64), nil, func(c *managerv1.Configuration) bool {
			return c.GetQueueDepth() == DefaultConfiguration().GetQueueDepth()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: tc.slo, Client: tc.client}))
			if err != nil {
				t.Fatal(err)
			}
			if c := answer.Msg.GetConfiguration(); !tc.check(c) {
				t.Errorf("configuration %v", c)
			}
		})
	}
}

// An impossible SLO is refused with what would be possible, and changes nothing (R17).
func TestImpossibleSLO(t *testing.T) {
	m, client := serveModel(t)
	for _, margin := range []float64{0, 0.1} {
		m.search.margin = margin
		for _, impossible := range []*managerv1.Slo{slo(1, 0, 64), slo(0, 1000, 64), slo(4.5, 5, 64), slo(1, 1000, 64)} {
			_, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: impossible}))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "no configuration has") {
				t.Fatalf("%v: %v", impossible, err)
			}
			detail := sloDetail(t, err)
			if detail.GetAsked().GetMinThroughputMops() != impossible.GetMinThroughputMops() || detail.GetConfiguration().GetClientThreads() == 0 {
				t.Errorf("%v: detail %v", impossible, detail)
			}
			answer, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: detail.GetNearest()}))
			if err != nil {
				t.Errorf("%v is said to be possible instead of %v: %v", detail.GetNearest(), impossible, err)
				continue
			}
			if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: answer.Msg.GetCacheId()})); err != nil {
				t.Error(err)
			}
		}
	}
	if caches := m.led().state.describe().GetCaches(); len(caches) > 0 {
		t.Errorf("left behind: %v", caches)
	}
}

func sloDetail(t *testing.T, err error) *managerv1.SloDetail {
	var answer *connect.Error
	if errors.As(err, &answer) {
		for _, d := range answer.Details() {
			if v, err := d.Value(); err == nil {
				if s, ok := v.(*managerv1.SloDetail); ok {
					return s
				}
			}
		}
	}
	t.Fatalf("no SloDetail in %v", err)
	return nil
}

// An SLO without a model is refused.
func TestNoModelForSLO(t *testing.T) {
	_, client := serveModel(t)
	for _, req := range []*managerv1.AllocateRequest{
		{Slo: slo(0, 1, 1<<20)},
		{Slo: slo(0, 1, 64), Client: &managerv1.Client{Network: "77us,1Gbit"}},
		{Slo: slo(0, 1, 64), Transport: "verbs"},
	} {
		req.Capacity, req.RequestId = 1<<20, newRequestID()
		if _, err := client.Allocate(testContext(t), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "no model") {
			t.Errorf("%v: %v", req, err)
		}
	}
	bad := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(0, 1, 64), Client: &managerv1.Client{Network: "slow"}}
	if _, err := client.Allocate(testContext(t), connect.NewRequest(bad)); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a network that is none: %v", err)
	}
}

// A bound needs a record size, unless no search is needed.
func TestSLOWithoutRecordSize(t *testing.T) {
	m, client := serveModel(t)
	allocate := func(slo *managerv1.Slo, config *managerv1.Configuration) (*connect.Response[managerv1.AllocateResponse], error) {
		return client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo, Configuration: config}))
	}
	refused := func(err error) bool {
		return connect.CodeOf(err) == connect.CodeInvalidArgument && strings.Contains(err.Error(), "record_size 0: a bound needs the size of the records")
	}
	for _, bound := range []*managerv1.Slo{slo(100, 0, 0), slo(0, 1, 0), slo(100, 1, 0)} {
		if _, err := allocate(bound, nil); !refused(err) {
			t.Errorf("%v: %v", bound, err)
		}
	}
	if caches := m.led().state.describe().GetCaches(); len(caches) > 0 {
		t.Errorf("left behind: %v", caches)
	}
	for _, taken := range []*managerv1.Slo{nil, slo(0, 0, 0), slo(100, 1, 1)} {
		if _, err := allocate(taken, nil); err != nil {
			t.Errorf("%v: %v", taken, err)
		}
	}
	answer, err := allocate(slo(100, 1, 0), DefaultConfiguration())
	if err != nil {
		t.Fatal(err)
	}
	more := &managerv1.ReallocateRequest{Change: nextChange(), CacheId: answer.Msg.GetCacheId(), Regions: 1, Slo: slo(0, 1, 0)}
	if _, err := client.Reallocate(testContext(t), connect.NewRequest(more)); !refused(err) {
		t.Errorf("for another SLO: %v", err)
	}
}

// R25: each distance has its own configuration.
func TestConfigurationsByDistance(t *testing.T) {
	s, err := newSearcher(&Options{Transport: "tcp", Models: []*model.Model{testModel(t, "tcp")}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	configs, err := s.search(slo(20, 3, 64), "tcp", nil)
	if err != nil || len(configs) != 2 || configs[1] == nil || configs[3] == nil {
		t.Fatalf("%v, %v: want them at distances 1 and 3", configs, err)
	}
	if configs[1].GetServerThreads() > configs[3].GetServerThreads() {
		t.Errorf("nearer %v, farther %v", configs[1], configs[3])
	}
	if nearest(configs) != configs[1] {
		t.Errorf("the nearest is %v", nearest(configs))
	}
	if configs, err = s.search(slo(5, 0, 64), "tcp", nil); err != nil || len(configs) != 1 || configs[1] == nil {
		t.Errorf("within 5 us: %v, %v: want it at distance 1 alone", configs, err)
	}
}

// R70: a Reallocate with another SLO gets another configuration for the new memory,
// whatever the cache has now.
func TestReallocateBySLO(t *testing.T) {
	_, client := serveModel(t)
	made, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(),
		Capacity: 1 << 20, Slo: slo(0, 0, 8), Configuration: &managerv1.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 512, QueueDepth: 1},
	}))
	if err != nil {
		t.Fatal(err)
	}
	more := &managerv1.ReallocateRequest{Change: nextChange(), CacheId: made.Msg.GetCacheId(), Regions: 1, Slo: slo(0, 25, 64)}
	answer, err := client.Reallocate(testContext(t), connect.NewRequest(more))
	if err != nil {
		t.Fatal(err)
	}
	if c := answer.Msg.GetConfiguration(); c.GetServerThreads() != 3 || answer.Msg.GetGrants()[0].GetCores() != 3 {
		t.Errorf("configuration %v, grants %v: want 3 server threads", c, answer.Msg.GetGrants())
	}
	more.Slo, more.Change = slo(1, 0, 64), nextChange()
	if _, err = client.Reallocate(testContext(t), connect.NewRequest(more)); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an impossible SLO: %v", err)
	}
	more.CacheId = "no such"
	if _, err = client.Reallocate(testContext(t), connect.NewRequest(more)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of no cache: %v", err)
	}
}

// A25: a model of another transport is refused; the accepted ones are listed.
func TestModelsOfAManager(t *testing.T) {
	if _, err := New(Options{Transport: "shm", Models: []*model.Model{testModel(t, "tcp")}, Logger: quiet()}); !errors.Is(err, allocator.ErrTransport) {
		t.Errorf("a model of tcp for shm: %v", err)
	}
	// An incomplete measurement is not searched; a model that has no other is refused.
	half := testModel(t, "mem")
	half.Measurements[0].Points = half.Measurements[0].Points[:5]
	var log bytes.Buffer
	m, err := New(Options{Transport: "mem", Models: []*model.Model{half}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(testContext(t)); err != nil || !strings.Contains(log.String(), "record_size=64 distance=1 measured=5") || strings.Contains(log.String(), "distance=3") {
		t.Errorf("%v, %s", err, log.String())
	}
	half.Measurements = half.Measurements[:1]
	if _, err := New(Options{Transport: "mem", Models: []*model.Model{half}, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), "has no complete measurement") {
		t.Errorf("half a model: %v", err)
	}
	for _, margin := range []float64{math.NaN(), 1} {
		if _, err := New(Options{SLOMargin: margin, Logger: quiet()}); err == nil {
			t.Errorf("a margin of %v is taken", margin)
		}
	}
	_, client := serveModel(t)
	answer, err := client.ListModels(testContext(t), connect.NewRequest(&managerv1.ListModelsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if all := answer.Msg.GetModels(); len(all) != 1+len(model.Shipped()) || all[0].GetName() != "mem, network none" || !strings.Contains(all[0].GetProvenance(), "revision test") {
		t.Errorf("models %v", all)
	}
}
