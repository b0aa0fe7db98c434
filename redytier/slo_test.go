package redytier

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
)

// sloModel is a model of records of 64 bytes over a transport: one-sided access takes 10 us
// and reaches 1 Mop/s, batches take 100 us and reach 10 Mop/s.
func sloModel(t *testing.T, transport string) *model.Model {
	t.Helper()
	m := model.New(model.Provenance{Transport: transport, Network: model.NoNetwork, Host: model.ThisHost()})
	n, err := m.Add(&model.Measurement{RecordSize: 64, Distance: 1, Network: model.NoNetwork, ClientCores: 2, QueueDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		p := model.Performance{LatencyUs: 10, Mops: 1}
		if at.B > 1 {
			p = model.Performance{LatencyUs: 100, Mops: 10}
		}
		if err := n.Report(at, p, p); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// R16, R70, R76: a cache has a configuration that meets its SLO. Another SLO moves the cache,
// with its contents, to another configuration. An SLO that cannot be met changes nothing.
func TestConfigurationBySLO(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Models: []*model.Model{sloModel(t, "mem")}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mgr.Close(); err != nil {
			t.Error(err)
		}
	})
	near := SLO{MaxLatency: 20 * time.Microsecond, MinThroughput: 0.5e6, RecordSize: 64}
	c, err := Create(t.Context(), mgr, Config{Capacity: 1 << 20, SLO: near, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	})
	check := func(when string, serverThreads, batches int) {
		t.Helper()
		if got := c.Configuration(); got.ServerThreads != serverThreads || got.BatchSize < batches || batches == 1 && got.BatchSize > 1 {
			t.Errorf("%s: configuration %+v, want %d server threads", when, got, serverThreads)
		}
	}
	check("created", 0, 1)
	want := bytes.Repeat([]byte("slo"), 1000)
	wrote := make(chan error, 1)
	if err := c.Write(t.Context(), want, 5000, func(_ int, err error) { wrote <- err }); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the write ends", wrote); err != nil {
		t.Fatal(err)
	}
	if err := c.Reshape(t.Context(), 1<<20, SLO{MaxLatency: time.Millisecond, MinThroughput: 5e6, RecordSize: 64}); err != nil {
		t.Fatal(err)
	}
	check("reshaped for throughput", 1, 2)
	err = c.Reshape(t.Context(), 1<<20, SLO{MaxLatency: 20 * time.Microsecond, MinThroughput: 5e6, RecordSize: 64})
	if err == nil || !strings.Contains(err.Error(), "no configuration has a mean latency of 20 us and 5 Mop/s: within that latency at most") {
		t.Errorf("reshaped to an SLO that cannot be met: %v", err)
	}
	check("after that", 1, 2)
	if err := c.Reshape(t.Context(), 1<<20, near); err != nil {
		t.Fatal(err)
	}
	check("reshaped back", 0, 1)
	got, read := make([]byte, len(want)), make(chan error, 1)
	if err := c.Read(t.Context(), got, 5000, func(_ int, err error) { read <- err }); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(got, testrun.Receive(t, "the read ends", read)).Want(t, want, "the cache")
	if _, err := Create(t.Context(), mgr, Config{Capacity: 1 << 20, SLO: SLO{MaxLatency: time.Nanosecond, RecordSize: 64}, Logger: log}); err == nil {
		t.Error("a cache of 1 ns is created")
	}
}
