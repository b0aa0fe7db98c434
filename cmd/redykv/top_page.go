package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// page is a page for the time between two scrapes.
type page struct {
	change
	text strings.Builder
}

func (p *page) line(name, format string, args ...any) {
	fmt.Fprintf(&p.text, "%-12s"+format+"\n", append([]any{name}, args...)...)
}

// topPage formats the page for the time between two scrapes.
func topPage(url string, before, now *numbers) string {
	p := &page{change: change{before, now}}
	_, manager := now.Values["redykv_manager_caches"]
	what := now.ready
	if manager {
		what = "manager"
	}
	up := now.at.Sub(time.Unix(0, int64(now.Values["process_start_time_seconds"]*1e9))).Truncate(time.Second)
	fmt.Fprintf(&p.text, "%s  %s  up %v  %s\n\n", url, what, up, now.at.Format(time.TimeOnly))
	if manager {
		p.manager()
	} else {
		p.server()
	}
	return p.text.String()
}

// server formats the metrics of a server.
func (p *page) server() {
	c, now, line := p.change, p.now, p.line
	const batches = "server_batch_seconds"
	line("clients", "%.0f connected  %s/s new  %s/s ended by the server", now.get("server_clients"), short(c.rate("server_connections_total")),
		short(c.rate("server_disconnected_total/rejected")+c.rate("server_disconnected_total/idle")+c.rate("server_disconnected_total/slow")))
	line("commands", "%s/s  %s/s in  %s/s out", short(c.rate("server_commands_total")), bytesOf(c.rate("server_bytes_total/in")), bytesOf(c.rate("server_bytes_total/out")))
	line("latency", "p50 %s  p90 %s  p99 %s  p99.9 %s  (batches)", upperBound(c.quantile(batches, 0.5)), upperBound(c.quantile(batches, 0.9)), upperBound(c.quantile(batches, 0.99)), upperBound(c.quantile(batches, 0.999)))
	line("operations", "%s reads/s  %s upserts/s  %s rmws/s  %s inserts/s  %s deletes/s", short(c.rate("operations_total/read")), short(c.rate("operations_total/upsert")),
		short(c.rate("operations_total/rmw")), short(c.rate("operations_total/insert")), short(c.rate("operations_total/delete")))
	line("reads from", "%s", hitShares(c))
	p.text.WriteByte('\n')

	line("memory", "log %s of %s  index %s  read cache %s of %s  requests %s  replies %s", bytesOf(now.get("memory_bytes/log")), bytesOf(now.get("memory_budget_bytes/log")),
		bytesOf(now.get("memory_bytes/index")), bytesOf(now.get("memory_bytes/cache")), bytesOf(now.get("memory_budget_bytes/cache")),
		bytesOf(now.get("server_buffer_bytes/requests")), bytesOf(now.get("server_buffer_bytes/replies")))
	tail := now.get("log_address_bytes/tail")
	line("log", "%s  grows %s/s  flushed %s/s  %s to be flushed", bytesOf(tail-now.get("log_address_bytes/begin")), bytesOf(c.rate("log_address_bytes/tail")),
		bytesOf(c.rate("log_flushed_bytes_total")), bytesOf(tail-now.get("log_address_bytes/flushed")))
	for _, tier := range tiersOf(now) {
		state := "healthy"
		if now.get("tier_healthy/"+tier.labels) == 0 {
			state = "out"
		}
		line("tier "+tier.name, "%s  %s hits/s  %s/s read  %s/s written  %s missing", state, short(c.rate("tier_hits_total/"+tier.labels)),
			bytesOf(c.rate("tier_read_bytes_total/"+tier.labels)), bytesOf(c.rate("tier_written_bytes_total/"+tier.labels)), bytesOf(now.get("tier_missing_bytes/"+tier.labels)))
	}
	p.text.WriteByte('\n')

	line("commits", "%s/s  %.0f failed", short(c.rate("commits_total")), now.get("commit_errors_total"))
	line("checkpoints", "%.0f made  %.0f kept  %s pinned  %.0f failed  %s", now.get("checkpoints_total"), now.get("checkpoints_kept"), bytesOf(now.get("checkpoints_pinned_bytes")), now.get("checkpoint_errors_total"), lastCheckpoint(now))
	line("compaction", "%.0f made  %s/s read  %s/s copied  %s reclaimed", now.get("compactions_total"), bytesOf(c.rate("compaction_read_bytes_total")),
		bytesOf(c.rate("compaction_copied_bytes_total")), bytesOf(now.get("compaction_reclaimed_bytes_total")))
	line("errors", "%.0f in the background", now.get("background_errors_total"))
}

// tier is one of the store's tiers, with the labels of its metrics.
type tier struct{ number, name, labels string }

func tiersOf(n *numbers) (tiers []tier) {
	for _, labels := range n.named("tier_healthy") {
		at := strings.LastIndexByte(labels, '/') // the label values are name and tier
		tiers = append(tiers, tier{labels[at+1:], labels[:at], labels})
	}
	return tiers
}

// hitShares formats the share of reads that each place answered.
func hitShares(c change) string {
	names := map[string]string{"memory": "memory", "cache": "read cache", "tier0": "storage"}
	for _, t := range tiersOf(c.now) {
		names["tier"+t.number] = t.name
	}
	all, labels := 0.0, c.now.named("reads_answered_total")
	for _, label := range labels {
		all += c.of("reads_answered_total/" + label)
	}
	if all == 0 {
		return "-"
	}
	var parts []string
	for _, from := range []string{"memory", "cache", "tier0", "tier1", "tier2", "tier3"} {
		if n := c.of("reads_answered_total/" + from); n > 0 || names[from] != "" && from != "cache" {
			name := names[from]
			if name == "" {
				name = from
			}
			parts = append(parts, fmt.Sprintf("%s %.1f%%", name, 100*n/all))
		}
	}
	return strings.Join(parts, "  ")
}

func lastCheckpoint(n *numbers) string {
	made := n.get("checkpoint_last_timestamp_seconds")
	if made == 0 {
		return "none since the start"
	}
	return fmt.Sprintf("the last %v ago, in %v, of %s", n.at.Sub(time.Unix(int64(made), 0)).Truncate(time.Second),
		time.Duration(n.get("checkpoint_last_duration_seconds")*1e9).Round(time.Millisecond), bytesOf(n.get("checkpoint_last_bytes")))
}

// short formats a number to about three digits.
func short(v float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v >= unit.size {
			return fmt.Sprintf("%.3g%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}

func bytesOf(v float64) string { return units.Size(v).String() }

// upperBound formats an upper bound of latencies.
func upperBound(seconds float64) string {
	switch {
	case math.IsNaN(seconds):
		return "-"
	case math.IsInf(seconds, 1):
		return "more"
	}
	return "<" + time.Duration(seconds*1e9).String()
}
