package resp

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// fieldsOf returns the fields of a line of CLIENT LIST, or of lines of INFO.
func fieldsOf(t *testing.T, reply string, separators string, equals string) map[string]string {
	t.Helper()
	if text, err := strconv.Unquote(reply); err == nil {
		reply = text
	}
	fields := map[string]string{}
	for _, word := range strings.FieldsFunc(reply, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if name, value, ok := strings.Cut(word, equals); ok {
			fields[name] = value
		}
	}
	return fields
}

// TestAdministrationAsRedis compares the replies to administrative commands with Redis's.
func TestAdministrationAsRedis(t *testing.T) {
	redis, redisToo := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours, oursToo := dial(t, addr), dial(t, addr)
	both := func(args ...string) (got, want string) {
		t.Helper()
		return ours.do(args...), redis.do(args...)
	}
	same := func(args ...string) {
		t.Helper()
		if got, want := both(args...); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
	same("CLIENT", "KILL", "USER", "nosuch")
	same("CLIENT", "KILL", "USER", "nosuch", "SKIPME", "no")
	same("CLIENT", "KILL", "USER", "default", "ID", "12345")

	// Distributions of latencies, by the name of a command or of its container.
	times := regexp.MustCompile(`histogram_usec.*`)
	for _, args := range [][]string{{"config"}, {"CONFIG|GET"}, {"client", "nosuch"}, {"latency"}, {"config", "get"}} {
		both("CONFIG", "GET", "maxmemory")
		got, want := both(append([]string{"LATENCY", "HISTOGRAM"}, args...)...)
		if g, w := times.ReplaceAllString(got, ""), times.ReplaceAllString(want, ""); strings.Contains(g, "config|get") != strings.Contains(w, "config|get") {
			t.Errorf("LATENCY HISTOGRAM %q: %s, want %s", args, got, want)
		}
	}

	// The number of keys directly after an expired key is deleted.
	for _, del := range []string{"DEL", "UNLINK", "GETDEL"} {
		both("FLUSHALL")
		both("SET", "stays", "v")
		for _, p := range []*peer{ours, redis} {
			p.do("SET", "k", "v", "PX", "1")
			for p.do("EXISTS", "k") != ":0" {
			}
		}
		same(del, "k")
		same("DBSIZE")
		same("SET", "k", "v", "PXAT", "1")
		same(del, "k")
		same("DBSIZE")
	}

	// Connections.
	redisToo.do("GET", "k")
	oursToo.do("GET", "k")
	for _, args := range [][]string{{"CLIENT", "INFO"}, {"CLIENT", "LIST"}} {
		got, want := both(args...)
		for i := range strings.Count(want, "id=") {
			g := fieldsOf(t, strings.Split(got, "id=")[i+1], ` \n"`, "=")
			w := fieldsOf(t, strings.Split(want, "id=")[i+1], ` \n"`, "=")
			for _, field := range []string{"cmd", "qbuf", "argv-mem", "multi-mem", "obl", "oll", "omem"} {
				if g[field] != w[field] {
					t.Errorf("%q, connection %d, %s: %q, want %q", args, i, field, g[field], w[field])
				}
			}
			for _, field := range []string{"qbuf-free", "tot-mem"} {
				if (g[field] == "0" || g[field] == "") != (w[field] == "0" || w[field] == "") && i == 0 {
					t.Errorf("%q, connection %d, %s: %q, want about %q", args, i, field, g[field], w[field])
				}
			}
		}
	}

	// Errors by kind, and processor time.
	same("CONFIG", "RESETSTAT")
	same("INFO", "errorstats")
	for _, args := range [][]string{{"NOSUCH"}, {"GET"}, {"SET", "k", "v"}, {"HGET", "k", "f"}, {"HSET", "k", "f", "v"}, {"INCR", "k"}, {"EXEC"}, {"AUTH", "a", "b"}, {"RESTORE", "k", "0", "x"}} {
		both(args...)
	}
	same("INFO", "errorstats")
	got, want := both("INFO")
	g, w := fieldsOf(t, got, "\r\n", ":"), fieldsOf(t, want, "\r\n", ":")
	for name := range w {
		if g[name] == "" && (strings.HasPrefix(name, "errorstat_") || strings.HasPrefix(name, "used_cpu_") && !strings.HasSuffix(name, "_main_thread")) {
			t.Errorf("INFO lacks %s", name)
		}
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user", "used_cpu_sys_children"} {
		if n, err := strconv.ParseFloat(g[name], 64); err != nil || n < 0 {
			t.Errorf("INFO says %s is %q", name, g[name])
		}
	}
	testrun.Until(t, "the process has used a tick", func() bool {
		got, _ := both("INFO")
		used, err := strconv.ParseFloat(fieldsOf(t, got, "\r\n", ":")["used_cpu_user"], 64)
		return err == nil && used > 0
	})
}
