package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun/property"
	"github.com/redykv/redykv/manager/plan"
)

// TestDecisionBound checks that all decisions of a cache together take 4 KiB, with 5,000
// servers of different prices and 500 VM types, and still name what was chosen.
func TestDecisionBound(t *testing.T) {
	pool := plan.NewPool(0)
	for i := range 5000 {
		s := plan.Server{
			ID: fmt.Sprintf("server-with-a-rather-long-name-%05d", i), Transport: "tcp", Memory: 256 << 30, Free: uint64(1+i%16) << 30,
			Cores: i % 9, Price: plan.Price(120_000 + 56*i), Distance: 1 + i%5,
		}
		if err := pool.Put(s, uint64(i), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	var offers []plan.Offer
	for i := range 500 {
		offers = append(offers, plan.Offer{
			Type: fmt.Sprintf("standard-type-with-a-long-name-%03d", i), Memory: uint64(1+i) << 30, Cores: i % 65, Distance: 1 + i%5,
			Price: plan.Price(100_000 + 1000*i), Available: i%7 - 1, Spot: i%3 == 0, Notice: time.Minute,
		})
	}
	configs := make(map[int]plan.Config)
	for distance := 1; distance <= 5; distance++ {
		configs[distance] = plan.Config{C: 2 * distance, S: distance, B: 1 << distance, Q: 16}
	}
	for _, regions := range []int{1, 64, 1000, 1 << 16} {
		d := plan.Demand{RegionSize: 1 << 30, Regions: regions, Configs: configs, Transport: "tcp"}
		c, err := pool.Candidates(d, plan.Policy{}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ca := &cache{}
		for _, what := range []string{"allocate", "reallocate", "move"} {
			chosen, err := c.Choose(d, offers, plan.Policy{})
			if err != nil {
				t.Fatal(err)
			}
			ca.decide(what, aboutMove(decisionOf(chosen.Explanation, chosen.Price, time.Now()), strings.Repeat("dear ", 40)))
		}
		decisions := ca.decisions.p.GetDecisions()
		if size := proto.Size(ca.decisions.p); size > 4<<10 || len(decisions) != 3 {
			t.Errorf("%d regions: %d decisions of %d bytes", regions, len(decisions), size)
		}
		var vms, sites int
		for _, v := range decisions[0].GetVerdicts() {
			vms += int(v.GetVms())
		}
		for _, s := range decisions[0].GetSites() {
			if s.GetChosen() {
				sites++
			}
		}
		if vms == 0 || sites != 1 || decisions[0].GetVerdicts()[0].GetName() != aMove {
			t.Errorf("%d regions: %d chosen VMs and %d chosen sites in %v", regions, vms, sites, decisions[0])
		}
	}
}

// TestBound checks the bound for any texts.
func TestBound(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 300, -1)
		d := &managerv1.Decision{What: "reallocate", AtUnixMs: 1 << 50, PriceMicros: 1 << 60}
		for range rapid.IntRange(0, 6).Draw(t, "sites") {
			d.Sites = append(d.Sites, &managerv1.SiteVerdict{Reason: text.Draw(t, "reason"), Chosen: rapid.Bool().Draw(t, "chosen"), PriceMicros: 1 << 60})
		}
		for range rapid.IntRange(0, 40).Draw(t, "verdicts") {
			d.Verdicts = append(d.Verdicts, &managerv1.Verdict{
				Name: text.Draw(t, "name"), Reason: text.Draw(t, "reason"), Vms: uint32(rapid.IntRange(0, 1).Draw(t, "VMs")), PriceMicros: -1,
			})
		}
		before := proto.Size(d)
		bound(d)
		if size := proto.Size(d); size > maxDecision || before > maxDecision && size < maxDecision/2 {
			t.Fatalf("%d bytes of %d: %v", size, before, d)
		}
		if _, err := proto.Marshal(d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Verdicts {
			if !utf8.ValidString(v.Reason) {
				t.Fatalf("%q", v.Reason)
			}
		}
	})
}
