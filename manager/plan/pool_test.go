package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

var noon = time.Unix(1_000_000, 0)

// poolOf returns a pool of servers, which are in order of age.
func poolOf(t testing.TB, servers []Server) *Pool {
	t.Helper()
	p := NewPool(30 * time.Second)
	for i, s := range servers {
		started := noon.Add(-time.Hour)
		if s.Fresh {
			started = noon.Add(-time.Second)
		}
		if err := p.Put(s, uint64(i), started); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func drawServer(t *rapid.T) Server {
	memory := rapid.Uint64Range(1, 12).Draw(t, "memory")
	return Server{
		ID: "s", Memory: memory, Free: rapid.Uint64Range(0, memory).Draw(t, "free"), Cores: rapid.IntRange(0, 4).Draw(t, "cores"),
		Price: Price(rapid.IntRange(0, 3).Draw(t, "price")) * Price(memory) * 10, Distance: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "distance"),
		Transport: rapid.SampledFrom([]string{"", "", "", "tcp"}).Draw(t, "transport"), Fresh: rapid.IntRange(0, 4).Draw(t, "fresh") == 0,
	}
}

func drawDemand(t *rapid.T) Demand {
	d := Demand{RegionSize: 1, Regions: rapid.IntRange(1, 24).Draw(t, "regions"), Configs: make(map[int]Config)}
	for _, at := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 3}), 1, 3, rapid.ID[int]).Draw(t, "distances") {
		c := rapid.IntRange(1, 4).Draw(t, "c")
		d.Configs[at] = Config{C: c, S: rapid.IntRange(0, c).Draw(t, "s"), B: 1, Q: 1}
	}
	if rapid.Bool().Draw(t, "part") {
		d.Per = rapid.IntRange(1, 24).Draw(t, "per")
	}
	return d
}

// TestPoolChoosesAsAll compares plans among candidates with plans among all servers of a pool
// that has been changed at random.
func TestPoolChoosesAsAll(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		pool := NewPool(30 * time.Second)
		pool.small = 0
		all := make(map[int]Server)
		put := func(i int) {
			s := drawServer(t)
			s.ID = fmt.Sprint("s", i)
			if old, ok := all[i]; ok { // what usually changes
				old.Free, old.Cores = min(s.Free, old.Memory), s.Cores
				if rapid.Bool().Draw(t, "only free") {
					s = old
				}
			}
			started := noon.Add(-time.Hour)
			if s.Fresh {
				started = noon.Add(-time.Second)
			}
			if err := pool.Put(s, uint64(i), started); err != nil {
				t.Fatal(err)
			}
			all[i] = s
		}
		for i := range rapid.IntRange(0, 40).Draw(t, "servers") {
			put(i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) { put(rapid.IntRange(0, 50).Draw(t, "server")) },
			"remove": func(t *rapid.T) {
				i := rapid.IntRange(0, 50).Draw(t, "server")
				pool.Remove(fmt.Sprint("s", i))
				delete(all, i)
			},
			"": func(t *rapid.T) {
				checkTrees(t, pool, all)
				avoid := make(map[string]bool)
				var servers []Server
				old := false
				for _, i := range slices.Sorted(maps.Keys(all)) {
					old = old || !all[i].Fresh
				}
				for _, i := range slices.Sorted(maps.Keys(all)) {
					s := all[i]
					if rapid.IntRange(0, 9).Draw(t, "avoid") == 0 {
						avoid[s.ID] = true
						continue
					}
					s.Fresh = s.Fresh && old
					servers = append(servers, s)
				}
				offers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Offer {
					return Offer{
						Type: "x", Memory: rapid.Uint64Range(1, 8).Draw(t, "memory"), Cores: rapid.IntRange(0, 3).Draw(t, "cores"),
						Available: rapid.IntRange(-1, 2).Draw(t, "available"), Price: Price(rapid.IntRange(0, 200).Draw(t, "price")),
					}
				}), 0, 2).Draw(t, "offers")
				policy := Policy{MaxVMs: rapid.SampledFrom([]int{1, 2, 3, 5, 256}).Draw(t, "most VMs")}
				checkSame(t, pool, drawDemand(t), offers, servers, policy, avoid)
			},
		})
	})
}

