package model

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// A scaling has the observed factors where they were observed, and elsewhere none outside of them.
func TestScaling(t *testing.T) {
	if l, m := Scaling(nil).At(Config{1, 0, 1, 4}); l != 1 || m != 1 {
		t.Errorf("without observations %v, %v", l, m)
	}
	two := Scaling{{Config{1, 0, 1, 4}, 2, 0.5}, {Config{1, 1, 16, 4}, 1, 1}}
	if l, _ := two.At(Config{1, 0, 1, 8}); l < 1.9 {
		t.Errorf("beside one-sided access with factor 2: %v", l)
	}
	if l, _ := two.At(Config{1, 1, 32, 4}); l > 1.1 {
		t.Errorf("beside batches with factor 1: %v", l)
	}
	config := rapid.Custom(func(t *rapid.T) Config {
		c := rapid.IntRange(1, 16).Draw(t, "c")
		s := rapid.IntRange(0, c).Draw(t, "s")
		b := 1
		if s > 0 {
			b = rapid.IntRange(1, 64).Draw(t, "b")
		}
		return Config{c, s, b, rapid.IntRange(1, 16).Draw(t, "q")}
	})
	property.Check(t, func(t *rapid.T) {
		least, most := math.Inf(1), 0.0
		var s Scaling
		seen := map[Config]bool{}
		for _, at := range rapid.SliceOfN(config, 1, 8).Draw(t, "configs") {
			if seen[at.alias()] {
				continue
			}
			seen[at.alias()] = true
			o := Observation{at, rapid.Float64Range(0.1, 10).Draw(t, "latency"), 1}
			s, least, most = append(s, o), min(least, o.Latency), max(most, o.Latency)
		}
		for _, o := range s {
			if l, _ := s.At(o.Config); l != o.Latency {
				t.Fatalf("%v at %v, observed %v", l, o.Config, o.Latency)
			}
		}
		const rounding = 1e-9
		if l, m := s.At(config.Draw(t, "at")); l < least*(1-rounding) || l > most*(1+rounding) || math.Abs(m-1) > rounding {
			t.Fatalf("%v, %v: want %v to %v, and 1", l, m, least, most)
		}
	})
}

// Corrections hold at their place only, and calibrated measurements are complete ones.
func TestCorrectedLibrary(t *testing.T) {
	shipped := Shipped()
	l, err := NewLibrary(shipped...)
	if err != nil {
		t.Fatal(err)
	}
	at := Place{"shm", NoNetwork, 3}
	c, err := l.Corrected(map[Place]Scaling{at: {{Config{1, 0, 1, 1}, 2, 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{RecordSize: 64, Transport: "shm", Network: func(int) string { return NoNetwork }}
	one := Config{1, 0, 1, 1}
	was, _ := l.Predict(q, 3, one)
	if p, ok := c.Predict(q, 3, one); !ok || p.LatencyUs != 2*was.LatencyUs || p.Mops != was.Mops/2 {
		t.Errorf("%v, corrected %v", was, p)
	}
	if p, _ := c.Predict(q, 1, one); p != was {
		t.Errorf("corrected at distance 1: %v", p)
	}
	for _, m := range Nearest(Place{"tcp", NoNetwork, 5}, shipped...) {
		some := m.Spread(1, 1, 5)
		if len(some) != 5 || some[0] != one {
			t.Errorf("spread %v", some)
		}
		if slices.ContainsFunc(m.Spread(1, 0, 5), func(c Config) bool { return c.S > 0 }) {
			t.Errorf("spread without server threads: %v", m.Spread(1, 0, 5))
		}
		// If the factors of the first configuration are not trusted, it is scaled as those near it.
		for _, first := range []float64{3, 43} {
			var samples []Sampled
			for _, p := range m.Points {
				i := slices.Index(some, p.Config)
				if i < 0 || p.Skipped {
					continue
				}
				slow := 3.0
				if i == 0 {
					slow = first
				}
				samples = append(samples, Sampled{m.RecordSize, p.Config, p.Read.scaled(slow, 1/slow), p.Write.scaled(slow, 1/slow)})
			}
			n := m.Calibrated(samples)
			if err := n.Check(); err != nil || !n.Complete() {
				t.Error(err)
			}
			for i, p := range n.Points {
				if was := m.Points[i]; !p.Skipped && (math.Abs(p.Read.LatencyUs/was.Read.LatencyUs-3) > 1e-9 || math.Abs(was.Write.Mops/p.Write.Mops-3) > 1e-9) {
					t.Errorf("%v: %v, calibrated %v", p.Config, was.Read, p.Read)
				}
			}
		}
	}
}
