package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
	"github.com/redykv/redykv/internal/units"
)

// TestPlan runs the scripts in testdata: a menu, the servers, and the plan chosen from
// them.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "menu":
				w.offers = nil
				for line := range strings.Lines(d.Input) {
					w.offers = append(w.offers, offerOf(t, strings.Fields(line)))
				}
			case "servers":
				w.servers = nil
				for line := range strings.Lines(d.Input) {
					w.servers = append(w.servers, serverOf(t, strings.Fields(line)))
				}
			case "policy":
				w.policy = Policy{}
				var room uint64
				scan(t, strings.Fields(d.Input), map[string]any{
					"vms": &w.policy.MaxVMs, "rate": &w.policy.MigrationRate, "provision": &w.policy.Provision,
					"margin": &w.policy.Margin, "lifetime": &w.policy.MinLifetime, "room": &room,
				})
				if room > 0 {
					w.policy.Room = &room
				}
			case "plan":
				return w.plan(t, strings.Fields(d.Input))
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			return ""
		})
	})
}

type script struct {
	offers  []Offer
	servers []Server
	policy  Policy
}

func (w *script) plan(t *testing.T, words []string) string {
	d := Demand{RegionSize: 1 << 30, Transport: "shm", Configs: make(map[int]Config)}
	var configs string
	scan(t, words, map[string]any{
		"regions": &d.Regions, "per": &d.Per, "distance": &d.Distance, "duration": &d.Duration, "configs": &configs,
	})
	for text := range strings.SplitSeq(configs, ";") {
		var at int
		var c Config
		if _, err := fmt.Sscanf(text, "%d:%d,%d,%d,%d", &at, &c.C, &c.S, &c.B, &c.Q); err != nil {
			t.Fatalf("configuration %q: %v", text, err)
		}
		d.Configs[at] = c
	}
	p, err := Choose(d, w.offers, w.servers, w.policy)
	var none *NoneError
	if errors.As(err, &none) {
		return fmt.Sprintf("none: %v could be had\n\n%v", units.Size(none.Available), none.Explanation)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v at distance %s\n", p.Price, unknown(p.Distance))
	for _, part := range p.Parts {
		name := "launch "
		if part.Offer >= 0 {
			name += w.offers[part.Offer].Name()
		} else {
			name = "server " + w.servers[part.Server].ID
		}
		fmt.Fprintf(&b, "  %s: %s, %s, %v\n", name, count(part.Regions, "region"), count(part.Cores, "core"), part.Price)
	}
	return b.String() + "\n" + p.Explanation.String()
}

func offerOf(t *testing.T, words []string) Offer {
	o := Offer{Type: words[0], Available: -1}
	scan(t, words[1:], map[string]any{
		"memory": &o.Memory, "cores": &o.Cores, "price": &o.Price, "distance": &o.Distance, "available": &o.Available,
		"spot": &o.Spot, "notice": &o.Notice, "lifetime": &o.Lifetime, "warm": &o.Warm, "ready": &o.Ready, "fitted": &o.Fitted,
	})
	return o
}

func serverOf(t *testing.T, words []string) Server {
	s := Server{ID: words[0], Transport: "shm"}
	scan(t, words[1:], map[string]any{
		"memory": &s.Memory, "free": &s.Free, "cores": &s.Cores, "price": &s.Price, "distance": &s.Distance,
		"transport": &s.Transport, "fresh": &s.Fresh,
	})
	s.Free = cmp.Or(s.Free, s.Memory)
	return s
}

// scan parses words such as memory=16GiB and spot into the variables that they name.
func scan(t *testing.T, words []string, into map[string]any) {
	t.Helper()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch v := into[name].(type) {
		case *bool:
			*v = true
		case *int:
			*v, err = strconv.Atoi(value)
		case *string:
			*v = value
		case *time.Duration:
			*v, err = time.ParseDuration(value)
		case *uint64:
			var size units.Size
			size, err = units.ParseSize(value)
			*v = uint64(size)
		case *float64:
			var size units.Size
			size, err = units.ParseSize(value)
			*v = float64(size)
		case *Price:
			var dollars float64
			dollars, err = strconv.ParseFloat(value, 64)
			*v = Dollars(dollars)
		default:
			t.Fatalf("%q: no such word", word)
		}
		if err != nil {
			t.Fatalf("%q: %v", word, err)
		}
	}
}

