package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/testrun/property"
)

// traverse is figure 10, line by line. It also counts the visited leaves.
func traverse(f *Surface, space Space, slo SLO) (Config, int64, bool) {
	var config Config
	leaves := int64(0)
	var visit func(level int) status
	visit = func(level int) status {
		if level == 5 {
			leaves++
			p := f.At(config)
			if p.LatencyUs > slo.latency() {
				return invalid
			}
			if p.Mops >= slo.Mops {
				return success
			}
			return proceed
		}
		var parameter *int
		var first, last int
		switch level {
		case 1:
			parameter, first, last = &config.S, 0, space.C
		case 2:
			parameter, first, last = &config.C, max(1, config.S), space.C
		case 3:
			parameter, first, last = &config.B, 1, space.batches(config.S)
		case 4:
			parameter, first, last = &config.Q, space.Opt, space.Q
		}
		result := invalid
		for v := first; v <= last; v++ {
			*parameter = v
			child := visit(level + 1)
			if child == success {
				return success
			}
			if child == invalid {
				return result
			}
			result = proceed
		}
		return result
	}
	got := visit(1)
	return config, leaves, got == success
}

// bruteForce visits every configuration.
func bruteForce(f *Surface, space Space, slo SLO) (Config, bool) {
	for c := range space.All() {
		if slo.met(f.At(c)) {
			return c, true
		}
	}
	return Config{}, false
}

// drawSpace draws a space small enough for brute force.
func drawSpace(t *rapid.T) Space {
	q := rapid.IntRange(1, 9).Draw(t, "Q")
	opt := rapid.SampledFrom(axis(q)).Draw(t, "opt")
	return Space{C: rapid.IntRange(1, 7).Draw(t, "C"), B: rapid.IntRange(1, 20).Draw(t, "B"), Opt: opt, Q: q}
}

// drawSurface draws measurements with rising or arbitrary latencies; some configurations
// are missing.
func drawSurface(t *rapid.T, space Space, monotone bool) *Surface {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	missing := rapid.SampledFrom([]float64{0, 0, 0.1, 0.5}).Draw(t, "missing")
	measured := map[Config]Performance{}
	for c := range space.grid() {
		if rng.Float64() < missing {
			continue
		}
		p := Performance{LatencyUs: 1 + 99*rng.Float64(), Mops: 1 + 99*rng.Float64()}
		if monotone {
			// A sum of terms that rise with each parameter rises along all of them.
			p.LatencyUs = float64(c.C) + float64(c.S)*0.3 + float64(c.B) + float64(c.B*c.Q)*0.7 + 1/(1+float64(c.C+c.Q))
		}
		measured[c] = p
	}
	if monotone && missing > 0 {
		closeUpward(space, measured)
	}
	f, err := NewSurface(space, measured)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// closeUpward removes the configurations beyond a missing one, like early termination.
func closeUpward(space Space, measured map[Config]Performance) {
	for c := range space.grid() {
		for o := range space.grid() {
			_, there := measured[o]
			if !there && o.C <= c.C && o.B <= c.B && o.Q <= c.Q && (o.S <= c.S) {
				delete(measured, c)
			}
		}
	}
}

func drawSLO(t *rapid.T, f *Surface) SLO {
	slo := SLO{LatencyUs: rapid.Float64Range(0, 110).Draw(t, "latency"), Mops: rapid.Float64Range(0, 110).Draw(t, "mops")}
	if rapid.Bool().Draw(t, "at a corner") { // bounds that are just met
		p := f.cells[rapid.IntRange(0, len(f.cells)-1).Draw(t, "corner")]
		slo.Mops = p.Mops
		if !math.IsInf(p.LatencyUs, 1) {
			slo.LatencyUs = p.LatencyUs
		}
	}
	return slo
}

// R66, R67: if latencies rise, figure 10 and the search without its pruning find the same
// as brute force.
func TestSearchFindsTheFirst(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		f := drawSurface(t, space, true)
		if !f.monotone {
			t.Fatal("the latencies rise, and the surface says they do not")
		}
		slo := drawSLO(t, f)
		want, possible := bruteForce(f, space, slo)
		if literal, _, ok := traverse(f, space, slo); ok != possible || ok && literal != want {
			t.Fatalf("figure 10 finds %v %v, brute force %v %v", literal, ok, want, possible)
		}
		checkFound(t, f, space, slo, f.Search, want, possible)
		checkFound(t, f, space, slo, f.Exact, want, possible)
	})
}

