package resp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/lua"
)

// Scripts of a kind that applications have.
const (
	// limiterScript is a token bucket: its capacity, tokens per second, the time in seconds, and the
	// tokens asked for.
	limiterScript = `
local capacity, rate, now, asked = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]) or capacity, tonumber(bucket[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= asked
if allowed then tokens = tokens - asked end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate))
return {allowed and 1 or 0, tostring(tokens)}`
	// unlockScript deletes a lock of its owner.
	unlockScript = `
if redis.call('get', KEYS[1]) == ARGV[1] then
	return redis.call('del', KEYS[1])
end
return 0`
	// windowScript counts requests in a window.
	windowScript = `
local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {n, redis.call('PTTL', KEYS[1]) > 0}`
	// uniqueScript takes the lock of a job, unless another one has it.
	uniqueScript = `
local old = redis.call('GET', KEYS[1])
if old and old ~= ARGV[1] then return redis.error_reply('LOCKED by ' .. old) end
return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])`
)

func TestApplicationScripts(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{})
			p := dial(t, addr)
			for _, tc := range []struct {
				command []string
				want    string
			}{
				{[]string{"EVAL", limiterScript, "1", "user", "3", "1", "100", "2"}, `[:1 "1"]`},
				{[]string{"EVAL", limiterScript, "1", "user", "3", "1", "100", "2"}, `[:0 "1"]`},
				{[]string{"EVAL", limiterScript, "1", "user", "3", "1", "101.5", "2"}, `[:1 "0.5"]`},
				{[]string{"SET", "lock", "me"}, "+OK"},
				{[]string{"EVAL", unlockScript, "1", "lock", "you"}, ":0"},
				{[]string{"EVAL", unlockScript, "1", "lock", "me"}, ":1"},
				{[]string{"EVAL", windowScript, "1", "window", "100000"}, "[:1 :1]"},
				{[]string{"EVAL", windowScript, "1", "window", "100000"}, "[:2 :1]"},
				{[]string{"EVAL", uniqueScript, "1", "job", "a", "100"}, "+OK"},
				{[]string{"EVAL", uniqueScript, "1", "job", "b", "100"}, "-LOCKED by a"},
			} {
				if got := p.do(tc.command...); got != tc.want {
					t.Errorf("%q: got %s, want %s", tc.command, got, tc.want)
				}
				if name == "cold" {
					p.coolDown()
				}
			}
		})
	}
}

func TestGoRedisScripts(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		db := goRedis(t, addr, protocol)
		script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
		for i := range 3 {
			if n, err := script.Run(ctx, db, []string{"n"}, 2).Int(); err != nil || n != 2*(i+1) {
				t.Errorf("run %d: %d, %v", i, n, err)
			}
		}
		if ok, err := script.Exists(ctx, db).Result(); err != nil || len(ok) != 1 || !ok[0] {
			t.Error(ok, err)
		}
		if n, err := redis.NewScript("return redis.call('GET', KEYS[1])").RunRO(ctx, db, []string{"n"}).Int(); err != nil || n != 6 {
			t.Error(n, err)
		}
		if err := db.FlushAll(ctx).Err(); err != nil {
			t.Error(err)
		}
		if err := db.ScriptFlush(ctx).Err(); err != nil {
			t.Error(err)
		}
	}
}

// endless is a script that never ends.
const endless = "while true do pcall(function() while true do end end) end"

// killable returns the number of busy scripts that have changed nothing, and that of all.
func (s *scriptCache) killable() (unchanged, busy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for run := range s.running {
		if run.busy.Load() {
			busy++
			if run.killed.Load() == runGoes {
				unchanged++
			}
		}
	}
	return unchanged, busy
}

