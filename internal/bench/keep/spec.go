package keep

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

// Disturbance is what disturbs caches.
type Disturbance string

// Disturbances. The first one concerns all caches, the others one server.
const (
	Network   Disturbance = "network"   // the network's round trip takes twice as long
	Neighbour Disturbance = "neighbour" // another process takes the processor of a server for most of the time
	Link      Disturbance = "link"      // a server's link has a small part of its bandwidth
)

// Disturbances lists all of them.
var Disturbances = []Disturbance{Network, Neighbour, Link}

// Spec describes a measurement.
type Spec struct {
	Disturbances []Disturbance
	Caches       int           // with a server each; there is one server more
	Settle       time.Duration // from a disturbance until windows count
	Measure      time.Duration // during which windows count
	Window       time.Duration // over which a cache measures
	Lease        time.Duration // of the caches; 0: of 8 windows
	// Server starts a process with a cache server of that id over tcp, of a manager at a URL.
	Server func(ctx context.Context, manager, id string, memory uint64) (*bench.Child, error)
	Log    *slog.Logger
}

// Check returns an error if the spec makes no sense.
func (s *Spec) Check() error {
	const (
		least = 50 * time.Millisecond
		most  = 16
	)
	switch {
	case len(s.Disturbances) == 0:
		return fmt.Errorf("no disturbances: want some of %v", Disturbances)
	case s.Caches < 1 || s.Caches > most:
		return fmt.Errorf("%d caches: want 1 to %d", s.Caches, most)
	case s.Window < least:
		return fmt.Errorf("windows of %v: want %v or more", s.Window, least)
	case s.Lease < 0:
		return fmt.Errorf("a lease of %v: want 0s or more", s.Lease)
	case s.Settle < 0 || s.Measure < s.Window:
		return fmt.Errorf("%v from a disturbance, then %v: want 0s or more, and a window, %v, or more", s.Settle, s.Measure, s.Window)
	}
	return nil
}

// What the caches are. The network's round trip is so long that the machine's speed does not matter.
const (
	recordSize = model.MaxBatchBytes // so large that batches have one record
	capacity   = 16 << 20
	pending    = 64 // requests of a cache's application: more than configurations allow

	// A server's processor is taken for stopFor, and then left to it for runFor.
	stopFor = 20 * time.Millisecond
	runFor  = 5 * time.Millisecond

	narrowed = 100 // times
)

var (
	network = fabric.Model{RTT: 4 * time.Millisecond, BitsPerSecond: 1e9}

	// slo is met by one client thread with a queue depth of 4, and of 8 where the round trip takes
	// twice as long.
	slo = redytier.SLO{MaxLatency: 15 * time.Millisecond, MinThroughput: 800, RecordSize: recordSize, Operations: redytier.ReadsOnly}
)

// networkModel is the model of that network: each request takes a round trip, and a little for the
// machines.
func networkModel() (*model.Model, error) {
	m := model.New(model.Provenance{Transport: "tcp", Network: model.NoNetwork, Host: model.ThisHost(), Date: time.Now().UTC(), Revision: "by the network's round trip"})
	n, err := m.Add(&model.Measurement{RecordSize: recordSize, Distance: 1, Network: model.NoNetwork, ClientCores: 2, QueueDepth: 16})
	if err != nil {
		return nil, err
	}
	const little = 200 // microseconds
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		latency := float64(network.RTT.Microseconds()) + little
		p := model.Performance{LatencyUs: latency, Mops: float64(at.C*at.B*at.Q) / latency}
		if err := n.Report(at, p, p); err != nil {
			return nil, err
		}
	}
	return m, nil
}
