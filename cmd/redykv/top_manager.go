package main

import (
	"slices"
	"strings"
)

// manager formats the metrics of a manager: how much memory is left, of how much, and whose is the
// rest come first.
func (p *page) manager() {
	c, now, line := p.change, p.now, p.line
	sum := func(name string) (all float64) {
		for _, labels := range now.named(name) {
			all += now.get(name + "/" + labels)
		}
		return all
	}
	free, memory := sum("manager_vm_free_bytes"), sum("manager_vm_memory_bytes")
	line("memory", "%s free of %s in %.0f VMs  %s lent to caches", bytesOf(free), bytesOf(memory), sum("manager_vms"), bytesOf(memory-free))
	for _, labels := range now.named("manager_vms") {
		line("", "%s free of %s in %.0f VMs  %s", bytesOf(now.get("manager_vm_free_bytes/"+labels)), bytesOf(now.get("manager_vm_memory_bytes/"+labels)),
			now.get("manager_vms/"+labels), poolOf(labels))
	}
	line("caches", "%.0f of %s in all  %.0f without a client  %.0f ended with their leases", now.get("manager_caches"), bytesOf(now.get("manager_capacity_bytes")),
		now.get("manager_lingering_caches"), now.get("manager_expirations_total"))
	line("SLOs", "%.0f broken  %s windows/s judged  %s/s missed", now.get("manager_slo_broken_caches"), short(c.rate("manager_slo_windows_judged_total")),
		short(c.rate("manager_slo_windows_missed_total")))
	line("cost", "$%.4g an hour for caches  $%.4g for VMs that are kept ready", now.get("manager_cost_dollars_per_hour"), now.get("manager_warm_cost_dollars_per_hour"))
	p.text.WriteByte('\n')

	line("changes", "%s/s allocated  %s/s refused  %s/s reallocated  %s/s taken up", short(c.rate("manager_allocations_total")), short(c.rate("manager_refusals_total")),
		short(c.rate("manager_reallocations_total")), short(c.rate("manager_attachments_total")))
	line("VMs", "%.0f reclaimed  %.0f failed  %.0f suspected  %.0f moves asked  %s/s leave", now.get("manager_reclaims_total"), now.get("manager_failures_total"),
		now.get("manager_suspicions_total"), now.get("manager_moves_asked_total"), bytesOf(now.get("manager_migration_bytes_per_second")))
	if now.get("manager_blind") != 0 {
		line("", "half of the servers are silent: none is suspected")
	}
	p.text.WriteByte('\n')

	p.times("catalog", "manager_catalog_commit_seconds")
	calls := labelsOf(now.Histograms, "manager_call_seconds")
	often := func(procedure string) float64 {
		_, n := c.grown("manager_call_seconds/" + procedure)
		return n
	}
	slices.SortStableFunc(calls, func(a, b string) int { return int(often(b) - often(a)) })
	for _, procedure := range calls {
		if often(procedure) > 0 {
			p.times(procedure, "manager_call_seconds/"+procedure)
		}
	}
}

// times formats the new values of a histogram of times.
func (p *page) times(name, key string) {
	_, n := p.grown(key)
	p.line(name, "%s/s  p50 %s  p99 %s", short(n/p.seconds()), upperBound(p.quantile(key, 0.5)), upperBound(p.quantile(key, 0.99)))
}

// poolOf names a pool of VMs by the values of its labels: machine, spot, state and type.
func poolOf(labels string) string {
	values := strings.Split(labels, "/")
	if len(values) != 4 {
		return labels // a name has a slash
	}
	parts := []string{values[2]}
	if values[3] != "" {
		parts = append(parts, "type "+values[3])
	}
	if values[1] == "true" {
		parts = append(parts, "spot")
	}
	if values[0] != "" {
		parts = append(parts, "on "+values[0])
	}
	return strings.Join(parts, "  ")
}