// TestCheapest compares plans with an exhaustive search, on small menus.
func TestCheapest(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		d := Demand{RegionSize: 1 << 20, Regions: rapid.IntRange(1, 12).Draw(t, "regions"), Configs: make(map[int]Config), Duration: time.Hour}
		for _, at := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 3}), 1, 3, rapid.ID[int]).Draw(t, "distances") {
			c := rapid.IntRange(1, 4).Draw(t, "c")
			d.Configs[at] = Config{C: c, S: rapid.IntRange(0, c).Draw(t, "s"), B: 1, Q: 1}
		}
		offers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Offer {
			return Offer{
				Type: rapid.StringMatching("[a-d]").Draw(t, "type"), Memory: rapid.Uint64Range(0, 10<<20).Draw(t, "memory"),
				Cores: rapid.IntRange(0, 4).Draw(t, "cores"), Price: Price(rapid.IntRange(0, 5).Draw(t, "price")),
				Distance: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "distance"), Available: rapid.IntRange(-1, 3).Draw(t, "available"),
				Spot: rapid.Bool().Draw(t, "spot"), Notice: time.Duration(rapid.IntRange(0, 8).Draw(t, "notice")) * time.Second,
			}
		}), 0, 4).Draw(t, "offers")
		servers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Server {
			memory := rapid.Uint64Range(1<<20, 8<<20).Draw(t, "memory")
			return Server{
				ID: "s", Memory: memory, Free: rapid.Uint64Range(0, memory).Draw(t, "free"), Cores: rapid.IntRange(0, 4).Draw(t, "cores"),
				Price: Price(rapid.IntRange(0, 9).Draw(t, "price")), Distance: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "distance"),
			}
		}), 0, 4).Draw(t, "servers")
		policy := Policy{
			MigrationRate: 1 << 20, Provision: time.Second,
			MaxVMs: rapid.SampledFrom([]int{1, 2, 3, 4, 6, 48}).Draw(t, "most VMs"),
		}
		if rapid.Bool().Draw(t, "limited") {
			policy.Room = new(uint64(rapid.IntRange(0, 80<<18).Draw(t, "room")))
			made := len(offers) > 0 && rapid.IntRange(0, 3).Draw(t, "made to measure") == 0
			for i := range offers {
				o := &offers[i]
				o.Memory = o.Memory >> 18 << 18 // all sizes are multiples of the unit, so none is rounded
				if !made && o.Available > 0 {
					o.Ready = rapid.IntRange(0, o.Available).Draw(t, "ready")
				}
				if made {
					o.Fitted, o.Cores, o.Memory = true, 4, max(1<<18, o.Memory)
				}
			}
		}

		p, err := Choose(d, offers, servers, policy)
		want := never
		for at := range map[int]bool{d.nearest(): true, 1: true, 3: true} {
			want = min(want, tryAll(d, at, offers, servers, policy))
		}
		var none *NoneError
		switch {
		case err != nil && !errors.As(err, &none):
			t.Fatal(err)
		case err != nil && want != never:
			t.Fatalf("none found (%v), but %v is possible", err, want.price())
		case err == nil && policy.Room != nil && policy.MaxVMs < 48 && costOf(p.Price, len(p.Parts)) >= want:
			checkParts(t, d, offers, servers, policy, p) // with both limits the plan need not be the cheapest
		case err == nil && (want.price() != p.Price || want.vms() != len(p.Parts)):
			t.Fatalf("%v with %d VMs, but %v with %d is possible", p.Price, len(p.Parts), want.price(), want.vms())
		case err == nil:
			checkParts(t, d, offers, servers, policy, p)
		}
		if none != nil {
			checkAvailable(t, none, d, offers, servers, policy)
		}
	})
}

