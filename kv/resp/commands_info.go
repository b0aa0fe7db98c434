package resp

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// redisVersion is the version of Redis whose behaviour the server follows. Clients choose
// features by it.
const (
	redisVersion       = "7.0.15"
	redisVersionNumber = 7<<16 | 15
)

var infoSections = []struct {
	name     string
	lines    func(*Server) string
	onDemand bool // only if requested by name, or with "all"
}{
	{"Server", infoServer, false}, {"Clients", infoClients, false}, {"Memory", infoMemory, false},
	{"Persistence", infoPersistence, false}, {"Stats", infoStats, false}, {"Replication", infoReplication, false},
	{"CPU", infoCPU, false}, {"Commandstats", infoCommands, true}, {"Errorstats", infoErrors, false},
	{"Latencystats", infoLatencies, true},
	{"Cluster", infoCluster, false}, {"Keyspace", infoKeys, false},
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
	c.flush() // the commands before it count
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
	up := int64(time.Since(s.started) / time.Second)
	port := "0"
	for _, setting := range s.settings() {
		if setting.Name == "port" {
			port = setting.Get()
		}
	}
	return fmt.Sprintf("redis_version:%s\nredis_git_sha1:00000000\nredis_git_dirty:0\nredis_build_id:0\nredis_mode:standalone\nserver_name:redykv\nos:%s %s\narch_bits:%d\n"+
		"process_id:%d\nrun_id:%s\ntcp_port:%s\nserver_time_usec:%d\nuptime_in_seconds:%d\nuptime_in_days:%d\n",
		redisVersion, runtime.GOOS, runtime.GOARCH, 32<<(^uint(0)>>63), os.Getpid(), s.runID, port, time.Now().UnixMicro(), up, up/(24*60*60))
}

func infoClients(s *Server) string {
	tracking, _, _, _ := s.tracking.stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	input, output := int64(0), int64(0)
	for c := range s.clients {
		input, output = max(input, c.inputs.Load()), max(output, c.outputs.Load())
	}
	return fmt.Sprintf("connected_clients:%d\ncluster_connections:0\nmaxclients:%d\nclient_recent_max_input_buffer:%d\nclient_recent_max_output_buffer:%d\n"+
		"blocked_clients:%d\ntracking_clients:%d\nclients_in_timeout_table:0\n", len(s.clients), s.opts.MaxClients, input, output, s.blocking.waiting.Load(), tracking)
}

func infoMemory(s *Server) string {
	m := s.storeMetrics()
	used := m.Log.MemoryBytes + m.Index.Bytes
	raise(&s.usedPeak, used)
	peak, resident := s.usedPeak.Load(), mem.Resident()
	all := mem.Total()
	scripts, scriptBytes := s.scripts.stats()
	most := s.opts.Cache.maxMemory()
	return fmt.Sprintf("used_memory:%d\nused_memory_human:%v\nused_memory_rss:%d\nused_memory_rss_human:%v\nused_memory_peak:%d\nused_memory_peak_human:%v\nused_memory_lua:0\nnumber_of_cached_scripts:%d\nused_memory_scripts:%d\n"+
		"total_system_memory:%d\nmaxmemory:%d\nmaxmemory_human:%v\nmaxmemory_policy:%s\nmem_fragmentation_ratio:%.2f\nmem_clients_normal:%d\nmem_allocator:go\nlazyfree_pending_objects:0\n"+
		"log_memory:%d\nlog_memory_budget:%d\nindex_memory:%d\nlarge_client_buffers:%d\nlog_begin:%d\nlog_head:%d\nlog_tail:%d\n",
		used, units.Size(used), resident, units.Size(resident), peak, units.Size(peak), scripts, scriptBytes,
		all, most, units.Size(most), s.opts.Cache.policy(), float64(resident)/float64(max(used, 1)), s.large.used.Load()+s.replies.used.Load(),
		m.Log.MemoryBytes, m.Log.MemoryBudget, m.Index.Bytes, s.large.used.Load(), m.Log.Begin, m.Log.Head, m.Log.Tail)
}

// rate estimates the commands a second between two calls of INFO that are a second or more apart.
type rate struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time
	last uint64
	per  float64
}

func (r *rate) of(n uint64, since time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		r.at = since
	}
	if took := time.Since(r.at); took >= time.Second {
		r.per, r.at, r.last = float64(n-r.last)/took.Seconds(), time.Now(), n
	}
	return int64(r.per)
}

