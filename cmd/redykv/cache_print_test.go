package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// TestDecisionWithoutPlan checks that a decision without a plan has no price: a price of 0
// would look cheap.
func TestDecisionWithoutPlan(t *testing.T) {
	config := &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 16}
	var b bytes.Buffer
	err := printDecision(&b, &managerv1.Decision{What: "allocated", Sites: []*managerv1.SiteVerdict{
		{Distance: 3, Configuration: config, Vms: 2, Chosen: true, Reason: "chosen"},
		{Distance: 5, Configuration: config, Reason: "too little for this cache"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for reason, price := range map[string]string{"chosen": "$0.00/h", "too little for this cache": "-"} {
		want := price + " " + reason
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