// checkAvailable checks that what is reported as available can be had, and nothing between
// that and the demand.
func checkAvailable(t *rapid.T, none *NoneError, d Demand, offers []Offer, servers []Server, p Policy) {
	most := int(none.Available / d.RegionSize)
	if most >= d.Regions {
		t.Fatalf("refused, though %d of %d bytes are available", none.Available, none.Asked)
	}
	whole := d.Per == 0 || d.Per == d.Regions
	for n := max(1, most); n < d.Regions; n++ {
		less := d
		less.Regions = n
		if whole {
			less.Per = n
		}
		if _, err := Choose(less, offers, servers, p); (err == nil) != (n == most) {
			t.Fatalf("%d regions refused with %d available, for %d the error is %v", d.Regions, most, n, err)
		}
	}
}

// TestAvailable checks this where the threads of a cache are the limit, with servers and VM
// types.
func TestAvailable(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		c := rapid.IntRange(1, 6).Draw(t, "c")
		d := Demand{
			RegionSize: 1, Regions: rapid.IntRange(2, 40).Draw(t, "regions"), Duration: time.Hour,
			Configs: map[int]Config{0: {c, rapid.IntRange(0, c).Draw(t, "s"), 1, 16}},
		}
		if rapid.Bool().Draw(t, "part") {
			d.Per = rapid.IntRange(1, 40).Draw(t, "per")
		}
		servers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Server {
			memory := rapid.Uint64Range(1, 20).Draw(t, "memory")
			return Server{ID: "s", Free: memory, Memory: memory, Cores: rapid.IntRange(0, 4).Draw(t, "cores")}
		}), 0, 3).Draw(t, "servers")
		offers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Offer {
			return Offer{
				Type: "x", Memory: rapid.Uint64Range(1, 8).Draw(t, "memory"), Cores: rapid.IntRange(0, 3).Draw(t, "cores"),
				Available: rapid.IntRange(-1, 2).Draw(t, "available"), Warm: rapid.IntRange(0, 1).Draw(t, "warm"),
				Spot: rapid.Bool().Draw(t, "spot"), Notice: time.Duration(rapid.IntRange(0, 8).Draw(t, "notice")) * time.Second,
			}
		}), 0, 2).Draw(t, "offers")
		p := Policy{MaxVMs: 3, MigrationRate: 1, Provision: time.Second}
		if rapid.Bool().Draw(t, "limited") {
			p.Room = new(rapid.Uint64Range(0, 30).Draw(t, "room"))
		}
		_, err := Choose(d, offers, servers, p)
		var none *NoneError
		if errors.As(err, &none) {
			checkAvailable(t, none, d, offers, servers, p)
		} else if err != nil {
			t.Fatal(err)
		}
	})
}