// TestScriptKill: a script that never ends is killed, and other clients go on meanwhile.
func TestScriptKill(t *testing.T) {
	for _, loops := range []int{-1, 1} {
		t.Run(strconv.Itoa(loops), func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Loops: loops})
			runner, p, watcher := dial(t, addr), dial(t, addr), dial(t, addr)
			for range 2 * plainBatches { // moves to the loop
				p.last("+OK", "SET free 1")
			}
			p.last("+OK", "CONFIG SET busy-reply-threshold 1")
			p.last("-NOTBUSY No scripts in execution right now.", "SCRIPT KILL")
			busy := func() {
				testrun.Until(t, "the script is busy", func() bool { _, n := s.scripts.killable(); return n > 0 })
			}

			runner.send(encode("EVAL", endless, "1", "k"))
			busy()
			p.last("-"+errBusy, "SET k 1")
			p.last("-"+errBusy, "EXISTS free k")
			p.last("-"+errBusy, "FLUSHALL")
			p.last(":1", "INCR n")
			p.last("+OK", "MULTI")
			p.last("+QUEUED", "INCR k")
			p.last("-"+errBusy, "EXEC")
			if got := p.do("EVAL", "return redis.call('incr', KEYS[1])", "1", "n"); got != ":2" {
				t.Error(got)
			}
			p.last("+OK", "SCRIPT KILL")
			if got := runner.reply(); !strings.HasPrefix(got, "-ERR Script killed by user with SCRIPT KILL... script: ") {
				t.Error(got)
			}
			p.last("+OK", "SET k 1")

			// With the store alone, every client gets the error.
			runner.send(encode("EVAL", endless, "0"))
			busy()
			p.last("-"+errBusy, "GET free")
			watcher.last("-"+errBusy, "WATCH free")
			p.last("+OK", "SCRIPT KILL")
			if got := runner.reply(); !strings.HasPrefix(got, "-ERR Script killed") {
				t.Error(got)
			}
			p.last(`"1"`, "GET free")

			// A script that has changed something is not killed, but ends with the server.
			runner.send(encode("EVAL", "redis.call('set', KEYS[1], 2) "+endless, "1", "k"))
			busy()
			p.last("-UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.", "SCRIPT KILL")
			p.last(":3", "INCR n")
		})
	}
}

// TestUndeclaredKeys: scripts may use keys that they do not declare. They run alone after that.
func TestUndeclaredKeys(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	const source = "redis.call('INCR', KEYS[1]) return redis.call('INCR', ARGV[1])"
	for i := range 3 {
		if got := p.do("EVAL", source, "1", "a", "b"); got != ":"+strconv.Itoa(i+1) {
			t.Error(got)
		}
		if habit := scriptHabit(s.scripts.find(shaOf([]byte(source))).habit.Load()); habit != habitRoams {
			t.Errorf("habit %d", habit)
		}
	}
	// The whole keyspace, before and after a change.
	if got := p.do("EVAL", "local n = #redis.call('KEYS', '*') return n + redis.call('INCR', KEYS[1])", "1", "a"); got != ":6" {
		t.Error(got)
	}
	const after = "redis.call('INCR', KEYS[1]) return redis.call('DBSIZE')"
	if got := p.do("EVAL", after, "1", "a"); !strings.HasPrefix(got, "-"+errScriptKeys) {
		t.Error(got)
	}
	if got := p.do("EVAL", after, "1", "a"); got != ":2" {
		t.Error(got)
	}
	// In a transaction.
	p.last("+OK", "MULTI")
	p.do("EVAL", "return redis.call('INCR', ARGV[1])", "1", "a", "c")
	p.do("EVAL", "return redis.call('INCR', 'd')", "0")
	p.last("[:1 :1]", "EXEC")
}

// TestScriptsTransferAtomically: transfers between accounts by scripts, some of which do not declare
// their keys, keep the sum.
func TestScriptsTransferAtomically(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	const accounts, clients, rounds = 8, 4, 300
	load := dial(t, addr)
	keys := make([]string, accounts)
	for i := range keys {
		keys[i] = fmt.Sprintf("account%d", i)
		load.last("+OK", "SET "+keys[i]+" 100")
	}
	const sum = "local n = 0 for _, v in ipairs(redis.call('MGET', unpack(KEYS))) do n = n + v end return n"
	want := ":" + strconv.Itoa(100*accounts)
	const undeclared = "redis.call('DECRBY', KEYS[1], ARGV[2]) redis.call('INCRBY', ARGV[1], ARGV[2]) return 'undeclared'"
	if got := load.do("EVAL", undeclared, "1", keys[0], keys[1], "1"); got != `"undeclared"` { // from now on it runs alone
		t.Fatal(got)
	}
	var all sync.WaitGroup
	for n := range clients {
		p := dial(t, addr)
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 0))
			for range rounds {
				from, to, amount := keys[rng.IntN(accounts)], keys[rng.IntN(accounts)], strconv.Itoa(rng.IntN(10))
				var got string
				switch rng.IntN(4) {
				case 0:
					got = p.do("EVAL", undeclared, "1", from, to, amount)
				case 1:
					got = p.do(append([]string{"EVAL", sum, strconv.Itoa(accounts)}, keys...)...)
					if got != want {
						t.Errorf("the sum is %s", got)
					}
				default:
					got = p.do("EVAL", "redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) return 1", "2", from, to, amount)
				}
				if got[0] == '-' {
					t.Error(got)
					return
				}
			}
		})
	}
	all.Wait()
	if got := load.do(append([]string{"EVAL", sum, strconv.Itoa(accounts)}, keys...)...); got != want {
		t.Errorf("at the end the sum is %s", got)
	}
}

