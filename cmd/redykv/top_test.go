package main

import (
	"strings"
	"testing"
	"time"
)

// topText returns a server's metrics; some of them are n.
func topText(n string) string {
	return strings.NewReplacer("N", n).Replace(`# TYPE redykv_operations_total counter
redykv_operations_total{kind="read"} N
redykv_operations_total{kind="upsert"} 7
# TYPE redykv_reads_answered_total counter
redykv_reads_answered_total{from="memory"} N
redykv_reads_answered_total{from="cache"} 0
redykv_reads_answered_total{from="tier0"} N
redykv_reads_answered_total{from="tier1"} 3
# TYPE redykv_tier_healthy gauge
redykv_tier_healthy{name="redy",tier="0"} 1
redykv_tier_healthy{name="ssd",tier="1"} 0
# TYPE redykv_tier_hits_total counter
redykv_tier_hits_total{name="redy",tier="0"} N
redykv_tier_hits_total{name="ssd",tier="1"} 3
# TYPE redykv_memory_bytes gauge
redykv_memory_bytes{part="log"} 1048576
# TYPE redykv_server_commands_total counter
redykv_server_commands_total N
# TYPE redykv_server_batch_seconds histogram
redykv_server_batch_seconds_bucket{le="1e-06"} 5
redykv_server_batch_seconds_bucket{le="0.001"} N
redykv_server_batch_seconds_bucket{le="+Inf"} N
redykv_server_batch_seconds_sum 1
redykv_server_batch_seconds_count N
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1000
`)
}

// scraped returns metrics as they are some time after an hour from the server's start.
func scraped(t *testing.T, text string, after time.Duration) *numbers {
	t.Helper()
	all, err := parseNumbers(text)
	if err != nil {
		t.Fatal(err)
	}
	all.at, all.ready = time.Unix(4600, 0).Add(after), "ready"
	return all
}

func TestTopPage(t *testing.T) {
	read := func(n string, after time.Duration) *numbers { return scraped(t, topText(n), after) }
	page := topPage("http://here", read("1000", 0), read("5000", 2*time.Second))
	for _, want := range []string{
		"http://here  ready  up 1h0m2s  ",
		"\ncommands    2k/s  ",
		"\nlatency     p50 <1ms  p90 <1ms  p99 <1ms  p99.9 <1ms  ",
		"\noperations  2k reads/s  0 upserts/s  ",
		"\nreads from  memory 50.0%  redy 50.0%  ssd 0.0%\n",
		"\nmemory      log 1MiB of ",
		"\ntier redy   healthy  2k hits/s  ",
		"\ntier ssd    out  0 hits/s  ",
		"  none since the start\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	// After a restart, counters and latencies count from 0.
	if page := topPage("http://here", read("5000", 0), read("10", time.Second)); !strings.Contains(page, "\ncommands    10/s") ||
		!strings.Contains(page, "\nlatency     p50 <1µs  p90 <1ms  p99 <1ms  p99.9 <1ms  ") {
		t.Error(page)
	}
	// An idle server has no latencies.
	if page := topPage("http://here", read("10", 0), read("10", time.Second)); !strings.Contains(page, "\nlatency     p50 -  ") || !strings.Contains(page, "\nreads from  -\n") {
		t.Error(page)
	}
	if _, err := parseNumbers("<html>"); err == nil {
		t.Error("a web page is taken for metrics")
	}
}

// TestTopOfManager checks the page of a manager.
func TestTopOfManager(t *testing.T) {
	text := `# TYPE redykv_manager_caches gauge
redykv_manager_caches 3
# TYPE redykv_manager_capacity_bytes gauge
redykv_manager_capacity_bytes 3145728
# TYPE redykv_manager_vms gauge
redykv_manager_vms{machine="rack-1",spot="true",state="up",type="large"} 2
redykv_manager_vms{machine="",spot="false",state="reclaimed",type=""} 1
# TYPE redykv_manager_vm_memory_bytes gauge
redykv_manager_vm_memory_bytes{machine="rack-1",spot="true",state="up",type="large"} 8388608
redykv_manager_vm_memory_bytes{machine="",spot="false",state="reclaimed",type=""} 1048576
# TYPE redykv_manager_vm_free_bytes gauge
redykv_manager_vm_free_bytes{machine="rack-1",spot="true",state="up",type="large"} 4194304
redykv_manager_vm_free_bytes{machine="",spot="false",state="reclaimed",type=""} 0
# TYPE redykv_manager_call_seconds histogram
redykv_manager_call_seconds_bucket{procedure="Allocate",le="0.001"} 0
redykv_manager_call_seconds_bucket{procedure="Allocate",le="+Inf"} 0
redykv_manager_call_seconds_sum{procedure="Allocate"} 0
redykv_manager_call_seconds_count{procedure="Allocate"} 0
redykv_manager_call_seconds_bucket{procedure="Heartbeat",le="0.001"} N
redykv_manager_call_seconds_bucket{procedure="Heartbeat",le="+Inf"} N
redykv_manager_call_seconds_sum{procedure="Heartbeat"} 1
redykv_manager_call_seconds_count{procedure="Heartbeat"} N
# TYPE redykv_manager_blind gauge
redykv_manager_blind 1
`
	read := func(n string, after time.Duration) *numbers {
		return scraped(t, strings.ReplaceAll(text, "N", n), after)
	}
	page := topPage("http://here", read("10", 0), read("30", 2*time.Second))
	for _, want := range []string{
		"http://here  manager  up ",
		"\nmemory      4MiB free of 9MiB in 3 VMs  5MiB lent to caches\n",
		"\n            4MiB free of 8MiB in 2 VMs  up  type large  spot  on rack-1\n",
		"\n            0B free of 1MiB in 1 VMs  reclaimed\n",
		"\ncaches      3 of 3MiB in all  0 without a client  ",
		"\n            half of the servers are silent: none is suspected\n",
		"\nHeartbeat   10/s  p50 <1ms  p99 <1ms\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "Allocate") {
		t.Errorf("a call that nobody made is in\n%s", page)
	}
}

// TestOnScreen checks that each page replaces the one before.
func TestOnScreen(t *testing.T) {
	if got := onScreen("a\nb\n"); got != "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J" {
		t.Errorf("%q", got)
	}
}
