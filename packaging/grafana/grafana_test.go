// Package grafana_test compares the dashboards and alerts with the metrics there are.
package grafana_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blob"
	bucketprom "github.com/redykv/redykv/device/blob/prom"
	"github.com/redykv/redykv/kv"
	storeprom "github.com/redykv/redykv/kv/prom"
	"github.com/redykv/redykv/kv/resp"
	serverprom "github.com/redykv/redykv/kv/resp/prom"
	"github.com/redykv/redykv/manager"
	managerprom "github.com/redykv/redykv/manager/prom"
)

// expression is one of a dashboard or an alert.
type expression struct{ where, text string }

// dashboard has the parts of a dashboard that are checked.
type dashboard struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID          int
		Title       string
		Description string
		Datasource  struct{ UID string }
		GridPos     struct{ X, Y, W, H int }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct{ RefID, Expr, LegendFormat string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("dashboards %q, %v", files, err)
	}
	all := make(map[string]dashboard)
	for _, file := range files {
		data, err := os.ReadFile(file)
		var d dashboard
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
	}
	return all
}

// expressions returns those of all files.
func expressions(t *testing.T) (all []expression) {
	t.Helper()
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, expression{file + ": " + p.Title, strings.ReplaceAll(target.Expr, "$job", ".*")})
			}
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	data, err := os.ReadFile("alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &alerts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			all = append(all, expression{r.Alert, r.Expr})
		}
	}
	return all
}

// source has one of everything that is a label.
type source struct{}

func (source) Metrics() kv.Metrics {
	return kv.Metrics{Device: kv.DeviceMetrics{Tiers: make([]device.TierMetrics, 1)}}
}

type bucket struct{}

func (bucket) Status() blob.Status { return blob.Status{} }

type server struct{}

func (server) Metrics() resp.Metrics           { return resp.Metrics{} }
func (server) Commands() []resp.CommandMetrics { return make([]resp.CommandMetrics, 1) }

type service struct{}

func (service) Metrics() manager.Metrics {
	d := manager.Durations{Bounds: []time.Duration{0}, Counts: []uint64{0}}
	return manager.Metrics{
		VMs:   []manager.VMCount{{State: "up", Type: "a"}, {State: "warm", Type: "a"}},
		Named: make([]manager.VMName, 1), BrokenCaches: make([]string, 1), NoticeLeft: d, Commits: d, Calls: []manager.CallDurations{{Durations: d}},
	}
}

// metrics returns what a store, its server and bucket, and a manager export.
func metrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range []prometheus.Collector{
		storeprom.NewCollector(source{}, nil), serverprom.NewCollector(server{}, nil), managerprom.NewCollector(service{}),
		bucketprom.NewCollector(bucket{}, nil),
	} {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		all[f.GetName()] = f
		if f.GetType() == dto.MetricType_HISTOGRAM {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				all[f.GetName()+part] = f
			}
		}
	}
	return all
}

// labels returns the values of a family's labels, by name. Prometheus adds job and instance.
func labels(f *dto.MetricFamily) map[string][]string {
	all := map[string][]string{"job": {"any"}, "instance": {"any"}}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			all[l.GetName()] = append(all[l.GetName()], l.GetValue())
		}
	}
	if f.GetType() == dto.MetricType_HISTOGRAM {
		all["le"] = []string{"0"}
	}
	return all
}

var (
	selector = regexp.MustCompile(`(redykv_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z]+)(=~|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// Each metric of an expression exists and has the labels; some value of a label is selected.
func TestExpressions(t *testing.T) {
	known := metrics(t)
	for _, e := range expressions(t) {
		found := selector.FindAllStringSubmatch(e.text, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %s", e.where, e.text)
		}
		grouped := make(map[string]bool) // by the labels of all its metrics
		for _, m := range found {
			f := known[m[1]]
			if f == nil || f.GetType() == dto.MetricType_HISTOGRAM && f.GetName() == m[1] {
				t.Errorf("%s: there is no metric %s", e.where, m[1])
				continue
			}
			values := labels(f)
			for name := range maps.Keys(values) {
				grouped[name] = true
			}
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				value, err := regexp.Compile("^(?:" + l[3] + ")$")
				if l[2] == "=" {
					value, err = regexp.MustCompile("^"+regexp.QuoteMeta(l[3])+"$"), nil
				}
				if err != nil || !slices.ContainsFunc(values[l[1]], value.MatchString) {
					t.Errorf("%s: %s has no label %s with a value like %q, %v", e.where, m[1], l[1], l[3], err)
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(e.text, -1) {
			for _, name := range strings.Split(g[1], ", ") {
				if !grouped[name] {
					t.Errorf("%s: no metric has a label %s", e.where, name)
				}
			}
		}
	}
}

// Panels do not overlap, and say what they show.
func TestDashboards(t *testing.T) {
	for file, d := range dashboards(t) {
		taken, ids := make(map[[2]int]string), make(map[int]bool)
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || ids[p.ID] || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: panel %+v is not whole, or its id is taken", file, p)
			}
			ids[p.ID] = true
			g := p.GridPos
			if g.X < 0 || g.X+g.W > 24 || g.W < 1 || g.H < 1 {
				t.Errorf("%s: %s is at %+v of 24 columns", file, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %s and %s overlap", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Prometheus accepts the alerts, and all expressions.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("Debian's package prometheus has it: %v", err)
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	var rules []rule
	for i, e := range expressions(t) {
		rules = append(rules, rule{"expression:" + string(rune('a'+i/26)) + string(rune('a'+i%26)), e.text})
	}
	data, err := yaml.Marshal(map[string][]group{"groups": {{"all", rules}}})
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtool, "check", "rules", "alerts.yaml", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
