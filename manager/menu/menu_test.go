package menu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/redykv/redykv/manager/plan"
)

// TestMarket runs the scripts in testdata/market: sales, the fate of sold VMs, and prices,
// on a manual clock.
func TestMarket(t *testing.T) {
	start := time.Unix(0, 0)
	time := newManual(start)
	var m *Market
	heard := &heard{now: func() string { return time.Now().Sub(start).String() }}
	datadriven.RunTest(t, filepath.Join("testdata", "market"), func(t *testing.T, d *datadriven.TestData) string {
		heard.lines = nil
		var err error
		switch d.Cmd {
		case "menu":
			var menu Menu
			if menu, err = Parse([]byte(d.Input)); err == nil {
				m, err = NewMarket(menu, Options{Clock: time, Seed: 1}, heard)
			}
		case "sell":
			err = m.Sell(arg(t, d, "vm"), kindOf(t, d))
		case "resume":
			err = m.Resume(arg(t, d, "vm"), kindOf(t, d))
		case "give-back":
			m.GiveBack(arg(t, d, "vm"))
		case "fail":
			err = m.Fail(arg(t, d, "vm"))
		case "reclaim":
			err = m.Reclaim(arg(t, d, "vm"))
		case "price":
			var dollars float64
			if dollars, err = strconv.ParseFloat(arg(t, d, "to"), 64); err == nil {
				err = m.Change([]Kind{kindOf(t, d)}, Change{Price: new(plan.Dollars(dollars))})
			}
		case "available":
			var n int
			if n, err = strconv.Atoi(arg(t, d, "to")); err == nil {
				err = m.Change([]Kind{kindOf(t, d)}, Change{Available: &n})
			}
		case "advance":
			time.Advance(duration(t, arg(t, d, "by")))
		case "offers":
			var offers []plan.Offer
			region := ""
			d.MaybeScanArgs(t, "region", &region)
			if offers, err = m.Offers(region); err == nil {
				for _, o := range offers {
					heard.lines = append(heard.lines, fmt.Sprintf("%s at distance %d: %v, %d left", o.Name(), o.Distance, o.Price, o.Available))
				}
			}
		case "close":
			m.Close()
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		if err != nil {
			heard.lines = append(heard.lines, "error: "+err.Error())
		}
		return strings.Join(heard.lines, "\n")
	})
}

func arg(t *testing.T, d *datadriven.TestData, name string) (value string) {
	t.Helper()
	d.ScanArgs(t, name, &value)
	return value
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func kindOf(t *testing.T, d *datadriven.TestData) Kind {
	k := Kind{Type: arg(t, d, "type"), Distance: 1, Spot: d.HasArg("spot")}
	d.MaybeScanArgs(t, "region", &k.CloudRegion)
	d.MaybeScanArgs(t, "distance", &k.Distance)
	return k
}

// heard records a market's events, except MarketChanged.
type heard struct {
	now   func() string
	lines []string
}

func (h *heard) note(format string, args ...any) {
	h.lines = append(h.lines, h.now()+": "+fmt.Sprintf(format, args...))
}
func (h *heard) VMReclaimed(id string, notice time.Duration) {
	h.note("%s is reclaimed, notice %v", id, notice)
}
func (h *heard) VMFailed(id string) { h.note("%s failed", id) }
func (h *heard) MarketChanged()     {}

// TestWalk checks a year of a market: prices change and stay within the menu's bounds,
// nothing is sold twice, and the same seed gives the same year.
func TestWalk(t *testing.T) {
	year := func(seed uint64) (all []string) {
		time := newManual(time.Unix(0, 0))
		m, err := NewMarket(Example(), Options{Clock: time, Seed: seed}, &heard{now: func() string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		seen := make(map[plan.Price]bool)
		for range 52 * 7 {
			time.Advance(duration(t, "24h"))
			offers, err := m.Offers("east")
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range offers {
				k, err := m.find(Kind{o.Type, "east", o.Distance, o.Spot})
				if err != nil {
					t.Fatal(err)
				}
				s := k.sold.Spot
				if o.Spot && (o.Price < plan.Dollars(s.Lowest) || o.Price > plan.Dollars(s.Highest)) || !o.Spot && o.Price != plan.Dollars(k.sold.Price) {
					t.Fatalf("%s costs %v", o.Name(), o.Price)
				}
				if o.Available < 0 || o.Available > k.limit {
					t.Fatalf("%d of %s are left, of %d", o.Available, o.Name(), k.limit)
				}
				if o.Type == "large-16g" && o.Spot {
					seen[o.Price] = true
				}
			}
			all = append(all, fmt.Sprint(offers))
		}
		if len(seen) < 100 {
			t.Errorf("%d prices in %d days", len(seen), 52*7)
		}
		return all
	}
	first := year(1)
	if again := year(1); !reflect.DeepEqual(first, again) {
		t.Error("two markets of one seed differ")
	}
	if other := year(2); reflect.DeepEqual(first, other) {
		t.Error("two seeds make the same market")
	}
}

func TestExampleRegions(t *testing.T) {
	if got := Example().Regions(); !reflect.DeepEqual(got, []string{"east", "west"}) {
		t.Errorf("regions %q", got)
	}
	_, err := NewMarket(Example(), Options{CloudRegion: "mars"}, nil)
	var region *RegionError
	if !errors.As(err, &region) || len(region.Known) != 2 {
		t.Errorf("error %v, want one that names the regions", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "menu.json")
	if err := os.WriteFile(path, example, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Load(path)
	if err != nil || !reflect.DeepEqual(m, Example()) {
		t.Errorf("menu %+v, error %v", m, err)
	}
	if _, err := Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v of a menu that is not there", err)
	}
}

// A change of several kinds that is invalid for one of them changes none.
func TestChangeIsWhole(t *testing.T) {
	m, err := NewMarket(Example(), Options{Step: -1}, new(heard))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before, err := m.Offers("")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []Kind
	for _, o := range before {
		kinds = append(kinds, Kind{Type: o.Type, Distance: o.Distance, Spot: o.Spot})
	}
	good := Change{Price: new(plan.Dollars(1)), Available: new(1)}
	for name, change := range map[string]func() error{
		"a kind that there is not": func() error { return m.Change(append(kinds, Kind{Type: "nothing"}), good) },
		"a price below 0":          func() error { return m.Change(kinds, Change{Price: new(plan.Price(-1)), Available: new(1)}) },
		"too many": func() error {
			return m.Change(kinds, Change{Price: new(plan.Dollars(1)), Available: new(maxCount + 1)})
		},
	} {
		if err := change(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := m.Offers(""); err != nil || !slices.Equal(after, before) {
			t.Errorf("%s: %v, %v", name, after, err)
		}
	}
	if err := m.Change(kinds, good); err != nil {
		t.Fatal(err)
	}
	after, err := m.Offers("")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range after {
		if o.Price != plan.Dollars(1) || o.Available != 1 {
			t.Errorf("%+v", o)
		}
	}
}

// A menu that a program makes is checked, too.
func TestMarketOfNothing(t *testing.T) {
	if _, err := NewMarket(Menu{Version: Version}, Options{}, nil); err == nil || !strings.Contains(err.Error(), "0 types") {
		t.Errorf("a market without anything to sell: %v", err)
	}
}

func TestBadMenus(t *testing.T) {
	const sold = `"sold": [{"cloud_region": "east", "price": 1}]`
	menu := func(types string) string { return `{"version": 1, "types": [` + types + `]}` }
	spot := func(s string) string {
		return menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 1, "spot": {` + s + `}}]}`)
	}
	for content, want := range map[string]string{
		``:                                       "EOF",
		`{}`:                                     "version 0: want 1",
		`{"version": 1}`:                         "0 types",
		`{"version": 1, "tpyes": []}`:            "unknown field",
		menu(`{"name": "a"}`) + `true`:           "there is text after its end",
		menu(`{"memory": "1GiB", ` + sold + `}`): "name of 0 bytes",
		menu(`{"name": "a", "memory": "1", ` + sold + `}`):                                                                      "memory 1B: want 4KiB",
		menu(`{"name": "a", "memory": "1XB", ` + sold + `}`):                                                                    "unknown unit",
		menu(`{"name": "a", "memory": "1GiB", "cores": -1, ` + sold + `}`):                                                      "cores -1",
		menu(`{"name": "a", "memory": "1GiB", ` + sold + `}, {"name": "a", "memory": "1GiB", ` + sold + `}`):                    `"a" is listed twice`,
		menu(`{"name": "a", "memory": "1GiB"}`):                                                                                 "sold in 0 places",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"price": 1}]}`):                                                         "cloud_region of 0 bytes",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 1}, {"cloud_region": "e", "price": 2}]}`): "sold twice",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": -1}]}`):                                   "price -1",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 10001}]}`):                                "price 10001",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 1, "distance": 65}]}`):                    "distance 65",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 1, "available": -1}]}`):                   "available -1",
		menu(`{"name": "a", "memory": "1GiB", "sold": [{"cloud_region": "e", "price": 1, "mean_time_to_failure": "x"}]}`):       "invalid duration",
		spot(`"price": 1, "lowest": 2, "highest": 3`):                                                                           "lowest <= price",
		spot(`"price": 1, "lowest": 0, "highest": 3`):                                                                           "above 0",
		spot(`"price": 1, "lowest": 1, "highest": 1, "notice": "25h"`):                                                          "notice 25h",
		spot(`"price": 1, "lowest": 1, "highest": 1, "mean_time_to_reclaim": "-1s"`):                                            "mean_time_to_reclaim -1s",
	} {
		if _, err := Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", content, err, want)
		}
	}
}

// FuzzParse checks that every accepted menu can be encoded, decoded and sold from.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add([]byte(`{"version": 1, "types": [{"name": "a", "memory": "4096", "sold": [{"cloud_region": "e", "price": 0}]}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := Parse(content)
		if err != nil {
			return
		}
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(written); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		time := newManual(time.Unix(0, 0))
		k, err := NewMarket(m, Options{Clock: time}, &heard{now: func() string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		time.Advance(duration(t, "10m"))
		for _, region := range m.Regions() {
			offers, err := k.Offers(region)
			if err != nil {
				t.Fatal(err)
			}
			demand := plan.Demand{RegionSize: 4 << 10, Regions: 1, Configs: map[int]plan.Config{0: {C: 1, B: 1, Q: 1}}, Duration: 1}
			var none *plan.NoneError
			if _, err := plan.Choose(demand, offers, nil, plan.Policy{MigrationRate: 1e9}); err != nil && !errors.As(err, &none) {
				t.Fatal(err)
			}
		}
	})
}
