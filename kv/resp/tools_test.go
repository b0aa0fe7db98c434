package resp

import (
	"net"
	"os/exec"
	"strings"
	"testing"
)

// TestRedisTools: Redis's own tools work.
func TestRedisTools(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ program, args, want string }{
		{"redis-cli", "set a hello", "OK"},
		{"redis-cli", "get a", "hello"},
		{"redis-cli", "-3 mget a none", "hello\n"},
		{"redis-cli", "info server", "server_name:redykv"},
		{"redis-cli", "info", "store_reads:"},
		{"redis-cli", "-n 1 set b other", "OK"},
		{"redis-cli", "-n 1 mget a b", "\nother\n"},
		{"redis-cli", "info keyspace", "db1:keys=1,"},
		{"redis-cli", "rpush queue a b c", "3"},
		{"redis-cli", "brpop queue 1", "queue\nc\n"},
		{"redis-cli", "-3 zadd scores 1.5 a 2 b", "2"},
		{"redis-cli", "-3 zrange scores 0 -1 withscores", "a\n1.5\n"},
		{"redis-benchmark", "-t lpush,rpop,zadd,zpopmin,lrange_100 -n 2000 -c 5 -P 16 -r 1000 -q", "ZPOPMIN: "},
		{"redis-benchmark", "-t set,get,incr,mset -n 2000 -c 5 -P 16 -q", "MSET (10 keys): "},
		{"redis-benchmark", "--dbnum 2 -t set,get -n 2000 -c 5 -P 16 -q", "GET: "},
	} {
		t.Run(tc.program+" "+tc.args, func(t *testing.T) {
			path, err := exec.LookPath(tc.program)
			if err != nil {
				t.Skipf("there is no %s here", tc.program)
			}
			out, err := exec.Command(path, append([]string{"-p", port}, strings.Fields(tc.args)...)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), tc.want) || strings.Contains(string(out), "ERR") {
				t.Errorf("%v; got %s, want %s", err, out, tc.want)
			}
		})
	}
}
