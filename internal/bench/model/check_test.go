package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
)

// dreamt returns a complete, invented model over mem, of a record size without measurements.
func dreamt(t *testing.T) *model.Model {
	m := model.New(model.Provenance{Transport: "mem", Network: model.NoNetwork, Host: model.ThisHost()})
	n, err := m.Add(&model.Measurement{RecordSize: 2048, Distance: 1, Network: model.NoNetwork, ClientCores: 1, QueueDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := n.Next(); ok; at, ok = n.Next() {
		p := model.Performance{LatencyUs: float64(1 + at.S + at.Q), Mops: float64(at.B * at.Q)}
		if err := n.Report(at, p, p); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func checkSpec() CheckSpec {
	return CheckSpec{
		Setup: Setup{
			Transport: "mem", Net: "none", Capacity: cachebench.MinCapacity, Idle: fabricbench.Wait,
			Slices: MinSlices, Log: slog.New(slog.DiscardHandler),
		},
		RecordSize: 2048, Count: 6, Seed: 1, Margin: 0.1, Duration: MinSlices * bench.MinDuration,
	}
}

// Each SLO that is drawn can be met by the prediction with its margin. The manager's cache has
// the configuration that was found, and is measured.
func TestCheck(t *testing.T) {
	models := []*model.Model{dreamt(t)}
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Models: models, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mgr.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := checkSpec()
	var caches counter
	report, err := Check(t.Context(), mgr, models, spec, &caches)
	if err != nil {
		t.Fatal(err)
	}
	if want := counter(spec.Count); caches != want {
		t.Errorf("%d caches were measured, want %d", caches, want)
	}
	if len(report.Rows) != spec.Count {
		t.Errorf("%d rows, want %d", len(report.Rows), spec.Count)
	}
	configs := map[model.Config]bool{}
	for _, row := range report.Rows {
		configs[row.Config] = true
		if row.PredictedLatencyUs > row.SLOLatencyUs*0.9 || row.PredictedMops < row.SLOMops*1.1 || row.MeasuredMops <= 0 || row.Leaves < 1 || row.SearchUs <= 0 {
			t.Errorf("%+v", row)
		}
		if kept := row.Kept(); kept != (row.Reason == "") || row.RawMops <= 0 || row.Processors < 0 {
			t.Errorf("kept %v: %+v", kept, row)
		}
	}
	if len(configs) < 2 {
		t.Errorf("all SLOs get %v", configs)
	}
	again, err := Check(t.Context(), mgr, models, spec, nil)
	if err != nil || again.Rows[3].SLOMops != report.Rows[3].SLOMops || again.Impossible != report.Impossible {
		t.Errorf("the same seed draws other SLOs: %v", err)
	}

	var table, lines bytes.Buffer
	if err := errors.Join(report.WriteTable(&table), report.WriteJSON(&lines)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 SLOs (seed 1;", "50 %", "transport alone Mop/s", "latency within the SLO: ", "not kept: ", "of 12 configurations"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for line := range bytes.Lines(lines.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"slo_latency_us", "slo_mops", "predicted_latency_us", "predicted_mops", "measured_latency_us", "measured_mops", "c", "s", "b", "q", "search_us", "leaves", "raw_mops", "processors"} {
			if _, ok := fields[name]; !ok {
				t.Errorf("no %s in %s", name, line)
			}
		}
	}
}

// counter adds up the progress.
type counter int64

func (c *counter) Begin(string, int64) {}
func (c *counter) Add(n int64)         { *c += counter(n) }
func (c *counter) End()                {}

// Check detects a manager that chooses other configurations.
func TestCheckOfAnotherManager(t *testing.T) {
	other := dreamt(t)
	n := other.Measurements[0]
	n.Points, n.Opt = nil, 0
	for at, ok := n.Next(); ok; at, ok = n.Next() { // only the greatest queue depth performs well
		p := model.Performance{LatencyUs: 0.5, Mops: 1e-3}
		if at.Q == 4 {
			p.Mops = 1e3
		}
		if err := n.Report(at, p, p); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Models: []*model.Model{other}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mgr.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := Check(t.Context(), mgr, []*model.Model{dreamt(t)}, checkSpec(), nil); err == nil {
		t.Error("a manager with another model is taken for one with this")
	}
}

// A check uses the first model of its transport, and measures apart as that model did.
func TestApart(t *testing.T) {
	of := func(transport string, apart bool) *model.Model {
		m := dreamt(t)
		m.Provenance.Transport, m.Provenance.Apart = transport, apart
		return m
	}
	models := []*model.Model{of("shm", false), of("tcp", true), of("tcp", false), of("shm", true)}
	for transport, want := range map[string]bool{"shm": false, "tcp": true, "mem": false} {
		spec := checkSpec()
		spec.Transport = transport
		if got, err := Apart(models, spec); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", transport, got, err, want)
		}
	}
	if _, err := Apart(append(models, new(model.Model)), checkSpec()); err == nil {
		t.Error("a model that nobody wrote is taken")
	}
	_, _, err := affinity.Halves()
	for _, c := range []struct {
		transport string
		idle      fabricbench.Idle
		cores     int
		want      bool
	}{
		{"mem", fabricbench.Wait, 1, false},
		{"shm", fabricbench.Poll, 1, false},
		{"tcp", fabricbench.Wait, 1000, false},
		{"tcp", fabricbench.Wait, 1, err == nil},
	} {
		if got := DefaultApart(c.transport, c.idle, c.cores); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// An SLO is kept by all that it asks for, and not by a part of it.
func TestVerdict(t *testing.T) {
	r := &CheckReport{Rows: []CheckRow{
		{SLOLatencyUs: 10, SLOMops: 1, PredictedLatencyUs: 8, PredictedMops: 1.1, MeasuredLatencyUs: 10, MeasuredMops: 1},
		{SLOLatencyUs: 10, SLOMops: 1, PredictedLatencyUs: 8, PredictedMops: 1.1, MeasuredLatencyUs: 10.1, MeasuredMops: 1.1},
		{SLOLatencyUs: 10, SLOMops: 1, PredictedLatencyUs: 8, PredictedMops: 1.1, MeasuredLatencyUs: 4, MeasuredMops: 0.99},
	}}
	v := r.Verdict()
	if v.Latency != 2 || v.Mops != 2 || v.Both != 1 || math.Abs(v.LatencyMiss-0.2625) > 1e-9 || math.Abs(v.MopsMiss-0.1/1.1) > 1e-9 {
		t.Errorf("%+v", v)
	}
	if v.LatencyMost != 0.5 || math.Abs(v.MopsMost-0.1) > 1e-9 {
		t.Errorf("errors of the prediction of 95 %%: %+v", v)
	}
	// The second row's latency is 26 % above its prediction, the third one's throughput 10 %
	// below: an SLO is met with a margin of 1-8/10.1 and 1.1/0.99-1.
	if math.Abs(v.MostMargin-(1-8/10.1)) > 1e-9 || v.CommonMargin != v.MostMargin {
		t.Errorf("margins %g and %g", v.CommonMargin, v.MostMargin)
	}
}

// An SLO that is missed is the model's, unless the machine, or what others leave of it, has become slower
// by more than the margin. One that is kept is kept all the same.
func TestReasons(t *testing.T) {
	began := Conditions{RawMops: 10, Processors: 2}
	kept := CheckRow{SLOLatencyUs: 10, SLOMops: 1, MeasuredLatencyUs: 10, MeasuredMops: 1}
	slow, few := kept, kept
	slow.MeasuredLatencyUs, few.MeasuredMops = 10.1, 0.9
	report := &CheckReport{}
	for _, tc := range []struct {
		row  CheckRow
		now  Conditions
		want string
	}{
		{kept, began, ""},
		{kept, Conditions{RawMops: 1, Processors: 0.1}, ""},
		{slow, began, ReasonModel},
		{few, Conditions{RawMops: 20, Processors: 2}, ReasonModel},
		{few, Conditions{RawMops: 9, Processors: 1.8}, ReasonModel}, // within the margin
		{few, Conditions{RawMops: 8.9, Processors: 2}, ReasonMachine},
		{slow, Conditions{RawMops: 10, Processors: 1.7}, ReasonNeighbour},
		{slow, Conditions{RawMops: 5, Processors: 1.7}, ReasonNeighbour}, // who takes processors slows the transport, too
	} {
		row := tc.row
		row.Conditions = tc.now
		if row.judge(began, 0.1); row.Reason != tc.want {
			t.Errorf("%+v: %q, want %q", tc, row.Reason, tc.want)
		}
		report.Rows = append(report.Rows, row)
	}
	v := report.Verdict()
	if v.Both != 2 || v.Model != 3 || v.Machine != 1 || v.Neighbour != 2 || v.Judged() != 5 {
		t.Errorf("%+v", v)
	}
	unknown := CheckRow{SLOLatencyUs: 1, MeasuredLatencyUs: 2}
	if unknown.judge(Conditions{RawMops: 1}, 0.1); unknown.Reason != ReasonMachine { // processors are not known
		t.Errorf("%+v", unknown)
	}
}

func TestYardstick(t *testing.T) {
	for _, name := range []string{"mem", "tcp"} {
		spec := checkSpec()
		spec.Transport = name
		y, err := newYardstick(t.Context(), &spec)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if c, err := y.measure(t.Context()); err != nil || c.RawMops <= 0 || c.Processors < 0 || c.Processors > 1.1*float64(runtime.GOMAXPROCS(0)) {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
		}
		if err := y.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckSpecCheck(t *testing.T) {
	for name, change := range map[string]func(*CheckSpec){
		"network":  func(s *CheckSpec) { s.Net = "slow" },
		"record":   func(s *CheckSpec) { s.RecordSize = 0 },
		"count":    func(s *CheckSpec) { s.Count = 0 },
		"capacity": func(s *CheckSpec) { s.Capacity = 1 },
		"slices":   func(s *CheckSpec) { s.Slices = 2 },
		"duration": func(s *CheckSpec) { s.Duration = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := checkSpec()
			change(&s)
			if s.Check() == nil {
				t.Errorf("%+v is taken", s)
			}
		})
	}
	if _, err := Check(t.Context(), nil, nil, checkSpec(), nil); !errors.Is(err, model.ErrNoModel) {
		t.Errorf("without a model: %v", err)
	}
}
