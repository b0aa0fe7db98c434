package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

const childVariable = "REDYKV_BENCH_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "good":
		fmt.Println("hello")
		fmt.Println("ready: at your service")
		<-UntilEnd(context.Background(), os.Stdin).Done()
		os.Exit(0)
	case "long":
		fmt.Println("ready:", strings.Repeat("x", 1<<20))
		<-UntilEnd(context.Background(), os.Stdin).Done()
		os.Exit(0)
	case "endless":
		for { // it does not end by itself, nor with its standard input
			fmt.Print("ready:", strings.Repeat("x", 1<<20))
		}
	case "bad":
		os.Exit(3)
	}
	testrun.Main(m)
}

func TestChild(t *testing.T) {
	t.Setenv(childVariable, "good")
	c, err := StartChild(t.Context(), io.Discard, "ready:")
	if err != nil {
		t.Fatal(err)
	}
	if c.Ready != "at your service" {
		t.Errorf("ready: %q", c.Ready)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv(childVariable, "long") // its line is longer than a bufio.Scanner's
	if c, err = StartChild(t.Context(), io.Discard, "ready:"); err != nil {
		t.Fatal(err)
	}
	if n := len(c.Ready); n != 1<<20 {
		t.Errorf("ready: %d bytes", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv(childVariable, "endless")
	if _, err := StartChild(t.Context(), io.Discard, "ready:"); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("a child whose line does not end: %v", err)
	}
	t.Setenv(childVariable, "bad")
	if _, err := StartChild(t.Context(), io.Discard, "ready:"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a child that fails: %v", err)
	}
}

// A child that never announces that it is ready is ended when the parent gives up.
func TestChildGivenUp(t *testing.T) {
	t.Setenv(childVariable, "good")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	if _, err := StartChild(ctx, io.Discard, "never:"); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

// loop simulates a queue whose operations complete one by one.
func loop(ctx context.Context, m *Meter, inFlight int, lasts time.Duration) Sample {
	tag, issued := uint64(0), false
	s, _ := m.Run(ctx, inFlight, lasts, func() error {
		tag, issued = (tag+1)%uint64(inFlight), true
		m.Issued(tag)
		return nil
	}, func(context.Context) error {
		m.Completed(tag)
		issued = false
		return nil
	}, func() int {
		if issued {
			return inFlight - 1
		}
		return inFlight
	})
	return s
}

func TestMeter(t *testing.T) {
	m := NewMeter(4)
	for range 3 {
		s := loop(t.Context(), m, 4, 5*time.Millisecond)
		f := s.Figures()
		if s.Operations == 0 || s.Seconds < 0.005 || math.Abs(f.Mops*s.Seconds*1e6/float64(s.Operations)-1) > 1e-6 {
			t.Errorf("%+v", s)
		}
		if math.Abs(f.MeanUs*f.Mops-4) > 1e-6 {
			t.Errorf("mean of %v us at %v Mop/s is not Little's", f.MeanUs, f.Mops)
		}
		if s.latencies.TotalCount() == 0 || f.P50Us > f.P99Us || f.P99Us <= 0 {
			t.Errorf("%d samples, percentiles %v and %v us", s.latencies.TotalCount(), f.P50Us, f.P99Us)
		}
	}
	// Operations take a few nanoseconds, so few may be timed. On a busy machine the thread may
	// be preempted for a whole slice, which makes operations look slow.
	for try := 1; m.gap < 10; try++ {
		if try == 100 {
			t.Fatalf("one of %d operations is timed", m.gap)
		}
		loop(t.Context(), m, 4, 5*time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s := loop(ctx, m, 1, time.Hour); s.Seconds > 60 {
		t.Errorf("a slice under a cancelled context took %v s", s.Seconds)
	}
}

func TestJoin(t *testing.T) {
	m := NewMeter(2)
	one := loop(t.Context(), m, 2, time.Millisecond)
	var all Sample
	all.Join(one)
	all.Join(one)
	if all.Operations != 2*one.Operations || all.InFlight != 4 || all.latencies.TotalCount() != 2*one.latencies.TotalCount() {
		t.Errorf("twice %+v is %+v", one, all)
	}
	if a, b := all.Figures(), one.Figures(); math.Abs(a.MeanUs/b.MeanUs-1) > 1e-6 {
		t.Errorf("mean of two alike %v, of one %v", a.MeanUs, b.MeanUs)
	}
}

// A pool counts every slice for as long as it lasted.
func TestPool(t *testing.T) {
	m := NewMeter(2)
	quick, slow := loop(t.Context(), m, 2, time.Millisecond), loop(t.Context(), m, 2, time.Millisecond)
	quick.Seconds, quick.Mops, quick.Operations, quick.Allocs = 1, 3, 3e6, 1
	slow.Seconds, slow.Mops, slow.Operations, slow.Allocs = 3, 1, 3e6, 2
	all := Pool([]Sample{quick, slow})
	if all.Mops != 1.5 || all.Seconds != 4 || all.Operations != 6e6 || all.InFlight != 2 || all.Allocs != 3 {
		t.Errorf("%+v", all)
	}
	if got, want := all.latencies.TotalCount(), quick.latencies.TotalCount()+slow.latencies.TotalCount(); got != want {
		t.Errorf("%d latencies, want %d", got, want)
	}
	if f := all.Figures(); f.MeanUs != 2/1.5 || f.AllocsPerOp != 3/6e6 {
		t.Errorf("%+v", f)
	}
}

func TestPlan(t *testing.T) {
	var order []int
	samples, err := NewPlan(2, MinDuration).Run(t.Context(), nil, func(_ context.Context, cell, _ int, _ time.Duration) (Sample, error) {
		order = append(order, cell)
		return Sample{Mops: float64(cell*100 + (len(order)*7)%5), Operations: 1}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(order) != 2*(Rounds+1) || order[0] != 0 || order[1] != 1 || order[2] != 0 {
		t.Errorf("cells were measured in the order %v", order)
	}
	if a, b := MedianSample(samples[0]), MedianSample(samples[1]); a.Mops != 2 || b.Mops != 102 {
		t.Errorf("median slices %v and %v", a.Mops, b.Mops)
	}
	if _, err := NewPlan(1, MinDuration).Run(t.Context(), nil, func(context.Context, int, int, time.Duration) (Sample, error) {
		return Sample{}, io.ErrClosedPipe
	}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestMedian(t *testing.T) {
	identity := func(v *float64) float64 { return *v }
	for _, tc := range []struct {
		values                    []float64
		median, by, quarter, most float64
	}{{[]float64{7}, 7, 7, 7, 7}, {[]float64{3, 1, 2}, 2, 2, 1, 3}, {[]float64{4, 1, 3, 2}, 2.5, 2, 1, 4}} {
		if m, by := Median(tc.values), MedianBy(tc.values, identity); m != tc.median || by != tc.by {
			t.Errorf("medians of %v: %v and %v", tc.values, m, by)
		}
		if a, b := Quantile(tc.values, 0.25), Quantile(tc.values, 1); a != tc.quarter || b != tc.most {
			t.Errorf("quantiles of %v: %v and %v", tc.values, a, b)
		}
	}
	slices := func(mops ...float64) (all []Sample) {
		for _, m := range mops {
			all = append(all, Sample{Mops: m})
		}
		return all
	}
	// Of 2, 4 and 0.5: the medians of both are 2, in different rounds. A round without work is left out.
	if got := RatioOfRounds(slices(2, 4, 1, 3), slices(1, 1, 2, 0), Throughput); got != 2 {
		t.Errorf("a ratio of rounds is %v", got)
	}
	if got := RatioOfRounds(slices(1), nil, Throughput); got != 0 {
		t.Errorf("the ratio to nothing is %v", got)
	}
	if !math.IsNaN(Median(nil)) || !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("the median of nothing is a number")
	}
}

func TestWriting(t *testing.T) {
	type row struct {
		Op string `json:"op"`
		Figures
	}
	rows := []row{{"read", Figures{MeanUs: 1.5, Mops: 0.25}}, {"write", Figures{}}}
	var out strings.Builder
	columns := append([]Column[row]{{"op", func(r *row) string { return r.Op }}}, FigureColumns(func(r *row) *Figures { return &r.Figures })...)
	if err := WriteTable(&out, columns, rows); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.Contains(lines[1], "1.500") {
		t.Errorf("table:\n%s", out.String())
	}
	out.Reset()
	if err := WriteJSON(&out, rows); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), `{"op":"read","mean_us":1.5,"p50_us":0,`) || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("JSON:\n%s", out.String())
	}
}