// A22: on any surface, Search and Exact find the first configuration.
func TestSearchOfAnySurface(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		f := drawSurface(t, space, false)
		slo := drawSLO(t, f)
		want, possible := bruteForce(f, space, slo)
		checkFound(t, f, space, slo, f.Search, want, possible)
		checkFound(t, f, space, slo, f.Exact, want, possible)
		// Skipping subtrees that cannot have the answer does not change the result of
		// figure 10, be it right or wrong.
		literal, _, ok := traverse(f, space, slo)
		got, err := f.search(space, slo, false)
		if ok != (err == nil) || ok && got.Config != literal {
			t.Fatalf("figure 10 finds %v %v, and with bounds %v %v", literal, ok, got, err)
		}
	})
}

// Search in smaller and larger spaces than the measured one: fewer client cores, other
// bounds.
func TestSearchOfAnotherSpace(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		f := drawSurface(t, drawSpace(t), rapid.Bool().Draw(t, "monotone"))
		space := drawSpace(t)
		slo := drawSLO(t, f)
		want, possible := bruteForce(f, space, slo)
		checkFound(t, f, space, slo, f.Search, want, possible)
	})
}

func checkFound(t *rapid.T, f *Surface, space Space, slo SLO, search func(Space, SLO) (Found, error), want Config, possible bool) {
	t.Helper()
	got, err := search(space, slo)
	if possible {
		if err != nil || got.Config != want || got.Predicted != f.At(want) {
			t.Fatalf("found %v %v %v, brute force %v", got, f.At(want), err, want)
		}
		return
	}
	var impossible *ImpossibleError
	if errors.As(err, &impossible) {
		checkNearest(t, f, space, impossible)
		return
	}
	for c := range space.All() {
		if !errors.Is(err, ErrNoModel) || !math.IsInf(f.At(c).LatencyUs, 1) {
			t.Fatalf("no configuration found, and the error is %v, though %v has %v", err, c, f.At(c))
		}
	}
}

// checkNearest compares what is reported as possible with every configuration.
func checkNearest(t *rapid.T, f *Surface, space Space, e *ImpossibleError) {
	t.Helper()
	atLatency, atThroughput := unknown, unknown
	all := Performance{LatencyUs: math.Inf(1)}
	for c := range space.All() {
		p := f.At(c)
		if math.IsInf(p.LatencyUs, 1) {
			continue
		}
		all = all.better(p)
		if p.LatencyUs <= e.Asked.latency() && p.Mops > atLatency.Mops {
			atLatency = p
		}
		if p.Mops >= e.Asked.Mops && p.LatencyUs < atThroughput.LatencyUs {
			atThroughput = p
		}
	}
	if atLatency != unknown && e.AtLatency.Predicted != atLatency || atLatency == unknown && e.AtLatency.Predicted.LatencyUs != all.LatencyUs {
		t.Fatalf("%v, brute force has %v", e, atLatency)
	}
	if atThroughput != unknown && e.AtThroughput.Predicted != atThroughput || atThroughput == unknown && e.AtThroughput.Predicted.Mops != all.Mops {
		t.Fatalf("%v, brute force has %v", e, atThroughput)
	}
	for _, found := range []Found{e.AtLatency, e.AtThroughput} {
		var said SLO // what a reader of the error would ask for
		if _, err := fmt.Sscanf(found.Predicted.String(), "a mean latency of %g us and %g Mop/s", &said.LatencyUs, &said.Mops); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Search(space, said); err != nil {
			t.Fatalf("%v is said to be possible: %v", said, err)
		}
	}
}

