package manager

import (
	"errors"
	"maps"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/model"
)

// reload starts a manager from a store, and closes it with the test.
func reload(t *testing.T, s *crashStore) (*Manager, error) {
	t.Helper()
	s.mu.Lock()
	entries := maps.Clone(s.entries)
	s.mu.Unlock()
	m, err := New(Options{Transport: "tcp", Heartbeat: time.Hour, Lease: -1, Logger: quiet(), store: &crashStore{entries: entries}})
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
	return m, err
}

// deepModel returns a model with more batches in flight and smaller records than a cache
// may have.
func deepModel(t *testing.T) *model.Model {
	t.Helper()
	m := model.New(model.Provenance{Transport: "tcp", Network: model.NoNetwork, Host: model.ThisHost(), Revision: "test"})
	for _, record := range []int{4, 8} {
		n, err := m.Add(&model.Measurement{RecordSize: record, Distance: 1, Network: model.NoNetwork, ClientCores: 1, QueueDepth: 64})
		if err != nil {
			t.Fatal(err)
		}
		for at, ok := n.Next(); ok; at, ok = n.Next() {
			flight := float64(at.B * at.Q)
			latency := 4 + flight/100
			p := model.Performance{LatencyUs: latency, Mops: flight / latency}
			if err := n.Report(at, p, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// The search finds only configurations within the bounds of table 2, whatever was measured,
// so that the catalog can be read again. Values beyond them are refused.
func TestFoundConfigurationsAreReadAgain(t *testing.T) {
	s := newCrashStore()
	m, client := serve(t, Options{Transport: "tcp", store: s, Models: []*model.Model{deepModel(t)}, SLOMargin: -1})
	if err := m.led().state.register(testVM("a", 1<<30, 4, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	allocated := 0
	for _, mops := range []float64{1, 3.5, 10, 50, 80, 95, 98} {
		answer, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(0, mops, 8)}))
		if err != nil {
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%v: %v", mops, err)
			}
			continue
		}
		allocated++
		if err := checkConfiguration(answer.Msg.GetConfiguration(), 0); err != nil {
			t.Errorf("%v: %v", mops, err)
		}
		if _, err := reload(t, s); err != nil {
			t.Errorf("%v: %v", mops, err)
		}
	}
	if allocated < 3 {
		t.Errorf("%d SLOs are met", allocated)
	}
}

// A reloaded cache begins a new dwell. A stored grant without regions is an error.
func TestReload(t *testing.T) {
	s := newCrashStore()
	m, client := serve(t, Options{store: s})
	if err := m.led().state.register(testVM("a", 2<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	by, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 4096, Client: &managerv1.Client{Cores: 3}}))
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	// What is known of the cache's client is kept, too.
	if d, err := m.led().state.demand(by.Msg.GetCacheId()); err != nil || d.client.GetCores() != 3 {
		t.Errorf("client %v, %v", d.client, err)
	}
	again, err := reload(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := again.led().state.demand(by.Msg.GetCacheId()); err != nil || d.client.GetCores() != 3 {
		t.Errorf("client %v after a restart, %v", d.client, err)
	}
	if found, ok := again.led().state.watched(ca.GetCacheId()); !ok || found.moved.Before(before) {
		t.Errorf("cache %v", found)
	}
	key := "cache/" + ca.GetCacheId()
	stored := new(catalogv1.Cache)
	if err := proto.Unmarshal(s.entries[key].Value, stored); err != nil {
		t.Fatal(err)
	}
	stored.Grants[0].Regions = 0
	value, err := proto.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	s.put(key, value)
	if _, err := reload(t, s); !errors.Is(err, catalog.ErrCorrupt) {
		t.Errorf("a grant of 0 regions: %v", err)
	}
}
