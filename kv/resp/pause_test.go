package resp

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestPause: commands wait until the pause ends, with all connections, and in their order.
func TestPause(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, s *Server, connect func() *peer) {
		admin, p := connect(), connect()
		if got := admin.do("CLIENT", "PAUSE", "1000000", "WRITE"); got != "+OK" {
			t.Fatal(got)
		}
		p.send(encode("GET", "a") + encode("SET", "a", "1") + encode("GET", "a") + encode("MULTI") + encode("INCR", "a") + encode("EXEC"))
		p.expects("nil")
		if got := admin.do("GET", "a"); got != "nil" {
			t.Error(got)
		}
		if got := admin.do("CLIENT", "UNPAUSE"); got != "+OK" {
			t.Fatal(got)
		}
		p.expects("+OK", `"1"`, "+OK", "+QUEUED", "[:2]")
		admin.do("CLIENT", "PAUSE", "1000000")
		admin.do("CLIENT", "PAUSE", "1", "WRITE") // neither shortens nor weakens it
		p.send(encode("GET", "a"))
		admin.do("CLIENT", "UNPAUSE")
		p.expects(`"2"`)
		admin.do("CLIENT", "PAUSE", "20")
		p.send(encode("GET", "a"))
		p.expects(`"2"`)                                                               // the time has come
		testrun.Until(t, "the pause ends", func() bool { return !s.paused.on.Load() }) // it may have ended before the command came
		admin.do("CLIENT", "PAUSE", "1000000")
		p.send(encode("GET", "a")) // waits while the server is closed
	})
}

func TestPauseAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	began := time.Now()
	for _, command := range []string{
		"CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT PAUSE 1 nonsense", "CLIENT PAUSE 1 ALL x", "CLIENT UNPAUSE", "CLIENT PAUSE 0", "CLIENT PAUSE 1 write", "CLIENT UNPAUSE x",
		"CLIENT PAUSE 9223372036854775807", "CLIENT UNPAUSE", "OBJECT FREQ none", "OBJECT IDLETIME none", "SET k v", "OBJECT FREQ k", "OBJECT IDLETIME k", "COMMAND INFO client|pause", "COMMAND INFO client|unpause",
		"COMMAND INFO object|freq", "COMMAND INFO object|idletime",
	} {
		want, got := redis.do(strings.Fields(command)...), ours.do(strings.Fields(command)...)
		if command == "OBJECT IDLETIME k" { // seconds pass between the commands on a busy machine
			for _, reply := range []string{got, want} {
				if n, err := strconv.Atoi(strings.TrimPrefix(reply, ":")); err != nil || n < 0 || float64(n) > time.Since(began).Seconds()+1 {
					t.Errorf("%s: %s", command, reply)
				}
			}
			continue
		}
		if want = strings.ReplaceAll(want, " +nondeterministic_output", ""); got != want && !strings.HasPrefix(want, "[[") {
			t.Errorf("%s\n  got %s\nRedis %s", command, got, want)
		}
	}
}
