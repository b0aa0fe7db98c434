package model

import (
	"errors"
	"strings"
	"testing"
)

// measured returns a complete measurement whose latencies are us microseconds per request
// in flight.
func measured(t *testing.T, recordSize, distance int, network string, us float64) *Measurement {
	m := newMeasurement(2, recordSize, 4)
	m.Distance, m.Network = distance, network
	build(t, m, func(c Config) Performance {
		p := rising(c)
		p.LatencyUs *= us
		return p
	})
	return m
}

func newTestLibrary(t *testing.T) *Library {
	shm := New(Provenance{Transport: "shm"})
	shm.Measurements = []*Measurement{measured(t, 1024, 1, NoNetwork, 2), measured(t, 64, 1, NoNetwork, 1), measured(t, 64, 3, "4us,100Gbit", 5)}
	tcp := New(Provenance{Transport: "tcp"})
	tcp.Measurements = []*Measurement{measured(t, 64, 1, NoNetwork, 10), measured(t, 64, 3, NoNetwork, 30), newMeasurement(2, 8, 4)}
	l, err := NewLibrary(shm, tcp)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func query(transport string, recordSize int, slo SLO) Query {
	return Query{SLO: slo, RecordSize: recordSize, Transport: transport, Network: func(int) string { return NoNetwork }}
}

// A14: an SLO may apply to reads or writes only.
func TestLibraryKnowsOps(t *testing.T) {
	n, most := newMeasurement(2, 64, 4), 0.0
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		most = max(most, rising(at).Mops)
		read, write := rising(at), rising(at)
		read.LatencyUs, write.Mops = read.LatencyUs/10, write.Mops*10
		if err := n.Report(at, read, write); err != nil {
			t.Fatal(err)
		}
	}
	m := New(Provenance{Transport: "shm"})
	m.Measurements = []*Measurement{n}
	l, err := NewLibrary(m)
	if err != nil {
		t.Fatal(err)
	}
	plain := rising(Config{C: 1, B: 1, Q: n.Opt})
	for _, tc := range []struct {
		name string
		ops  Ops
		slo  SLO
		want bool
	}{
		{"a latency that only reads have", Reads, SLO{LatencyUs: plain.LatencyUs / 5}, true},
		{"asked of both", Both, SLO{LatencyUs: plain.LatencyUs / 5}, false},
		{"asked of writes", Writes, SLO{LatencyUs: plain.LatencyUs / 5}, false},
		{"a throughput that only writes have", Writes, SLO{Mops: 2 * most}, true},
		{"asked of reads", Reads, SLO{Mops: 2 * most}, false},
		{"what both have", Both, SLO{LatencyUs: plain.LatencyUs}, true},
	} {
		q := query("shm", 64, tc.slo)
		q.Ops = tc.ops
		if found, err := l.Search(q); (err == nil) != tc.want {
			t.Errorf("%s: %v, %v", tc.name, found[1], err)
		}
	}
}

// A23, A24: find chooses the next larger record size, at a measured distance.
func TestLibraryFinds(t *testing.T) {
	l := newTestLibrary(t)
	for _, tc := range []struct {
		name      string
		query     Query
		distances int
		latency   float64 // of the first configuration
	}{
		{"the size that was measured", query("shm", 64, SLO{}), MaxDistance, 1},
		{"one below it", query("shm", 20, SLO{}), MaxDistance, 1},
		{"one in between", query("shm", 65, SLO{}), MaxDistance, 2},
		{"another transport, at two distances", query("tcp", 64, SLO{}), 2, 10},
		{"none is complete of records so small", query("tcp", 1, SLO{}), 2, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, err := l.Search(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != tc.distances || found[1].Predicted.LatencyUs != tc.latency {
				t.Errorf("%d distances, at 1 %+v; want %d and a latency of %v", len(found), found[1], tc.distances, tc.latency)
			}
		})
	}
}

// The model of a network applies at each distance at which the client has that network.
func TestLibraryNetworks(t *testing.T) {
	l := newTestLibrary(t)
	q := query("shm", 64, SLO{})
	q.Network = func(d int) string {
		if d <= 2 {
			return NoNetwork
		}
		return "4us,100Gbit"
	}
	found, err := l.Search(q)
	if err != nil || len(found) != MaxDistance || found[2].Predicted.LatencyUs != 1 || found[3].Predicted.LatencyUs != 5 || found[64].Predicted.LatencyUs != 5 {
		t.Errorf("%v %v", found, err)
	}
	// Only the farther distance meets this SLO.
	q.LatencyUs = 3
	if found, err = l.Search(q); err != nil || len(found) != 2 {
		t.Errorf("within 3 us at %d distances, %v; want those that are near", len(found), err)
	}
}

// Source returns the provenance of the model that answers a query.
func TestLibraryNamesTheSource(t *testing.T) {
	l := newTestLibrary(t)
	for transport, distances := range map[string]map[int]bool{"shm": {1: true, 2: true}, "tcp": {1: true, 2: false}, "verbs": {1: false}} {
		for distance, want := range distances {
			from, ok := l.Source(query(transport, 64, SLO{}), distance)
			if ok != want || ok && from.Transport != transport {
				t.Errorf("%s at distance %d: %v, %v", transport, distance, from, ok)
			}
		}
	}
}

func TestLibraryLacks(t *testing.T) {
	l := newTestLibrary(t)
	_, err := l.Search(query("shm", 2000, SLO{}))
	if !errors.Is(err, ErrNoModel) || !strings.Contains(err.Error(), "up to 1024 bytes") {
		t.Errorf("larger records: %v", err)
	}
	if _, err = l.Search(query("verbs", 8, SLO{})); !errors.Is(err, ErrNoModel) {
		t.Errorf("another transport: %v", err)
	}
	var impossible *ImpossibleError
	if _, err = l.Search(query("tcp", 64, SLO{LatencyUs: 5})); !errors.As(err, &impossible) || impossible.AtLatency.Predicted.LatencyUs != 10 {
		t.Errorf("too fast: %v, want what is possible at distance 1", err)
	}
}

// A client with fewer cores or less queue depth gets a configuration that it can use.
func TestLibraryOfSmallClients(t *testing.T) {
	l := newTestLibrary(t)
	q := query("shm", 64, SLO{Mops: 1000})
	q.ClientCores, q.QueueDepth = 1, 2
	var impossible *ImpossibleError
	if _, err := l.Search(q); !errors.As(err, &impossible) {
		t.Fatal(err)
	}
	if most := impossible.AtThroughput.Config; most != (Config{1, 1, 64, 2}) {
		t.Errorf("the most that one core can do is %v", most)
	}
	q.ClientCores, q.QueueDepth, q.RecordSize = 100, 100, 1
	found, err := l.Search(q)
	if err != nil || found[1].Config.C > 2 || found[1].Config.B > 64 || found[1].Config.Q > 4 {
		t.Errorf("%v, %v: that was not measured", found[1], err)
	}
}
