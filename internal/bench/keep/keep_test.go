package keep

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

func TestSpecCheck(t *testing.T) {
	good := Spec{Disturbances: Disturbances, Caches: 3, Measure: time.Second, Window: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Spec){
		"no disturbances": func(s *Spec) { s.Disturbances = nil },
		"0 caches":        func(s *Spec) { s.Caches = 0 },
		"a lease of -1s":  func(s *Spec) { s.Lease = -time.Second },
		"windows of 0s":   func(s *Spec) { s.Window = 0 },
		"then 1ms":        func(s *Spec) { s.Measure = time.Millisecond },
	} {
		s := good
		spoil(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The model says that the SLO is met with a queue depth of 4, and at twice the round trip of 8.
func TestNetworkModel(t *testing.T) {
	m, err := networkModel()
	if err != nil {
		t.Fatal(err)
	}
	least := map[float64]int{1: 0, 2: 0} // queue depth that suffices with a margin, by how slow the network is
	for _, p := range m.Measurements[0].Points {
		for slow, q := range least {
			if p.C == 1 && q == 0 && p.Read.Mops*1e6/slow >= slo.MinThroughput*1.1 {
				least[slow] = p.Q
			}
		}
	}
	if least[1] != 4 || least[2] != 8 {
		t.Errorf("queue depths %v", least)
	}
}

func TestReport(t *testing.T) {
	r := &Report{Rows: []Row{
		{Disturbance: Network, Loop: "off", Windows: 40, Kept: 0}, {Disturbance: Network, Loop: "on", Windows: 40, Kept: 39, Share: 0.975, Changes: 1},
	}}
	var table, lines bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "0.975") {
		t.Errorf("%s, %v", table.String(), err)
	}
	if err := r.WriteJSON(&lines); err != nil || !strings.Contains(lines.String(), `{"disturbance":"network","loop":"on","before":0,"windows":40,"kept":39,"share":0.975,"changes":1}`) {
		t.Errorf("%s, %v", lines.String(), err)
	}
	if svg := string(r.Plot()); !strings.Contains(svg, "<svg") || !strings.Contains(svg, "1: network") {
		t.Error(svg)
	}
}
