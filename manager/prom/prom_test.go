package prom

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/plan"
)

type fixed manager.Metrics

func (f fixed) Metrics() manager.Metrics { return manager.Metrics(f) }

func TestCollector(t *testing.T) {
	c := NewCollector(fixed{
		Caches: 1, Lingers: 15, Attached: 16, Capacity: 2, Cost: plan.Dollars(0.3), WarmCost: plan.Dollars(0.4), MigrationRate: 5,
		Allocated: 6, Refused: 7, Reallocated: 8, MovesAsked: 9, ReconfiguresAsked: 31, Calibrated: 32, Corrected: 33, Reclaimed: 10, Failed: 11, Suspected: 13, Blinded: 14, RenewalsRefused: 34, Braked: 35, Blind: true, Expired: 17, UnknownGrants: 36,
		WindowsJudged: 26, WindowsMissed: 27, Broken: 28, BrokenCaches: []string{"cache-1"},
		VMs:   []manager.VMCount{{Type: "small", Spot: true, State: "up", Machine: "node-1", VMs: 12, Memory: 18, Free: 19}},
		Named: []manager.VMName{{VM: "vm-1", Type: "small", Place: allocator.Place{Name: "memory/vm-1", Machine: "node-1"}}},
		NoticeLeft: manager.Durations{
			Bounds: []time.Duration{0, time.Second}, Counts: []uint64{1, 2}, Count: 3, Sum: 4 * time.Second,
		},
		Commits: manager.Durations{Bounds: []time.Duration{time.Second}, Counts: []uint64{20}, Count: 21, Sum: 22 * time.Second},
		Calls: []manager.CallDurations{{
			Procedure: "Allocate", Durations: manager.Durations{Bounds: []time.Duration{time.Second}, Counts: []uint64{23}, Count: 24, Sum: 25 * time.Second},
		}},
	})
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	want := `
# HELP redykv_manager_allocations_total Caches that were allocated.
# TYPE redykv_manager_allocations_total counter
redykv_manager_allocations_total 6
# HELP redykv_manager_attachments_total Times that another client took a cache up.
# TYPE redykv_manager_attachments_total counter
redykv_manager_attachments_total 16
# HELP redykv_manager_blind 1 while at least half of the servers are silent and none is suspected.
# TYPE redykv_manager_blind gauge
redykv_manager_blind 1
# HELP redykv_manager_blindings_total Times that at least half of the servers fell silent together, and none was suspected.
# TYPE redykv_manager_blindings_total counter
redykv_manager_blindings_total 14
# HELP redykv_manager_brakings_total Times that at least half of the clients fell silent together, and no lease ended.
# TYPE redykv_manager_brakings_total counter
redykv_manager_brakings_total 35
# HELP redykv_manager_renewals_refused_total Renewals of leases that were refused for their token.
# TYPE redykv_manager_renewals_refused_total counter
redykv_manager_renewals_refused_total 34
# HELP redykv_manager_caches Caches.
# TYPE redykv_manager_caches gauge
redykv_manager_caches 1
# HELP redykv_manager_cache_slo_broken 1 for each cache whose SLO is broken, and for 100 at most.
# TYPE redykv_manager_cache_slo_broken gauge
redykv_manager_cache_slo_broken{cache="cache-1"} 1
# HELP redykv_manager_slo_broken_caches Caches whose SLO is broken by what their clients measure.
# TYPE redykv_manager_slo_broken_caches gauge
redykv_manager_slo_broken_caches 28
# HELP redykv_manager_slo_windows_judged_total Windows that clients measured, and that were judged by the SLOs of their caches.
# TYPE redykv_manager_slo_windows_judged_total counter
redykv_manager_slo_windows_judged_total 26
# HELP redykv_manager_slo_windows_missed_total Judged windows that missed the SLO.
# TYPE redykv_manager_slo_windows_missed_total counter
redykv_manager_slo_windows_missed_total 27
# HELP redykv_manager_capacity_bytes Capacity of all caches, as asked.
# TYPE redykv_manager_capacity_bytes gauge
redykv_manager_capacity_bytes 2
# HELP redykv_manager_cost_dollars_per_hour Price of all caches, of old and new VMs while they move.
# TYPE redykv_manager_cost_dollars_per_hour gauge
redykv_manager_cost_dollars_per_hour 0.3
# HELP redykv_manager_failures_total VMs that failed.
# TYPE redykv_manager_failures_total counter
redykv_manager_failures_total 11
# HELP redykv_manager_lingering_caches Caches whose lease has ended, and that are kept for another client.
# TYPE redykv_manager_lingering_caches gauge
redykv_manager_lingering_caches 15
# HELP redykv_manager_expirations_total Caches that were deallocated because their leases or enforced durations had ended.
# TYPE redykv_manager_expirations_total counter
redykv_manager_expirations_total 17
# HELP redykv_manager_catalog_commit_seconds Times of writes of the catalog.
# TYPE redykv_manager_catalog_commit_seconds histogram
redykv_manager_catalog_commit_seconds_bucket{le="1"} 20
redykv_manager_catalog_commit_seconds_bucket{le="+Inf"} 21
redykv_manager_catalog_commit_seconds_sum 22
redykv_manager_catalog_commit_seconds_count 21
# HELP redykv_manager_call_seconds Times of calls, waiting included, by procedure.
# TYPE redykv_manager_call_seconds histogram
redykv_manager_call_seconds_bucket{procedure="Allocate",le="1"} 23
redykv_manager_call_seconds_bucket{procedure="Allocate",le="+Inf"} 24
redykv_manager_call_seconds_sum{procedure="Allocate"} 25
redykv_manager_call_seconds_count{procedure="Allocate"} 24
# HELP redykv_manager_migration_bytes_per_second Rate at which memory leaves a VM, as measured by caches.
# TYPE redykv_manager_migration_bytes_per_second gauge
redykv_manager_migration_bytes_per_second 5
# HELP redykv_manager_moves_asked_total Times that a cache was asked to move.
# TYPE redykv_manager_moves_asked_total counter
redykv_manager_moves_asked_total 9
# HELP redykv_manager_notice_left_seconds Notice that was left when a cache had left its VM.
# TYPE redykv_manager_notice_left_seconds histogram
redykv_manager_notice_left_seconds_bucket{le="0"} 1
redykv_manager_notice_left_seconds_bucket{le="1"} 2
redykv_manager_notice_left_seconds_bucket{le="+Inf"} 3
redykv_manager_notice_left_seconds_sum 4
redykv_manager_notice_left_seconds_count 3
# HELP redykv_manager_reallocations_total Times that a cache got more grants.
# TYPE redykv_manager_reallocations_total counter
redykv_manager_reallocations_total 8
# HELP redykv_manager_reconfigures_asked_total Times that a cache was asked for another configuration, because its SLO was broken, or is kept with less.
# TYPE redykv_manager_reconfigures_asked_total counter
redykv_manager_reconfigures_asked_total 31
# HELP redykv_manager_calibrations_total Kinds of machines for which models of others were scaled.
# TYPE redykv_manager_calibrations_total counter
redykv_manager_calibrations_total 32
# HELP redykv_manager_corrections_total Times that a model was corrected by what a cache gave.
# TYPE redykv_manager_corrections_total counter
redykv_manager_corrections_total 33
# HELP redykv_manager_reclaims_total VMs that were reclaimed.
# TYPE redykv_manager_reclaims_total counter
redykv_manager_reclaims_total 10
# HELP redykv_manager_refusals_total Allocations refused for too little memory.
# TYPE redykv_manager_refusals_total counter
redykv_manager_refusals_total 7
# HELP redykv_manager_suspicions_total VMs that fell silent while caches had memory there.
# TYPE redykv_manager_suspicions_total counter
redykv_manager_suspicions_total 13
# HELP redykv_manager_unknown_grants Grants that clients use and whose caches the catalog does not know. They stay lent.
# TYPE redykv_manager_unknown_grants gauge
redykv_manager_unknown_grants 36
# HELP redykv_manager_vm_info 1 for each VM that has a name of the allocator's, such as that of a pod.
# TYPE redykv_manager_vm_info gauge
redykv_manager_vm_info{machine="node-1",name="memory/vm-1",type="small",vm="vm-1"} 1
# HELP redykv_manager_vm_free_bytes Memory of VMs that no cache has, by type, state and machine.
# TYPE redykv_manager_vm_free_bytes gauge
redykv_manager_vm_free_bytes{machine="node-1",spot="true",state="up",type="small"} 19
# HELP redykv_manager_vm_memory_bytes Memory that VMs can lend, by type, state and machine.
# TYPE redykv_manager_vm_memory_bytes gauge
redykv_manager_vm_memory_bytes{machine="node-1",spot="true",state="up",type="small"} 18
# HELP redykv_manager_vms VMs, by type, state and machine.
# TYPE redykv_manager_vms gauge
redykv_manager_vms{machine="node-1",spot="true",state="up",type="small"} 12
# HELP redykv_manager_warm_cost_dollars_per_hour Price of the VMs that are kept ready.
# TYPE redykv_manager_warm_cost_dollars_per_hour gauge
redykv_manager_warm_cost_dollars_per_hour 0.4
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