// TestShortExplanation checks that an explanation is short, however many servers and VM types
// there are, and accounts for each of them.
func TestShortExplanation(t *testing.T) {
	var servers []Server
	for i := range 5000 {
		servers = append(servers, Server{
			ID: fmt.Sprint(i), Memory: 64 << 30, Free: uint64(1+i%16) << 30, Cores: i % 9, Price: Price(100_000 + 37*i), Distance: 1 + i%3,
			Transport: []string{"tcp", "tcp", "shm"}[i%3],
		})
	}
	var offers []Offer
	for i := range 500 {
		offers = append(offers, Offer{
			Type: fmt.Sprint("type-", i), Memory: uint64(1+i) << 30, Cores: i % 9, Distance: 1 + i%4, Price: Price(1000 * i), Available: i%5 - 1,
		})
	}
	pool := poolOf(t, servers)
	for _, regions := range []int{1, 40, 300, maxRegions} {
		d := Demand{RegionSize: 1 << 30, Regions: regions, Transport: "tcp", Configs: map[int]Config{
			1: {C: 2, S: 2, B: 1, Q: 16}, 2: {C: 4, S: 2, B: 1, Q: 16}, 3: {C: 4, S: 4, B: 1, Q: 16},
		}}
		c, err := pool.Candidates(d, Policy{}, nil, noon)
		if err != nil {
			t.Fatal(err)
		}
		among := map[string]func() (*Plan, error){
			"all":        func() (*Plan, error) { return Choose(d, offers, servers, Policy{}) },
			"candidates": func() (*Plan, error) { return c.Choose(d, offers, Policy{}) },
		}
		for name, choose := range among {
			p, err := choose()
			if err != nil {
				t.Fatal(err)
			}
			vms, all := 0, 0
			for _, v := range p.Explanation.Verdicts {
				vms += v.VMs
				n := 1
				if _, others, ok := strings.Cut(v.Name, " and "); ok {
					n += leading(t, others)
				} else if strings.Contains(v.Name, " more ") {
					n = leading(t, v.Name)
				}
				all += n
			}
			if vms != len(p.Parts) || all != len(servers)+len(offers) || len(p.Explanation.Verdicts) > 40 {
				t.Errorf("%d regions of %s: verdicts on %d VMs of %d in the plan, on %d in all:\n%v", regions, name, vms, len(p.Parts), all, p.Explanation)
			}
		}
		pool.Done(c)
	}
}

func leading(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(text, err)
	}
	return n
}

// BenchmarkNone measures how long it takes to find what part of a cache 10,000 servers with
// too few cores could hold.
func BenchmarkNone(b *testing.B) {
	var servers []Server
	for i := range 10_000 {
		servers = append(servers, Server{ID: "s", Free: uint64(1 + i%300), Memory: 300, Cores: i % 7 % 2})
	}
	d := Demand{RegionSize: 1, Regions: maxRegions, Configs: map[int]Config{0: {512, 300, 1, 16}}}
	for b.Loop() {
		var none *NoneError
		if _, err := Choose(d, nil, servers, Policy{MaxVMs: 256}); !errors.As(err, &none) {
			b.Fatal(err)
		}
	}
}

// tryAll returns the least cost at one distance, found by trying each number of each VM.
func tryAll(d Demand, distance int, offers []Offer, servers []Server, p Policy) cost {
	config, ok := d.Configs[distance]
	if !ok {
		if config, ok = d.Configs[0]; !ok {
			return never
		}
	}
	here := func(at int) bool { return at == distance || at == 0 && distance == d.nearest() }
	fits := func(n int, memory uint64, cores int) bool {
		need := min((config.S*n+d.Regions-1)/d.Regions, config.C)
		return uint64(n)*d.RegionSize <= memory && need <= cores
	}
	room := uint64(math.MaxUint64)
	if p.Room != nil {
		room = *p.Room
	}
	var server func(i, left, free int) cost
	var offer func(i, left, free int, room uint64) cost
	offer = func(i, left, free int, room uint64) cost {
		if left <= 0 {
			return 0
		}
		if i == len(offers) {
			return never
		}
		o, most := offers[i], 0
		for n := 1; n <= d.Regions && here(o.Distance); n++ {
			seconds := (o.Notice - p.Provision).Seconds()
			if fits(n, o.Memory, o.Cores) && (!o.Spot || float64(n)*float64(d.RegionSize) <= seconds*p.MigrationRate) {
				most = n
			}
		}
		least := offer(i+1, left, free, room)
		for vms := 1; most > 0 && vms <= min(left, free) && (o.Available < 0 || vms <= o.Available); vms++ {
			takes := uint64(max(0, vms-o.Ready)) * o.Memory
			if o.Fitted {
				takes = uint64(min(left, vms*most)) * d.RegionSize
			}
			if takes <= room {
				least = min(least, offer(i+1, left-vms*most, free-vms, room-takes).plus(costOf(o.Price*Price(vms), vms)))
			}
		}
		return least
	}
	server = func(i, left, free int) cost {
		if i == len(servers) {
			return offer(0, left, free, room)
		}
		least := server(i+1, left, free)
		for n := 1; free > 0 && n <= left && here(servers[i].Distance) && fits(n, servers[i].Free, servers[i].Cores); n++ {
			least = min(least, server(i+1, left-n, free-1).plus(costOf(servers[i].Share(n, d.RegionSize), 1)))
		}
		return least
	}
	return server(0, d.Regions, p.MaxVMs)
}

