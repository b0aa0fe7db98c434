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
		redisVersion, runtime.GOOS, runtime.GOARCH, 32<<(^uint(0)>>63), os.Getpid(), s.runID, port, time.Now().UnixMicro(), up, up/(24*60*60)) +
		fmt.Sprintf("hz:10\nconfigured_hz:10\nlru_clock:%d\nexecutable:%s\nconfig_file:\nprocess_supervised:no\nmultiplexing_api:epoll\nio_threads_active:0\n",
			time.Now().Unix()&(1<<24-1), executable())
}

// executable returns the path of the program, or "" if it is unknown.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
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
		m.Log.MemoryBytes, m.Log.MemoryBudget, m.Index.Bytes, s.large.used.Load(), m.Log.Begin, m.Log.Head, m.Log.Tail) +
		// The index is what Redis calls overhead, and the allocator wastes nothing that is known.
		fmt.Sprintf("used_memory_peak_perc:%.2f%%\nused_memory_overhead:%d\nused_memory_startup:0\nused_memory_dataset:%d\nused_memory_dataset_perc:%.2f%%\n"+
			"allocator_allocated:%d\nallocator_active:%d\nallocator_resident:%d\nrss_overhead_ratio:%.2f\nrss_overhead_bytes:%d\nmem_fragmentation_bytes:%d\n"+
			"total_system_memory_human:%v\nused_memory_scripts_human:%v\nused_memory_scripts_eval:%d\n",
			100*float64(used)/float64(max(peak, 1)), m.Index.Bytes, m.Log.MemoryBytes, 100*float64(m.Log.MemoryBytes)/float64(max(used, 1)),
			used, used, used, float64(resident)/float64(max(used, 1)), resident-used, resident-used,
			units.Size(all), units.Size(scriptBytes), scriptBytes) + infoNoMemory
}

// Lines of INFO about what the server does not have. Tools read them.
const (
	infoNoMemory = "allocator_frag_ratio:1.00\nallocator_frag_bytes:0\nallocator_rss_ratio:1.00\nallocator_rss_bytes:0\n" +
		"used_memory_lua_human:0B\nused_memory_vm_eval:0\nused_memory_vm_functions:0\nused_memory_vm_total:0\nused_memory_vm_total_human:0B\n" +
		"used_memory_functions:0\nnumber_of_functions:0\nnumber_of_libraries:0\nmem_not_counted_for_evict:0\nmem_replication_backlog:0\n" +
		"mem_total_replication_buffers:0\nmem_clients_slaves:0\nmem_cluster_links:0\nmem_aof_buffer:0\nlazyfreed_objects:0\n"
	infoNoForks = "current_cow_peak:0\ncurrent_cow_size:0\ncurrent_cow_size_age:0\ncurrent_fork_perc:0.00\ncurrent_save_keys_processed:0\n" +
		"current_save_keys_total:0\nrdb_last_cow_size:0\nrdb_last_load_keys_expired:0\nrdb_last_load_keys_loaded:0\naof_rewrites:0\n" +
		"aof_rewrites_consecutive_failures:0\naof_last_cow_size:0\nmodule_fork_in_progress:0\nmodule_fork_last_cow_size:0\n"
	infoNoStats = "total_net_repl_input_bytes:0\ntotal_net_repl_output_bytes:0\ninstantaneous_input_repl_kbps:0.00\ninstantaneous_output_repl_kbps:0.00\n" +
		"expire_cycle_cpu_milliseconds:0\ntotal_eviction_exceeded_time:0\ncurrent_eviction_exceeded_time:0\ntotal_forks:0\n" +
		"slave_expires_tracked_keys:0\nactive_defrag_hits:0\nactive_defrag_misses:0\nactive_defrag_key_hits:0\nactive_defrag_key_misses:0\n" +
		"total_active_defrag_time:0\ncurrent_active_defrag_time:0\nunexpected_error_replies:0\ndump_payload_sanitizations:0\n" +
		"io_threaded_reads_processed:0\nio_threaded_writes_processed:0\nreply_buffer_shrinks:0\nreply_buffer_expands:0\n"
)

// rate estimates how much a number grows in a second, between two calls of INFO that are a second or more apart.
type rate struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time
	last uint64
	per  float64
}

func (r *rate) of(n uint64, since time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		r.at = since
	}
	if took := time.Since(r.at); took >= time.Second {
		r.per, r.at, r.last = float64(n-r.last)/took.Seconds(), time.Now(), n
	}
	return r.per
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
	fmt.Fprintf(&b, "instantaneous_ops_per_sec:%.0f\ninstantaneous_input_kbps:%.2f\ninstantaneous_output_kbps:%.2f\ntotal_net_input_bytes:%d\ntotal_net_output_bytes:%d\nrejected_connections:%d\nsync_full:0\nsync_partial_ok:0\nsync_partial_err:0\n",
		s.commandRate.of(s.counts.commands.Load(), s.started), s.inRate.of(s.counts.in.Load(), s.started)/1024, s.outRate.of(s.counts.out.Load(), s.started)/1024, s.counts.in.Load(), s.counts.out.Load(), s.counts.rejected.Load())
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
	return b.String() + infoNoStats
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
		s.loading.info(), s.writes()-s.savedWrites.Load(), running, s.saved.Load(), saved, journal, written, s.opts.Durability) +
		fmt.Sprintf("rdb_saves:%d\n", s.saveCount.Load()) + infoNoForks + s.infoJournal(journal)
}

// infoJournal returns the lines that Redis has only with its append-only file. The log is that here.
func (s *Server) infoJournal(on int) string {
	if on == 0 {
		return ""
	}
	m := s.storeMetrics()
	return fmt.Sprintf("aof_current_size:%d\naof_base_size:0\naof_pending_rewrite:0\naof_buffer_length:0\naof_pending_bio_fsync:0\naof_delayed_fsync:0\n",
		m.Log.Tail-m.Log.Begin)
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
	b.WriteString("used_cpu_sys_main_thread:0.000000\nused_cpu_user_main_thread:0.000000\n") // no thread runs all commands
	return b.String()
}
