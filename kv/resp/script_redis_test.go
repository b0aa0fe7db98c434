package resp

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// scriptLines returns the scripts in testdata/scripts.txt, as EVAL's arguments by their line, and the
// protocol of each.
func scriptLines(t testing.TB) (protocols []string, commands [][]string) {
	data, err := os.ReadFile("testdata/scripts.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		protocol, rest, _ := strings.Cut(line, " ")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		source, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		protocols = append(protocols, protocol)
		commands = append(commands, append([]string{"EVAL", source, "0"}, strings.Fields(rest[len(quoted):])...))
	}
	return protocols, commands
}

// TestScriptsAsRedis compares the replies of scripts with those of Redis.
func TestScriptsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	protocols, commands := scriptLines(t)
	for i, command := range commands {
		for _, p := range []*peer{redis, ours} {
			p.do("FLUSHALL")
			p.do("HELLO", protocols[i])
		}
		got, want := ours.do(command...), redis.do(command...)
		same := got == want || command[1] == "" || strings.Contains(command[1], "unordered") && sorted(got) == sorted(want)
		if !same {
			t.Errorf("%q\n  got %s\nRedis %s", command[1:], got, want)
		}
	}
}

// TestScriptCommandsAsRedis compares the replies of commands about scripts.
func TestScriptCommandsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	const sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" // of return 1
	for _, command := range [][]string{
		{"EVALSHA", "abc", "0"}, {"EVALSHA", sha, "0"}, {"EVAL", "return 1", "a"}, {"EVAL", "return 1", "-1"}, {"EVAL", "return 1", "2", "a"},
		{"EVAL", "return 1"}, {"EVAL"}, {"SCRIPT", "LOAD", "return 1"}, {"SCRIPT", "EXISTS", sha, strings.ToUpper(sha), "x"},
		{"EVALSHA", strings.ToUpper(sha), "0"}, {"EVALSHA_RO", sha, "1", "k"}, {"SCRIPT", "KILL"}, {"SCRIPT", "FLUSH", "foo"}, {"SCRIPT", "FLUSH", "SYNC"},
		{"EVALSHA", sha, "0"}, {"SCRIPT", "FLUSH", "async"}, {"SCRIPT", "FLUSH", "a", "b"}, {"SCRIPT", "foo"}, {"SCRIPT", "LOAD"}, {"SCRIPT", "EXISTS"},
		{"EVAL_RO", "return redis.call('set','a','b')", "1", "a"}, {"EVAL_RO", "return redis.call('get','a')", "1", "a"},
		{"EVAL_RO", "#!lua\nreturn redis.call('get','a')", "1", "a"}, {"EVAL_RO", "#!lua flags=no-writes\nreturn redis.call('get','a')", "1", "a"},
		{"EVAL", "redis.call('select', 1) return redis.call('set', KEYS[1], 'x')", "1", "a"}, {"GET", "a"},
		{"MULTI"}, {"EVAL", "return redis.call('incr', KEYS[1])", "1", "n"}, {"EVAL", "return redis.call('incr', 'm')", "0"}, {"GET", "n"},
		{"EVAL", "return redis.call('hget', KEYS[1], 'f')", "1", "n"}, {"EVALSHA", sha, "0"}, {"EXEC"},
		{"MULTI"}, {"SCRIPT", "LOAD", "return 1"}, {"EVALSHA", sha, "0"}, {"EXEC"},
		{"WATCH", "n"}, {"EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "n", "9"}, {"MULTI"}, {"GET", "n"}, {"EXEC"},
		{"EVAL", "return {KEYS, ARGV}", "2", "a", "b", "c", "d"}, {"EVAL", "return redis.call('incr', KEYS[1]) + redis.call('get', KEYS[1])", "1", "n"},
		{"EVAL", "redis.call('set', KEYS[1], 'x') return redis.call('incr', KEYS[1])", "1", "n"}, {"GET", "n"},
		{"EVAL", "for _, k in ipairs(redis.call('keys', ARGV[1])) do redis.call('del', k) end return redis.call('dbsize')", "0", "n*"},
		{"COMMAND", "GETKEYS", "EVAL", "x", "2", "a", "b", "c"}, {"COMMAND", "GETKEYSANDFLAGS", "EVAL_RO", "x", "1", "a"},
		{"EVAL", "redis.call('publish', 'c', 'm') return redis.call('set', KEYS[1], 1)", "1", "k"}, {"EVAL", "return redis.call('mset', KEYS[1], 1, 'other', 2)", "1", "k"},
		{"CONFIG", "GET", "busy-reply-threshold"}, {"CONFIG", "GET", "lua-time-limit"}, {"CONFIG", "SET", "lua-time-limit", "x"},
	} {
		if got, want := ours.do(command...), redis.do(command...); got != want {
			t.Errorf("%q\n  got %s\nRedis %s", command, got, want)
		}
	}
}

// TestRedisPyLocks: the locks of redis-py, whose parts are scripts, work.
func TestRedisPyLocks(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import redis").CombinedOutput(); err != nil {
		t.Skipf("there is no redis-py here: %s", out)
	}
	_, addr := start(t, inMemory(), Options{})
	_, port, _ := strings.Cut(addr, ":")
	program := fmt.Sprintf(`
import redis
r = redis.Redis(port=%s)
lock = r.lock("job", timeout=60)
assert lock.acquire(blocking=False)
assert not r.lock("job", timeout=60).acquire(blocking=False)
assert lock.owned() and lock.locked()
lock.extend(30)
assert 60000 < r.pttl("job") <= 90000
lock.extend(50, replace_ttl=True)
assert 0 < r.pttl("job") <= 50000
assert lock.reacquire()
r.set("job", "stolen")
try:
    lock.release()
    assert False
except redis.exceptions.LockError:
    pass
r.delete("job")
with r.lock("other", timeout=60):
    assert r.exists("other")
assert not r.exists("other")
script = r.register_script("return {KEYS[1], ARGV[1], redis.call('INCRBY', KEYS[1], ARGV[1])}")
assert script(keys=["n"], args=[5]) == [b"n", b"5", 5]
r.script_flush()
assert script(keys=["n"], args=[5]) == [b"n", b"5", 10]
with r.pipeline() as p:
    script(keys=["n"], args=[1], client=p)
    p.get("n")
    assert p.execute() == [[b"n", b"1", 11], b"11"]
print("well")
`, port)
	out, err := exec.Command("python3", "-c", program).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "well" {
		t.Errorf("%v: %s", err, out)
	}
}