// Largest holds the lock of a pool only while it reads it: servers change meanwhile, and another call
// gets the lock while a table is computed.
func TestLargestBesideChanges(t *testing.T) {
	const count = 200
	server := func(i, n int) Server {
		return Server{ID: fmt.Sprint("s", i), Memory: 64 << 20, Free: uint64(n%64) << 20, Cores: 4, Price: 1, Distance: 1}
	}
	pool, lock := NewPool(time.Second), new(counted)
	put := func(i, n int) {
		lock.Lock()
		defer lock.Unlock()
		if err := pool.Put(server(i, n), uint64(i), noon); err != nil {
			t.Error(err)
		}
	}
	for i := range count {
		put(i, 63)
	}
	room := uint64(64 << 30)
	offers := []Offer{
		{Type: "a", Memory: 48 << 20, Cores: 4, Price: 1, Distance: 1, Available: -1},
		{Type: "b", Memory: 80 << 20, Cores: 4, Price: 1, Distance: 1, Available: -1},
	}
	d := Demand{RegionSize: 1 << 20, Regions: 4096, Configs: map[int]Config{0: {C: 1, S: 1, B: 1, Q: 1}}}
	largest := func() uint64 {
		most, err := pool.Largest(lock, d, offers, Policy{MaxVMs: 64, Room: &room}, nil, noon)
		if err != nil {
			t.Error(err)
		}
		return most
	}
	before := lock.taken
	if most := largest(); most == 0 {
		t.Error("no room")
	}
	if lock.taken-before < 2 {
		t.Errorf("the lock was taken %d times: it is held for all of it", lock.taken-before)
	}
	var changing sync.WaitGroup
	done := make(chan struct{})
	changing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				put(n%count, n)
			}
		}
	})
	for range 5 {
		largest()
	}
	close(done)
	changing.Wait()
}

// counted is a mutex that counts.
type counted struct {
	sync.Mutex

	taken int // guarded by the mutex
}

func (c *counted) Lock() {
	c.Mutex.Lock()
	c.taken++
}

func checkSame(t *rapid.T, pool *Pool, d Demand, offers []Offer, servers []Server, policy Policy, avoid map[string]bool) {
	c, err := pool.Candidates(d, policy, avoid, noon)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Done(c)
	got, gotErr := c.Choose(d, offers, policy)
	want, wantErr := Choose(d, offers, servers, policy)
	var gotNone, wantNone *NoneError
	if errors.As(gotErr, &gotNone) != errors.As(wantErr, &wantNone) {
		t.Fatalf("among candidates %v, among all %v", gotErr, wantErr)
	}
	most, err := pool.Largest(new(sync.Mutex), d, offers, policy, avoid, noon)
	if err != nil {
		t.Fatal(err)
	}
	if mostOfAll, err := Largest(d, offers, servers, policy); err != nil || most != mostOfAll {
		t.Fatalf("largest %d in the pool, %d in all, %v", most, mostOfAll, err)
	}
	if wantNone != nil {
		if d.Regions <= policy.MaxVMs && gotNone.Available != wantNone.Available {
			t.Fatalf("among candidates %d could be had, among all %d", gotNone.Available, wantNone.Available)
		}
		return
	}
	// More servers than limit may be needed if the number of VMs is the limit.
	limited := len(c.Servers) >= 2*policy.MaxVMs && d.Regions > policy.MaxVMs
	if got.Price != want.Price && !limited || got.Price < want.Price {
		t.Fatalf("among candidates %+v, among all %+v", got, want)
	}
	if limited {
		return
	}
	if got.Distance != want.Distance || len(got.Parts) != len(want.Parts) {
		t.Fatalf("among candidates %+v, among all %+v", got, want)
	}
	if d.Regions > policy.MaxVMs {
		return // of equally good plans any may be chosen
	}
	for i, p := range got.Parts {
		w := want.Parts[i]
		same := p.Server < 0 && w.Server < 0 && p.Offer == w.Offer ||
			p.Server >= 0 && w.Server >= 0 && c.Servers[p.Server].ID == servers[w.Server].ID
		if !same || p.Regions != w.Regions || p.Cores != w.Cores {
			t.Fatalf("part %d among candidates %+v %+v, among all %+v %+v", i, p, c.Servers, w, servers)
		}
	}
}