func infoStats(s *Server) string {
	m := s.storeMetrics()
	var b strings.Builder
	fmt.Fprintf(&b, "total_connections_received:%d\ntotal_commands_processed:%d\n", s.counts.connections.Load(), s.counts.commands.Load())
	expired := int64(0)
	if !s.loading.on.Load() {
		expired, _ = s.store.ExpiredKeys()
	}
	_, keys, items, prefixes := s.tracking.stats()
	fmt.Fprintf(&b, "instantaneous_ops_per_sec:%d\ntotal_net_input_bytes:%d\ntotal_net_output_bytes:%d\nrejected_connections:%d\nsync_full:0\nsync_partial_ok:0\nsync_partial_err:0\n",
		s.rate.of(s.counts.commands.Load(), s.started), s.counts.in.Load(), s.counts.out.Load(), s.counts.rejected.Load())
	fmt.Fprintf(&b, "keyspace_hits:%d\nkeyspace_misses:%d\nexpired_keys:%d\nexpired_stale_perc:0.00\nexpired_time_cap_reached_count:0\nevicted_keys:%d\nevicted_clients:0\ntotal_error_replies:%d\nacl_access_denied_auth:%d\n",
		s.stats.hits.Load(), s.stats.misses.Load(), expired, m.Eviction.Keys, s.stats.errors.Load(), s.stats.deniedLogins.Load())
	fmt.Fprintf(&b, "latest_fork_usec:0\nmigrate_cached_sockets:0\nactive_defrag_running:0\ntracking_total_keys:%d\ntracking_total_items:%d\ntracking_total_prefixes:%d\n", keys, items, prefixes)
	fmt.Fprintf(&b, "pubsub_channels:%d\npubsub_patterns:%d\npubsubshard_channels:%d\n", s.pubsub.count(channels), s.pubsub.count(patterns), s.pubsub.count(shardChannels))
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
	return fmt.Sprintf("%sasync_loading:0\nrdb_changes_since_last_save:%d\nrdb_bgsave_in_progress:%d\nrdb_last_save_time:%d\nrdb_last_bgsave_status:%s\nrdb_last_bgsave_time_sec:-1\n"+
		"rdb_current_bgsave_time_sec:-1\naof_enabled:%d\naof_rewrite_in_progress:0\naof_rewrite_scheduled:0\naof_last_rewrite_time_sec:-1\naof_current_rewrite_time_sec:-1\n"+
		"aof_last_bgrewrite_status:ok\naof_last_write_status:%s\ndurability:%v\n",
		s.loading.info(), s.writes()-s.savedWrites.Load(), running, s.saved.Load(), saved, journal, written, s.opts.Durability)
}

// writes returns the number of operations that may have changed the store.
func (s *Server) writes() int64 {
	o := s.storeMetrics().Operations
	return int64(o.Upserts + o.RMWs + o.Deletes + o.Inserts)
}

func infoCluster(*Server) string { return "cluster_enabled:0\n" }

func infoReplication(s *Server) string {
	return fmt.Sprintf("role:master\nconnected_slaves:0\nmaster_failover_state:no-failover\nmaster_replid:%s\nmaster_replid2:%040d\nmaster_repl_offset:0\nsecond_repl_offset:-1\n"+
		"repl_backlog_active:0\nrepl_backlog_size:0\nrepl_backlog_first_byte_offset:0\nrepl_backlog_histlen:0\n", s.runID, 0)
}

func infoCommands(s *Server) string {
	var b strings.Builder
	for _, m := range s.Commands() {
		fmt.Fprintf(&b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d\n",
			m.Name, m.Calls, m.Took.Microseconds(), float64(m.Took.Nanoseconds())/1e3/float64(max(m.Calls, 1)), m.Refused)
	}
	return b.String()
}

func infoLatencies(s *Server) string {
	var b strings.Builder
	for _, m := range s.Commands() {
		if m.Calls == 0 {
			continue
		}
		us := func(q float64) float64 { return float64(m.Quantile(q).Nanoseconds()) / 1e3 }
		fmt.Fprintf(&b, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f\n", m.Name, us(0.5), us(0.99), us(0.999))
	}
	return b.String()
}

func infoKeys(s *Server) string {
	// INFO must be fast, so it does not scan.
	var b strings.Builder
	if s.loading.on.Load() {
		return ""
	}
	for db := range s.opts.Databases {
		if n, expiring, counted := s.store.KeyCountOf(uint8(db)); counted && n > 0 {
			fmt.Fprintf(&b, "db%d:keys=%d,expires=%d,avg_ttl=0\n", db, n, expiring)
		}
	}
	return b.String()
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