// TestScriptMemory: scripts that take more and more memory, or calls, end with an error.
func TestScriptMemory(t *testing.T) {
	testrun.SkipRaced(t, "there is one client, which takes minutes")
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	for _, source := range []string{
		"local s = 'x' while true do s = s .. s end",
		"return string.rep('x', 1e10)",
		"local s = string.rep('x', 1e7) return string.rep(s, 1e7)",
		"local t, s = {}, string.rep('x', 1e6) for i = 1, 1e6 do t[i] = s end return table.concat(t)",
		"local s = string.rep('x', 1e7) return (s:gsub('.', s))",
		"local s = string.rep('x', 1e7) return string.format('%s%s%s%s', s, s, s, s)",
		"local t, s = {}, string.rep('x', 1e6) for i = 1, 1e6 do t[i] = s end return cjson.encode(t)",
		"local t, s = {}, string.rep('x', 1e6) for i = 1, 1e6 do t[i] = s end return cmsgpack.pack(t)",
		"local t = {} while true do t[#t + 1] = {#t} end",
		"local t = {} while true do t[#t + 1] = string.rep('x', 1e5) .. #t end",
		"local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
		"local function f() return 1 + f() end return f()",
		"local function f() local _, e = pcall(f) error(e) end return f()",
		"return " + strings.Repeat("{", 5000) + strings.Repeat("}", 5000),
		"return " + strings.Repeat("{", 100_000),
		"local t = {} for i = 1, 100 do t = {t, t} end return t",
		"cjson.encode_max_depth(2147483647) local t = {} t[1] = t return cjson.encode(t)",
		"cjson.decode_max_depth(2147483647) return cjson.decode(string.rep('[', 8000000))",
		"local function f() return coroutine.wrap(f)() end return f()",
		"local a, b a = coroutine.create(function() return coroutine.resume(b) end) b = coroutine.create(function() return select(3, coroutine.resume(a)) end) local _, _, _, e = coroutine.resume(a) error(e)",
		"local a, b a = coroutine.wrap(function() return b() end) b = coroutine.wrap(function() return a() end) return a()",
		"local mt, f = {} mt.__add = function(t, n) if n == 3900 then return f() end return t + (n + 1) end f = function() return coroutine.wrap(function() return setmetatable({}, mt) + 1 end)() end return f()",
		"local t, k = {}, {} for i = 1, 1e6 do t[i] = i end for i = 1, 1e4 do rawset(t, -1e300, 1) end while true do k[#k + 1] = ('x'):rep(1e7) .. #k end",
		"local k = {} for i = 1, 1000 do k[i] = cmsgpack.unpack('\\129\\206\\0\\15\\66\\64\\1') end",
		"local k = {} for i = 1, 1000 do local t = {} rawset(t, 1000000, 1) k[i] = t end",
		"local k = {} for i = 1, 1000 do local t = {} table.insert(t, 1000000, 1) k[i] = t end",
		"return table.insert({}, -1e300, 1)",
	} {
		if got := p.do("EVAL", source, "0"); got[0] != '-' && !strings.Contains(got, "-ERR") {
			t.Errorf("%.80q: %.80s", source, got)
		}
		p.goOn()
	}
	p.last("+PONG", "PING")
}

// TestScriptsDoNotAddMemory: what a script that has ended held is not added to what the next one may.
func TestScriptsDoNotAddMemory(t *testing.T) {
	testrun.SkipRaced(t, "one client sends")
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	for range 6 {
		p.last("+OK", "SET held 0")
		got := p.do("EVAL", "local k = {} while true do k[#k + 1] = ('x'):rep(4e6) .. #k redis.call('INCRBY', KEYS[1], 4000000) end", "1", "held")
		if !strings.HasPrefix(got, "-") || !strings.Contains(got, "memory") {
			t.Fatal(got)
		}
		if held, err := strconv.Atoi(strings.Trim(p.do("GET", "held"), `"`)); err != nil || held > 4*lua.MaxMemory {
			t.Fatalf("a script held %d MiB, %v", held>>20, err)
		}
	}
}

// BenchmarkEval measures a small script on one connection over loopback.
func BenchmarkEval(b *testing.B) {
	for _, depth := range []int{1, 64} {
		for name, command := range map[string]string{
			"constant": encode("EVAL", "return 1", "0"),
			"get":      encode("EVAL", "return redis.call('GET', KEYS[1])", "1", "k"),
			"incr":     encode("EVAL", "return redis.call('INCR', KEYS[1])", "1", "n"),
			"unlock":   encode("EVAL", unlockScript, "1", "k", "you"),
		} {
			b.Run(fmt.Sprintf("script=%s/pipeline=%d", name, depth), func(b *testing.B) {
				_, addr := start(b, inMemory(), Options{})
				p := dial(b, addr)
				p.do("SET", "k", "v")
				all := strings.Repeat(command, depth)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += depth {
					p.send(all)
					for range depth {
						p.reply()
					}
				}
			})
		}
	}
}