// Printed figures of what is possible can be asked for.
func TestPerformanceString(t *testing.T) {
	for _, tc := range []struct {
		p    Performance
		want string
	}{
		{Performance{0.26344, 3.79594}, "a mean latency of 0.264 us and 3.795 Mop/s"},
		{Performance{0.263, 5000}, "a mean latency of 0.263 us and 5000 Mop/s"},
		{Performance{9.9991, 0.00012345}, "a mean latency of 10 us and 0.0001234 Mop/s"},
		{Performance{12.341, 99.999}, "a mean latency of 12.35 us and 99.99 Mop/s"},
		{Performance{123456.5, 123456.5}, "a mean latency of 123457 us and 123456 Mop/s"},
		{Performance{LatencyUs: 20}, "a mean latency of 20 us"},
		{Performance{Mops: 1.2345}, "1.234 Mop/s"},
		{Performance{}, "any performance"},
	} {
		if got := tc.p.String(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.p, got, tc.want)
		}
	}
	if got, want := (SLO{0.26344, 5000}).String(), "a mean latency of 0.26344 us and 5000 Mop/s"; got != want {
		t.Errorf("asked for: %q, want %q", got, want)
	}
}

// paperSurface resembles the paper's measurements (figure 3): 4.1 us and 1.2 Mop/s
// one-sided, up to 205 Mop/s and some hundred microseconds.
func paperSurface(space Space) *Surface {
	measured := map[Config]Performance{}
	for c := range space.grid() {
		flight := float64(c.C * c.B * c.Q)
		client := float64(c.C) * 14 / (1 + 12/float64(c.B)) // what the client threads can send
		server := math.Inf(1)
		if c.S > 0 {
			server = float64(c.S) * 70 / (1 + 4/float64(c.B))
		}
		most := min(client, server, 215)
		rtt := 2.9 + 0.002*float64(c.B)
		latency := rtt + flight/most
		measured[c] = Performance{LatencyUs: latency, Mops: flight / latency}
	}
	f, err := NewSurface(space, measured)
	if err != nil {
		panic(err)
	}
	return f
}

// paperSpace is the space of section 5.2: C = 30, 8-byte records, Q = 16, opt. = 4.
var paperSpace = Space{C: 30, B: BatchLimit(8), Opt: 4, Q: 16}

// drawSLOs draws SLOs between the lowest and highest values of a surface, as in section
// 7.3.
func drawSLOs(n int) []SLO {
	rng := rand.New(rand.NewPCG(1, 2))
	slos := make([]SLO, n)
	for i := range slos {
		slos[i] = SLO{LatencyUs: 4 + 530*rng.Float64(), Mops: 0.2 + 205*rng.Float64()}
	}
	return slos
}

// For a hundred SLOs in three million configurations, figure 10, the same with bounds, and
// the exact search agree.
func TestSearchInThreeMillion(t *testing.T) {
	f := paperSurface(paperSpace)
	if !f.monotone {
		t.Fatal("the surface is not monotone")
	}
	for i, slo := range drawSLOs(100) {
		got, err := f.Search(paperSpace, slo)
		exact, exactErr := f.Exact(paperSpace, slo)
		if (err == nil) != (exactErr == nil) || got.Config != exact.Config {
			t.Errorf("%v: %v %v, exactly %v %v", slo, got, err, exact, exactErr)
		}
		if i%10 > 0 || !testrun.All() {
			continue
		}
		if literal, _, ok := traverse(f, paperSpace, slo); ok != (err == nil) || ok && literal != got.Config {
			t.Errorf("%v: %v %v, by figure 10 %v %v", slo, got, err, literal, ok)
		}
	}
}

// R68, Q27, Q38: the paper's search takes 27 ms on average.
func BenchmarkSearch(b *testing.B) {
	f := paperSurface(paperSpace)
	slos := drawSLOs(100)
	for _, how := range []struct {
		name   string
		search func(Space, SLO) (Found, error)
	}{{"figure10", f.Search}, {"exact", f.Exact}} {
		b.Run(how.name, func(b *testing.B) {
			leaves, found := int64(0), 0
			for i := range b.N {
				if got, err := how.search(paperSpace, slos[i%len(slos)]); err == nil {
					leaves += got.Leaves
					found++
				}
			}
			b.ReportMetric(float64(leaves)/float64(max(found, 1)), "leaves/answer")
			b.ReportMetric(float64(found)/float64(b.N), "possible")
		})
	}
}