// checkTrees checks the order and the sums of a pool's trees.
func checkTrees(t *rapid.T, p *Pool, all map[int]Server) {
	count := 0
	var check func(m *member) sum
	check = func(m *member) sum {
		if m == nil {
			return sum{}
		}
		count++
		if p.members[m.ID] != m || m.class != classOf(m.Server) {
			t.Fatalf("%s is in the tree of %+v", m.ID, m.class)
		}
		for _, child := range []*member{m.left, m.right} {
			if child != nil && (child.up != m || child.priority > m.priority || child.before(m) != (child == m.left)) {
				t.Fatalf("%s is below %s", child.ID, m.ID)
			}
		}
		if got := check(m.left).and(m.alone()).and(check(m.right)); got != m.sum {
			t.Fatalf("sum of %s %+v, want %+v", m.ID, m.sum, got)
		}
		return m.sum
	}
	for _, root := range p.trees {
		check(root)
	}
	if count != len(all) || p.Len() != len(all) {
		t.Fatalf("%d members in trees, %d in the pool, %d put", count, p.Len(), len(all))
	}
}

// Fresh servers with too little memory to count on do not take the places of candidates that can be
// counted on.
func TestPoolPrefersOldServers(t *testing.T) {
	var servers []Server
	for i := range 40 {
		servers = append(servers, Server{ID: fmt.Sprint("s", i), Memory: 1, Free: 1, Fresh: i < 39})
	}
	pool := poolOf(t, servers)
	pool.small = 0
	d := Demand{RegionSize: 1, Regions: 1, Configs: map[int]Config{0: {C: 1}}}
	policy := Policy{MaxVMs: 1}
	c, err := pool.Candidates(d, policy, nil, noon)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Done(c)
	p, err := c.Choose(d, nil, policy)
	if err != nil || c.Servers[p.Parts[0].Server].ID != "s39" {
		t.Errorf("%+v among %+v, %v; want s39, the only one that is not fresh", p, c.Servers, err)
	}
}

// TestPoolClaims checks that concurrent planners of equal demands choose different servers of
// the same price, that a planner alone chooses the oldest, and that claims end.
func TestPoolClaims(t *testing.T) {
	var servers []Server
	for i := range 1000 {
		servers = append(servers, Server{ID: fmt.Sprint("s", i), Memory: 64, Free: uint64(1 + i%64), Price: 100, Distance: 1})
	}
	pool := poolOf(t, servers)
	d := Demand{RegionSize: 1, Regions: 8, Configs: map[int]Config{0: {C: 1}}}
	chosen := make(map[string]bool)
	var held []*Candidates
	for range 64 {
		c, err := pool.Candidates(d, Policy{}, nil, noon)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Choose(d, nil, Policy{})
		if err != nil || len(p.Parts) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		chosen[c.Servers[p.Parts[0].Server].ID] = true
		held = append(held, c)
	}
	if len(chosen) != 64 {
		t.Errorf("64 planners chose %d servers", len(chosen))
	}
	for _, c := range held {
		pool.Done(c)
		pool.Done(c) // has no claim left
	}
	for id, m := range pool.members {
		if m.claims != 0 {
			t.Errorf("%s has %d claims", id, m.claims)
		}
	}
	c, err := pool.Candidates(d, Policy{}, nil, noon)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Choose(d, nil, Policy{}); err != nil || c.Servers[p.Parts[0].Server].ID != "s7" {
		t.Errorf("alone: %+v, %v: want s7, the oldest that is large enough", p, err)
	}
	pool.Done(nil)
}