// checkParts checks a plan against the resources of its VMs.
func checkParts(t *rapid.T, d Demand, offers []Offer, servers []Server, policy Policy, p *Plan) {
	regions, price, room := 0, Price(0), uint64(0)
	launched, shared := make(map[int]int), make(map[int]bool)
	for _, part := range p.Parts {
		regions += part.Regions
		price += part.Price
		var memory uint64
		var cores, distance int
		if part.Server >= 0 {
			s := servers[part.Server]
			memory, cores, distance = s.Free, s.Cores, s.Distance
			if shared[part.Server] {
				t.Fatalf("server %d is used twice", part.Server)
			}
			shared[part.Server] = true
		} else {
			o := offers[part.Offer]
			memory, cores, distance = o.Memory, o.Cores, o.Distance
			if launched[part.Offer]++; o.Available >= 0 && launched[part.Offer] > o.Available {
				t.Fatalf("more than %d VMs of %s", o.Available, o.Name())
			}
			switch {
			case o.Fitted:
				room += uint64(part.Regions) * d.RegionSize
			case launched[part.Offer] > o.Ready:
				room += o.Memory
			}
		}
		if part.Regions < 1 || uint64(part.Regions)*d.RegionSize > memory || part.Cores > cores {
			t.Fatalf("%+v does not fit %d bytes and %d cores", part, memory, cores)
		}
		if part.Cores*d.Regions < min(p.Config.S*part.Regions, p.Config.C*d.Regions) {
			t.Fatalf("%+v: fewer cores for its regions than %+v has", part, p.Config)
		}
		if distance != p.Distance && distance != 0 {
			t.Fatalf("%+v stands at distance %d, the plan at %d", part, distance, p.Distance)
		}
	}
	if policy.Room != nil && room > *policy.Room {
		t.Fatalf("VMs with %d bytes are launched, there is room for %d", room, *policy.Room)
	}
	if len(p.Parts) > policy.MaxVMs {
		t.Fatalf("%d VMs, %d are allowed", len(p.Parts), policy.MaxVMs)
	}
	if regions != d.Regions || price != p.Price {
		t.Fatalf("parts hold %d regions for %v, the plan %d for %v", regions, price, d.Regions, p.Price)
	}
}

// TestRoughly compares the approximation for large tables with the exact table.
func TestRoughly(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
			return item{
				regions: rapid.IntRange(1, 30).Draw(t, "regions"), price: Price(rapid.IntRange(0, 20).Draw(t, "price")),
				available: rapid.IntRange(1, 5).Draw(t, "available"),
			}
		}), 0, 4).Draw(t, "items")
		bins := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) bin {
			return bin{rapid.IntRange(0, 9).Draw(t, "server"), rapid.IntRange(1, 30).Draw(t, "regions"), Price(rapid.IntRange(0, 5).Draw(t, "price"))}
		}), 0, 4, func(b bin) int { return b.server }).Draw(t, "bins")
		regions, vms := rapid.IntRange(1, 60).Draw(t, "regions"), rapid.IntRange(1, 6).Draw(t, "VMs")
		exact := newBounded(items, bins, regions, vms).cheapest(len(items))
		rough := roughly(items, bins, regions, vms)
		if (rough.cost == never) != (exact.cost == never) || rough.cost < exact.cost {
			t.Fatalf("%v with %d VMs, exactly %v with %d", rough.cost.price(), rough.cost.vms(), exact.cost.price(), exact.cost.vms())
		}
		for name, f := range map[string]filling{"exact": exact, "rough": rough} {
			if f.cost != never {
				checkFilling(t, name, f, items, regions, vms)
			}
		}
	})
}

