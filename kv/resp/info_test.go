package resp

import (
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// infoFields returns the names of INFO's fields.
func infoFields(p *peer) (names []string) {
	p.t.Helper()
	for _, line := range strings.Split(strings.Trim(p.do("INFO", "everything"), `"`), `\r\n`) {
		name, _, ok := strings.Cut(line, ":")
		if ok && !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, "cmdstat_") && !strings.HasPrefix(name, "latency_percentiles_") && !strings.HasPrefix(name, "errorstat_") {
			names = append(names, name)
		}
	}
	return names
}

// notInINFO are Redis's fields about what the server has, but does not count, and about how Redis was built.
var notInINFO = []string{"atomicvar_api", "gcc_version", "monotonic_clock", "total_reads_processed", "total_writes_processed"}

// TestInfoHasRedisFields: INFO has the fields of Redis, which tools read, each once.
func TestInfoHasRedisFields(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{Durability: DurabilityEverySecond})
	p := dial(t, addr)
	ours := infoFields(p)
	for _, name := range infoFields(redis) {
		if !slices.Contains(ours, name) && !slices.Contains(notInINFO, name) {
			t.Errorf("INFO lacks %s", name)
		}
	}
	slices.Sort(ours)
	if once := slices.Compact(slices.Clone(ours)); len(once) != len(ours) {
		t.Errorf("INFO has a field twice: %v", ours)
	}
	for _, name := range []string{"blocked_clients", "used_memory", "connected_clients", "total_commands_processed", "total_connections_received", "aof_current_size", "used_memory_dataset_perc"} {
		if !slices.Contains(ours, name) {
			t.Errorf("INFO lacks %s", name)
		}
	}
}

// TestWaitAndModules: WAIT and MODULE LIST answer as Redis does without replicas and modules.
func TestWaitAndModules(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	for name, p := range map[string]*peer{"Redis": redis, "redykv": dial(t, addr)} {
		for command, want := range map[string]string{
			"WAIT 0 0": ":0", "WAIT -1 0": ":0", "WAIT 1 1": ":0", "MODULE LIST": "[]",
			"WAIT a 0": "-ERR value is not an integer or out of range", "WAIT 0 a": "-ERR timeout is not an integer or out of range", "WAIT 0 -1": "-ERR timeout is negative",
		} {
			if got := p.do(strings.Fields(command)...); got != want {
				t.Errorf("%s: %s: %s, want %s", name, command, got, want)
			}
		}
		p.send(encode("MULTI") + encode("WAIT", "1", "0") + encode("EXEC"))
		if got := p.reply() + p.reply() + p.reply(); got != "+OK+QUEUED[:0]" {
			t.Errorf("%s: WAIT in a transaction: %s", name, got)
		}
	}
}

// TestWaitEnds: a WAIT without a timeout sends earlier replies, and ends with its client and with the server.
func TestWaitEnds(t *testing.T) {
	s, st, addr, served := serving(t)
	gone, stays := dial(t, addr), dial(t, addr)
	for _, p := range []*peer{gone, stays} {
		p.send(encode("PING") + encode("WAIT", "1", "0"))
		if got := p.reply(); got != "+PONG" {
			t.Error(got)
		}
	}
	if err := gone.conn.Close(); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the client has left", func() bool { return s.Metrics().Clients == 1 })
	shutDown(t, s, served)
	if got := stays.reply(); got != ":0" {
		t.Error(got)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
