package model

import "testing"

// A prediction is that of the surface that a search uses; outside of what was measured there is
// none.
func TestPredict(t *testing.T) {
	l := newTestLibrary(t)
	at := Config{C: 1, S: 0, B: 1, Q: 3}
	for _, c := range []struct {
		name     string
		query    Query
		distance int
		at       Config
		latency  float64 // as a multiple of rising's; 0: not known
	}{
		{"the record size", query("shm", 64, SLO{}), 1, at, 1},
		{"the next larger record size", query("shm", 65, SLO{}), 1, at, 2},
		{"any distance", query("shm", 64, SLO{}), 4, at, 1},
		{"a distance", query("tcp", 64, SLO{}), 3, at, 30},
		{"no such distance", query("tcp", 64, SLO{}), 2, at, 0},
		{"too large records", query("tcp", 65, SLO{}), 1, at, 0},
		{"no such transport", query("verbs", 64, SLO{}), 1, at, 0},
		{"a deeper queue than was measured", query("shm", 64, SLO{}), 1, Config{C: 1, B: 1, Q: 5}, 0},
		{"more threads than were measured", query("shm", 64, SLO{}), 1, Config{C: 3, B: 1, Q: 1}, 0},
		{"a batch without server threads", query("shm", 64, SLO{}), 1, Config{C: 1, B: 2, Q: 1}, 0},
	} {
		p, known := l.Predict(c.query, c.distance, c.at)
		if known != (c.latency > 0) {
			t.Errorf("%s: known %t", c.name, known)
			continue
		}
		if want := c.latency * rising(c.at).LatencyUs; known && (p.LatencyUs < 0.99*want || p.LatencyUs > 1.01*want || p.Mops <= 0) {
			t.Errorf("%s: %+v, want a latency of %v us", c.name, p, want)
		}
	}
}
