package model

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// embed starts a manager whose cache servers are in this process.
func embed(t *testing.T) *manager.Embedded {
	m, err := manager.Embed(t.Context(), manager.EmbedOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func buildSpec() BuildSpec {
	return BuildSpec{
		Setup: Setup{
			Transport: "mem", Net: "1:none;3:20us,100Gbit", Capacity: cachebench.MinCapacity, Idle: fabricbench.Wait,
			Slices: MinSlices, Log: slog.New(slog.DiscardHandler),
		},
		Distances: []int{1, 3}, RecordSizes: []int{2048, 4096}, ClientCores: 2, QueueDepth: 2, PerPoint: MinSlices * bench.MinDuration,
	}
}

// An interrupted build continues from its file and measures nothing twice. Its model answers
// SLOs at both distances.
func TestBuild(t *testing.T) {
	mgr, spec := embed(t), buildSpec()
	path := filepath.Join(t.TempDir(), "m.json")
	m := model.New(spec.Provenance())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const stop = 5
	saved := 0
	err := Build(ctx, mgr, m, spec, func() error {
		if saved++; saved == stop {
			cancel()
		}
		return m.Save(path)
	}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted after %d configurations: %v", saved, err)
	}
	if m, err = model.Load(path); err != nil {
		t.Fatal(err)
	}
	first := slices.Clone(m.Measurements[0].Points)
	if len(first) != stop {
		t.Fatalf("%d configurations were saved, want %d", len(first), stop)
	}
	again := buildSpec()
	again.Transport = "shm"
	if err := Build(t.Context(), mgr, m, again, nil, nil); err == nil || !strings.Contains(err.Error(), "transport mem") {
		t.Errorf("another transport goes on with it: %v", err)
	}
	m.Provenance.Apart = true // although this is impossible over mem
	if err := Build(t.Context(), mgr, m, spec, nil, nil); err == nil || !strings.Contains(err.Error(), "clients and servers apart, and this is") {
		t.Errorf("clients and servers on the same processors go on with it: %v", err)
	}
	m.Provenance.Apart = false
	if err := Build(t.Context(), mgr, m, spec, func() error { return m.Save(path) }, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.Measurements[0].Points[:stop], first) {
		t.Error("what was saved was measured again")
	}
	library, err := model.NewLibrary(m)
	if err != nil {
		t.Fatal(err)
	}
	for distance, network := range map[int]string{1: "none", 3: "20us,100Gbit"} {
		found, err := library.Search(model.Query{
			RecordSize: 4096, Transport: "mem",
			Network: func(int) string { return network },
		})
		if err != nil || found[distance].Predicted.Mops <= 0 {
			t.Errorf("at distance %d: %+v, %v", distance, found[distance], err)
		}
		if distance == 3 && found[3].Predicted.LatencyUs < 20 {
			t.Errorf("behind a network of 20 us a latency of %v us", found[3].Predicted.LatencyUs)
		}
	}
	checkOutput(t, m)
}

// checkOutput checks the table and the plot of a model with four measurements.
func checkOutput(t *testing.T, m *model.Model) {
	var summary, points bytes.Buffer
	if err := errors.Join(WriteSummary(&summary, m), WritePoints(&points, m)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(summary.String(), "\n"); n != 1+len(m.Measurements) {
		t.Errorf("summary:\n%s", summary.String())
	}
	if want := "2KiB         1  1,0,1,1"; !strings.Contains(points.String(), want) {
		t.Errorf("no %q in\n%s", want, points.String())
	}
	svg, err := Plot(m)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
	for _, want := range []string{"distance 3, records of 4KiB", "one-sided", "batches"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the plot says nothing of %q", want)
		}
	}
	if _, err := Plot(model.New(m.Provenance)); err == nil {
		t.Error("nothing is plotted")
	}
}

func TestBuildSpecCheck(t *testing.T) {
	for name, change := range map[string]func(*BuildSpec){
		"network":      func(s *BuildSpec) { s.Net = "slow" },
		"no distances": func(s *BuildSpec) { s.Distances = nil },
		"distance":     func(s *BuildSpec) { s.Distances = []int{0} },
		"record":       func(s *BuildSpec) { s.RecordSizes = []int{0} },
		"large record": func(s *BuildSpec) { s.RecordSizes = []int{cachebench.MaxSize + 1} },
		"no cores":     func(s *BuildSpec) { s.ClientCores = 0 },
		"queue depth":  func(s *BuildSpec) { s.QueueDepth = 1 << 20 },
		"depth":        func(s *BuildSpec) { s.RecordSizes, s.QueueDepth = []int{1}, 16 },
		"threads":      func(s *BuildSpec) { s.Threads = -1 },
		"capacity":     func(s *BuildSpec) { s.Capacity = 1 },
		"slices":       func(s *BuildSpec) { s.Slices = 2 },
		"time":         func(s *BuildSpec) { s.PerPoint = time.Millisecond },
		"apart":        func(s *BuildSpec) { s.Apart, s.ClientCores = true, 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			s := buildSpec()
			change(&s)
			if s.Check() == nil {
				t.Errorf("%+v is taken", s)
			}
		})
	}
}
