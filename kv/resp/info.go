package resp

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// redisVersion is the Redis whose behaviour the server follows. Clients choose by
// it what they may ask for.
const redisVersion = "7.0.15"

var infoSections = []struct {
	name  string
	lines func(*Server) string
}{
	{"Server", infoServer}, {"Clients", infoClients}, {"Memory", infoMemory}, {"Stats", infoStats},
}

// info tells about the server, by sections.
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
	all := r.len() == 1 || asked("all", "default", "everything")
	var sections []string
	for _, s := range infoSections {
		if all || asked(strings.ToLower(s.name)) {
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
	used := m.MemoryBytes + m.IndexBytes
	return fmt.Sprintf("used_memory:%d\nused_memory_human:%v\nlog_memory:%d\nlog_memory_budget:%d\nindex_memory:%d\nlarge_client_buffers:%d\nlog_begin:%d\nlog_head:%d\nlog_tail:%d\n",
		used, units.Size(used), m.MemoryBytes, m.MemoryBudget, m.IndexBytes, s.large.used.Load(), m.Begin, m.Head, m.Tail)
}

func infoStats(s *Server) string {
	m := s.store.Metrics()
	var b strings.Builder
	fmt.Fprintf(&b, "total_connections_received:%d\ntotal_commands_processed:%d\n", s.counts.connections.Load(), s.counts.commands.Load())
	fmt.Fprintf(&b, "store_reads:%d\nstore_upserts:%d\nstore_rmws:%d\nstore_deletes:%d\n", m.Reads, m.Upserts, m.RMWs, m.Deletes)
	fmt.Fprintf(&b, "store_reads_memory:%d\n", m.ReadsMemory)
	for tier, n := range m.ReadsTier {
		fmt.Fprintf(&b, "store_reads_tier%d:%d\n", tier, n)
	}
	fmt.Fprintf(&b, "store_device_reads:%d\n", m.DeviceReads)
	return b.String()
}