// TestPoolBound checks how many candidates there are at most, where all servers differ.
func TestPoolBound(t *testing.T) {
	pool := NewPool(0)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		memory := uint64(1 + random.IntN(1024))
		s := Server{ID: fmt.Sprint(i), Memory: memory, Free: memory, Cores: random.IntN(64), Price: Price(i * int(memory)), Distance: 1}
		if i%2 == 0 { // the cheapest are the smallest
			s.Free = min(memory, uint64(i))
		}
		if err := pool.Put(s, uint64(i), noon); err != nil {
			t.Fatal(err)
		}
	}
	for _, regions := range []int{1, 16, 256, 1024, maxRegions} {
		d := Demand{RegionSize: 1, Regions: regions, Configs: map[int]Config{0: {C: 4, S: 2, B: 1, Q: 1}}}
		c, err := pool.Candidates(d, Policy{}, nil, noon)
		if err != nil || len(c.Servers) > 3*defaultMaxVMs || len(c.Servers) == 0 {
			t.Errorf("%d regions: %d candidates, %v", regions, len(c.Servers), err)
		}
		pool.Done(c)
	}
	if err := pool.Put(Server{ID: "bad", Memory: 1, Free: 2}, 0, noon); err == nil || pool.Len() != 5000 {
		t.Errorf("a server with more free than it has: %v, %d in the pool", err, pool.Len())
	}
}

// BenchmarkPool measures the calls under the manager's mutex, with 10,000 servers of equal and
// of different prices.
func BenchmarkPool(b *testing.B) {
	for _, prices := range []string{"equal", "different"} {
		var servers []Server
		for i := range 10_000 {
			s := Server{
				ID: fmt.Sprint("s", i), Memory: 256 << 30, Free: uint64(i*7919%257) << 30, Cores: i * 31 % 9,
				Price: 1_000_000, Distance: 1 + 2*(i%3),
			}
			if prices == "different" {
				s.Price += Price(i * 37 % 10_000)
			}
			servers = append(servers, s)
		}
		pool := poolOf(b, servers)
		for _, regions := range []int{1, 16, 256, 4096} {
			d := Demand{RegionSize: 1 << 30, Regions: regions, Configs: map[int]Config{0: {C: 4, S: 2, B: 1, Q: 1}}}
			b.Run(fmt.Sprintf("candidates/prices=%s/regions=%d", prices, regions), func(b *testing.B) {
				n := 0
				for b.Loop() {
					c, err := pool.Candidates(d, Policy{}, nil, noon)
					if err != nil {
						b.Fatal(err)
					}
					n = len(c.Servers)
					pool.Done(c)
				}
				b.ReportMetric(float64(n), "candidates")
			})
			b.Run(fmt.Sprintf("choose/prices=%s/regions=%d", prices, regions), func(b *testing.B) {
				c, err := pool.Candidates(d, Policy{}, nil, noon)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if _, err := c.Choose(d, nil, Policy{}); err != nil {
						b.Fatal(err)
					}
				}
				pool.Done(c)
			})
		}
		b.Run("largest/prices="+prices, func(b *testing.B) {
			d := Demand{RegionSize: 1 << 30, Regions: maxRegions, Configs: map[int]Config{0: {C: 4, S: 2, B: 1, Q: 1}}}
			for b.Loop() {
				if _, err := pool.Largest(new(sync.Mutex), d, nil, Policy{}, nil, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("put/prices="+prices, func(b *testing.B) {
			i := 0
			for b.Loop() {
				s := servers[i%len(servers)]
				s.Free -= s.Free / uint64(1+i%7)
				if err := pool.Put(s, uint64(i%len(servers)), noon); err != nil {
					b.Fatal(err)
				}
				i += 7
			}
		})
	}
}