// checkFilling checks a filling against the demand and its own cost.
func checkFilling(t *rapid.T, name string, f filling, items []item, regions, vms int) {
	sum, held := cost(0), 0
	for _, s := range f.servers {
		if s.n < 1 || s.n > s.regions {
			t.Fatalf("%s: %d regions on a server with room for %d", name, s.n, s.regions)
		}
		sum, held = sum.plus(costOf(s.price*Price(s.n), 1)), held+s.n
	}
	for i, n := range f.counts {
		if n > items[i].available {
			t.Fatalf("%s: %d VMs of %d", name, n, items[i].available)
		}
		sum, held = sum.plus(costOf(items[i].price*Price(n), n)), held+n*items[i].regions
	}
	if held < regions || sum != f.cost || sum.vms() > vms {
		t.Fatalf("%s: %+v holds %d of %d regions for %v with %d VMs, of %d", name, f, held, regions, sum.price(), sum.vms(), vms)
	}
}

// TestFirst compares the choice of servers at one price with an exhaustive search.
func TestFirst(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 7).Draw(t, "sizes")
		sum := 0
		var bins []bin
		for i, n := range sizes {
			sum += n
			bins = append(bins, bin{server: i, regions: n})
		}
		regions := rapid.IntRange(1, sum).Draw(t, "regions")
		var want []int
		for set := 1; set < 1<<len(sizes); set++ {
			var chosen []int
			held := 0
			for i, n := range sizes {
				if set>>i&1 == 1 {
					chosen = append(chosen, i)
					held += n
				}
			}
			if held >= regions && (want == nil || len(chosen) < len(want) || len(chosen) == len(want) && slices.Compare(chosen, want) < 0) {
				want = chosen
			}
		}
		var got []int
		left := regions
		for _, b := range newSharing(bins, regions).take(regions) {
			got = append(got, b.server)
			left -= b.n
		}
		if !slices.Equal(got, want) || left != 0 {
			t.Fatalf("servers %v of %v for %d regions, %d left; want %v", got, sizes, regions, left, want)
		}
	})
}

func TestBadArguments(t *testing.T) {
	good := Demand{RegionSize: 1, Regions: 1, Configs: map[int]Config{0: {1, 0, 1, 1}}}
	for name, change := range map[string]func(*Demand, *Offer, *Server){
		"no regions":        func(d *Demand, _ *Offer, _ *Server) { d.Regions = 0 },
		"many regions":      func(d *Demand, _ *Offer, _ *Server) { d.Regions = 1<<16 + 1 },
		"no region size":    func(d *Demand, _ *Offer, _ *Server) { d.RegionSize = 0 },
		"no configuration":  func(d *Demand, _ *Offer, _ *Server) { d.Configs = nil },
		"no client threads": func(d *Demand, _ *Offer, _ *Server) { d.Configs = map[int]Config{0: {}} },
		"high price":        func(_ *Demand, o *Offer, _ *Server) { o.Price = MaxPrice + 1 },
		"negative price":    func(_ *Demand, _ *Offer, s *Server) { s.Price = -1 },
		"more free":         func(_ *Demand, _ *Offer, s *Server) { s.Free = s.Memory + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			d, o, s := good, Offer{Memory: 1}, Server{}
			change(&d, &o, &s)
			p, err := Choose(d, []Offer{o}, []Server{s}, Policy{})
			var none *NoneError
			if err == nil || errors.As(err, &none) {
				t.Errorf("plan %+v, error %v: want the argument refused", p, err)
			}
		})
	}
}

// TestDearest checks that the sum of the highest prices does not overflow.
func TestDearest(t *testing.T) {
	d := Demand{RegionSize: 1, Regions: maxRegions, Configs: map[int]Config{0: {1, 0, 1, 1}}}
	offers := []Offer{{Type: "gold", Memory: 256, Price: MaxPrice, Available: 256}}
	p, err := Choose(d, offers, nil, Policy{})
	if err != nil || p.Price != 256*MaxPrice || len(p.Parts) != 256 {
		t.Errorf("plan %+v, error %v: want 256 VMs at the highest price", p, err)
	}
}

