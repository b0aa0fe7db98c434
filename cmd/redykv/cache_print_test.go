package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

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

// TestLingeringCache checks that a cache without a client shows until when it is paid for.
func TestLingeringCache(t *testing.T) {
	var b bytes.Buffer
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &managerv1.Cache{Id: "cache-1", Capacity: 1 << 20, LingerMs: time.Hour.Milliseconds(), LingersUnixMs: at.UnixMilli()}
	if err := printCache(&b, &managerv1.DescribeCacheResponse{Cache: c}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"until 2030-01-02T03:04:05Z\n", "no client: its lease has ended, and it is kept and paid for until 2030-01-02T03:04:05Z\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestFiguresOfCache checks that a cache shows what was asked, predicted and measured, and whether its
// SLO is broken.
func TestFiguresOfCache(t *testing.T) {
	c := &managerv1.Cache{
		Id: "cache-1", Configuration: &managerv1.Configuration{ClientThreads: 2, ServerThreads: 1, BatchSize: 4, QueueDepth: 8},
		Slo:       &managerv1.Slo{MaxLatencyUs: 25, MinThroughputMops: 0.7, RecordSize: 64, Operations: managerv1.Slo_OPERATIONS_READS},
		Predicted: &managerv1.Performance{LatencyUs: 20, ThroughputMops: 0.8},
		Measured: &managerv1.Window{
			EndedAgoMs: 3000, Reads: &managerv1.Measured{ThroughputMops: 0.5, MeanLatencyUs: 32.125, P99LatencyUs: 64, InFlight: 16, RecordSize: 60},
			Writes: &managerv1.Measured{ThroughputMops: 0.25, MeanLatencyUs: 8, P99LatencyUs: 9, InFlight: 2, RecordSize: 70},
		},
	}
	check := func(want ...string) {
		t.Helper()
		var b bytes.Buffer
		if err := printCache(&b, &managerv1.DescribeCacheResponse{Cache: c}); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, b.String())
			}
		}
	}
	check("asked 25 us - 0.7 Mop/s - 64 B reads only", "predicted 20 us - 0.8 Mop/s 64 64 B with full queues", " not broken ",
		"measured reads 32.12 us 64 us 0.5 Mop/s 16 60 B until 3s ago", "measured writes 8 us 9 us 0.25 Mop/s 2 70 B until 3s ago")
	c.Model = &managerv1.Model{Name: "shm, network none", Origin: managerv1.Model_ORIGIN_SHIPPED, Provenance: "on a Z80", Note: "the calibration failed"}
	c.Margin, c.WindowsJudged, c.WindowsMissed, c.LatencyOfPredicted = 0.5, 64, 2, 1.204
	check(" kept 62 of 64 ", "predicted by the shipped model of shm, network none, ? old, measured on a Z80; the margin is 50 % the calibration failed",
		"measured last: latency x 1.20 of what is predicted", "62 of the last 64 judged windows kept the SLO")
	c.ThroughputOfPredicted = 0.75
	check("measured last: latency x 1.20, throughput x 0.75 of what is predicted")
	c.SloBroken = true
	check("64 us 0.5 Mop/s 16 60 B until 3s ago: the SLO is broken", " broken ")
}
