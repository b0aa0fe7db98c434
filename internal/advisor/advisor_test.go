package advisor

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/missratio"
)

const keys, size = 50_000, 200

// question returns a question about uniform reads.
func question() Question {
	const memory = keys * size / 4
	r := missratio.NewReplay(missratio.Options{Memory: memory, PageSize: int64(hlog.DefaultPageSize(memory, alignment))})
	for n := range uint64(keys) {
		r.Access(missratio.Write, missratio.Hash(n), size)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 * keys {
		r.Access(missratio.Read, missratio.Hash(random.Uint64N(keys)), size)
	}
	return Question{
		Model: r.Sampler.Model(), Threads: 2, Data: keys * size,
		Times:  Times{Memory: Time{0.1, 0.1}, Cache: Time{0.2, 0.2}, Redy: Time{1, 5}, SSD: Time{10, 100}},
		Prices: Prices{Memory: 1, Redy: 0.2, SSD: 0.01},
	}
}

// TestAsk: the advice meets the goal, and less of anything does not.
func TestAsk(t *testing.T) {
	q := question()
	for name, goal := range map[string]Goal{"throughput": {Mops: 1}, "latency": {Latency: 8}, "both": {Mops: 2, Latency: 4}} {
		q.Goal = goal
		a, err := Ask(q)
		if err != nil {
			t.Fatal(err)
		}
		if !a.Advice.Meets || a.Advice.What != Advice {
			t.Errorf("%s: %+v", name, a.Advice)
		}
		for _, s := range a.Steps {
			less := strings.HasPrefix(s.What, "less")
			if less != (s.Cost < a.Advice.Cost) {
				t.Errorf("%s: %s costs %g, the advice %g", name, s.What, s.Cost, a.Advice.Cost)
			}
		}
		for i, s := range a.Frontier {
			if i > 0 && (s.Cost < a.Frontier[i-1].Cost || s.Mops < a.Frontier[i-1].Mops) {
				t.Errorf("%s: the frontier falls at %+v", name, s)
			}
			if s.Meets && s.Cost < a.Advice.Cost {
				t.Errorf("%s: %+v is cheaper than %+v", name, s, a.Advice)
			}
		}
	}
}

// TestPrices: what is cheap is chosen.
func TestPrices(t *testing.T) {
	q := question()
	q.Goal = Goal{Mops: 1}
	a, err := Ask(q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Advice.Redy == 0 {
		t.Errorf("cheap Redy is not used: %+v", a.Advice)
	}
	q.Prices.Redy = 100
	if a, err = Ask(q); err != nil {
		t.Fatal(err)
	}
	if a.Advice.Redy != 0 || !a.Advice.Meets {
		t.Errorf("dear Redy: %+v", a.Advice)
	}
}

// TestImpossible: the setting that comes nearest is named as such.
func TestImpossible(t *testing.T) {
	q := question()
	q.Goal = Goal{Mops: 1000}
	a, err := Ask(q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Advice.Meets || a.Advice.What != Best || a.Advice.InMemory < 0.95 {
		t.Errorf("%+v", a.Advice)
	}
	var table, lines, picture bytes.Buffer
	for _, write := range []func() error{
		func() error { return a.WriteTable(&table) }, func() error { return a.WriteJSON(&lines) }, func() error { return a.WritePlot(&picture) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(table.String(), "No setting meets the goal") || !strings.Contains(lines.String(), `"redy_bytes"`) || !strings.Contains(picture.String(), "<svg") {
		t.Errorf("%s\n%s", table.String(), lines.String())
	}
}

// TestBadQuestions checks the errors.
func TestBadQuestions(t *testing.T) {
	for want, change := range map[string]func(*Question){
		"no model": func(q *Question) { q.Model = nil },
		"threads":  func(q *Question) { q.Threads = 0 },
		"neither":  func(q *Question) { q.Goal = Goal{} },
		"prices":   func(q *Question) { q.Prices.SSD = -1 },
	} {
		q := question()
		q.Goal = Goal{Mops: 1}
		change(&q)
		if _, err := Ask(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