// TestFewLarge checks that the one large VM is taken beside any number of small ones,
// however many regions there are.
func TestFewLarge(t *testing.T) {
	for _, regions := range []int{512, maxRegions} {
		d := Demand{RegionSize: 1 << 30, Regions: regions, Configs: map[int]Config{0: {1, 0, 1, 16}}}
		p, err := Choose(d, []Offer{
			{Type: "small", Memory: 1 << 30, Price: 1000, Available: -1},
			{Type: "big", Memory: uint64(regions-1) << 30, Price: 100_000_000, Available: 1},
		}, nil, Policy{MaxVMs: 256})
		if err != nil || len(p.Parts) != 2 || p.Price != 100_001_000 {
			t.Errorf("%d regions: plan %+v, error %v: want one small VM and the big one", regions, p, err)
		}
	}
}

// BenchmarkFew measures the most expensive search with a bounded number of VMs, exact and
// approximate.
func BenchmarkFew(b *testing.B) {
	for _, regions := range []int{1024, 4096, maxRegions} {
		b.Run(fmt.Sprintf("regions=%d", regions), func(b *testing.B) {
			var offers []Offer
			for i := range 60 {
				memory := uint64(regions/(2*defaultMaxVMs) + 1 + i*max(1, regions/(8*defaultMaxVMs)))
				offers = append(offers, Offer{
					Type: fmt.Sprintf("t%02d", i), Memory: memory << 30, Available: -1, Price: Price(1000*memory + memory*memory),
				})
			}
			d := Demand{RegionSize: 1 << 30, Regions: regions, Configs: map[int]Config{0: {8, 0, 64, 8}}}
			for b.Loop() {
				if _, err := Choose(d, offers, nil, Policy{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoom measures plans of a cache that almost fills an allocator's memory, of ten
// VM types, and the search for the largest cache that fits.
func BenchmarkRoom(b *testing.B) {
	room := uint64(256 << 30)
	var offers []Offer
	for i := range uint64(10) {
		memory := (1 + i*i) << 29
		offers = append(offers, Offer{
			Type: fmt.Sprintf("t%02d", i), Memory: memory, Cores: 64, Available: int(room / memory), Price: Price(2_000_000 - i*1000),
		})
	}
	d := Demand{RegionSize: 1 << 30, Configs: map[int]Config{0: {1, 0, 1, 16}}}
	b.Run("choose", func(b *testing.B) {
		d.Regions = 250
		for b.Loop() {
			if _, err := Choose(d, offers, nil, Policy{Room: &room}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("largest", func(b *testing.B) {
		d.Regions = maxRegions
		for b.Loop() {
			if most, err := Largest(d, offers, nil, Policy{Room: &room}); err != nil || most != room {
				b.Fatal(most, err)
			}
		}
	})
}

// BenchmarkChoose measures plans of the largest possible cache, from a large menu: 100
// types of odd sizes at one distance, none dearer and smaller than another.
func BenchmarkChoose(b *testing.B) {
	for _, available := range []int{-1, 20} {
		for _, regions := range []int{64, 1024, maxRegions} {
			b.Run(fmt.Sprintf("available=%d/regions=%d", available, regions), func(b *testing.B) {
				var offers []Offer
				for i := range 100 {
					memory := uint64(regions/64+1) + uint64(i*max(1, regions/100))
					offers = append(offers, Offer{
						Type: fmt.Sprintf("t%02d", i), Memory: memory << 30, Cores: 64, Available: available,
						Price: Price(1000*memory + uint64(i*i)),
					})
				}
				d := Demand{RegionSize: 1 << 30, Regions: regions, Configs: map[int]Config{0: {8, 4, 64, 8}}}
				for b.Loop() {
					if _, err := Choose(d, offers, nil, Policy{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
