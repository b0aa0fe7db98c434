package resp

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/units"
)

// redisVersion is the version of Redis whose behaviour the server follows. Clients choose
// features by it.
const redisVersion = "7.0.15"

var infoSections = []struct {
	name     string
	lines    func(*Server) string
	onDemand bool // only if requested by name, or with "all"
}{
	{"Server", infoServer, false}, {"Clients", infoClients, false}, {"Memory", infoMemory, false},
	{"Persistence", infoPersistence, false}, {"Stats", infoStats, false}, {"Replication", infoReplication, false},
	{"CPU", infoCPU, false}, {"Commandstats", infoCommands, true}, {"Errorstats", infoErrors, false},
	{"Latencystats", infoLatencies, true}, {"Keyspace", infoKeys, false},
}

// info implements INFO.
func info(c *client, r request) {
	asked := func(words ...string) bool {
		for i := 1; i < r.len(); i++ {
			for _, word := range words {
				if is(r.arg(i), word) {
					return true
				}
			}
		}
		return false
	}
	all := asked("all", "everything")
	usual := r.len() == 1 || all || asked("default")
	var sections []string
	for _, s := range infoSections {
		if all || usual && !s.onDemand || asked(strings.ToLower(s.name)) {
			lines := "# " + s.name + "\n" + s.lines(c.server)
			sections = append(sections, strings.ReplaceAll(lines, "\n", "\r\n"))
		}
	}
	c.out = appendText(c.reply(), c.resp3, strings.Join(sections, "\r\n"))
}

func infoServer(s *Server) string {
	return fmt.Sprintf("redis_version:%s\nredis_mode:standalone\nserver_name:redykv\nos:%s %s\narch_bits:%d\nprocess_id:%d\nuptime_in_seconds:%d\n",
		redisVersion, runtime.GOOS, runtime.GOARCH, 32<<(^uint(0)>>63), os.Getpid(), int64(time.Since(s.started)/time.Second))
}

func infoClients(s *Server) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("connected_clients:%d\nmaxclients:%d\n", len(s.clients), s.opts.MaxClients)
}

func infoMemory(s *Server) string {
	m := s.store.Metrics()
	used := m.Log.MemoryBytes + m.Index.Bytes
	return fmt.Sprintf("used_memory:%d\nused_memory_human:%v\nmaxmemory_policy:noeviction\nlog_memory:%d\nlog_memory_budget:%d\nindex_memory:%d\nlarge_client_buffers:%d\nlog_begin:%d\nlog_head:%d\nlog_tail:%d\n",
		used, units.Size(used), m.Log.MemoryBytes, m.Log.MemoryBudget, m.Index.Bytes, s.large.used.Load(), m.Log.Begin, m.Log.Head, m.Log.Tail)
}

func infoStats(s *Server) string {
	m := s.store.Metrics()
	var b strings.Builder
	fmt.Fprintf(&b, "total_connections_received:%d\ntotal_commands_processed:%d\n", s.counts.connections.Load(), s.counts.commands.Load())
	fmt.Fprintf(&b, "keyspace_hits:%d\nkeyspace_misses:%d\nevicted_keys:0\ntotal_error_replies:%d\nacl_access_denied_auth:%d\n",
		s.stats.hits.Load(), s.stats.misses.Load(), s.stats.errors.Load(), s.stats.deniedLogins.Load())
	fmt.Fprintf(&b, "store_reads:%d\nstore_upserts:%d\nstore_rmws:%d\nstore_deletes:%d\n", m.Operations.Reads, m.Operations.Upserts, m.Operations.RMWs, m.Operations.Deletes)
	fmt.Fprintf(&b, "store_reads_memory:%d\n", m.ReadsFrom.Memory)
	for tier, n := range m.ReadsFrom.Tier {
		fmt.Fprintf(&b, "store_reads_tier%d:%d\n", tier, n)
	}
	for i := range m.Device.Tiers {
		t := &m.Device.Tiers[i]
		fmt.Fprintf(&b, "store_tier%d:name=%s,healthy=%t,complete=%t,missing=%d\n", i, t.Name, t.Healthy, t.Lost == nil, t.Missing)
	}
	fmt.Fprintf(&b, "store_device_reads:%d\n", m.Device.Reads)
	return b.String()
}

func infoPersistence(s *Server) string {
	running, journal := 0, 0
	saved, written := "ok", "ok"
	if s.saving.Load() {
		running = 1
	}
	if s.unsaved.Load() {
		saved = "err"
	}
	if s.opts.Durability != DurabilityNone {
		journal = 1
	}
	if s.Durable() != nil {
		written = "err"
	}
	return fmt.Sprintf("loading:0\nrdb_bgsave_in_progress:%d\nrdb_last_save_time:%d\nrdb_last_bgsave_status:%s\naof_enabled:%d\naof_last_write_status:%s\ndurability:%v\n",
		running, s.saved.Load(), saved, journal, written, s.opts.Durability)
}

func infoReplication(*Server) string { return "role:master\nconnected_slaves:0\n" }

func infoCommands(s *Server) string {
	var b strings.Builder
	for _, m := range s.Commands() {
		fmt.Fprintf(&b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f\n",
			m.Name, m.Calls, m.Took.Microseconds(), float64(m.Took.Nanoseconds())/1e3/float64(m.Calls))
	}
	return b.String()
}

func infoLatencies(s *Server) string {
	var b strings.Builder
	for _, m := range s.Commands() {
		us := func(q float64) float64 { return float64(m.Quantile(q).Nanoseconds()) / 1e3 }
		fmt.Fprintf(&b, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f\n", m.Name, us(0.5), us(0.99), us(0.999))
	}
	return b.String()
}

func infoKeys(s *Server) string {
	// INFO must be fast, so it does not scan.
	n, expiring, counted := s.store.KeyCount()
	if !counted || n == 0 {
		return ""
	}
	return fmt.Sprintf("db0:keys=%d,expires=%d,avg_ttl=0\n", n, expiring)
}

// infoErrors returns a line for each kind of error reply.
func infoErrors(s *Server) string {
	k := &s.stats.errorKinds
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(k.counts)) {
		fmt.Fprintf(&b, "errorstat_%s:count=%d\n", kind, k.counts[kind])
	}
	return b.String()
}

// infoCPU returns the processor time of the process and of its ended children.
func infoCPU(*Server) string {
	var b strings.Builder
	for _, who := range []struct {
		number int
		suffix string
	}{{unix.RUSAGE_SELF, ""}, {unix.RUSAGE_CHILDREN, "_children"}} {
		var used unix.Rusage
		if unix.Getrusage(who.number, &used) != nil {
			continue
		}
		fmt.Fprintf(&b, "used_cpu_sys%s:%.6f\nused_cpu_user%s:%.6f\n", who.suffix, float64(used.Stime.Nano())/1e9, who.suffix, float64(used.Utime.Nano())/1e9)
	}
	return b.String()
}
