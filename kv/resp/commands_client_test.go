package resp

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// Programs that make typical use of a client library: connect, set a name, write and read, in
// a pipeline and in a transaction, and disconnect.
const (
	redisPy = `
import sys
try:
    import redis
except ImportError:
    sys.exit(77)
db = redis.Redis(port=int(sys.argv[1]), client_name="test", decode_responses=True, health_check_interval=1)
assert db.ping()
assert db.client_getname() == "test"
assert db.set("a", 1, ex=3600) and db.get("a") == "1" and 3500 < db.ttl("a") <= 3600
assert db.get("none") is None
assert db.hset("h", mapping={"f": "1", "g": "2"}) == 2 and db.hgetall("h") == {"f": "1", "g": "2"}
assert db.pipeline(transaction=False).incr("a").mget("a", "none").execute() == [2, ["2", None]]
assert db.transaction(lambda p: (p.multi(), p.incrby("a", 8)), "a") == [10]
assert sorted(db.scan_iter()) == ["a", "h"] and db.dbsize() == 2
assert db.info("server")["redis_mode"] == "standalone"
assert db.client_info()["name"] == "test" and len(db.client_list()) >= 1
try:
    db.xadd("a", {"field": 1})
    sys.exit("no error")
except redis.ResponseError as e:
    assert "unknown command" in str(e), e
one = redis.Redis(port=int(sys.argv[1]), db=1, decode_responses=True)
assert one.get("a") is None and one.set("a", 1) and one.dbsize() == 1 and str(one.client_info()["db"]) == "1"
assert one.move("a", 2) and one.dbsize() == 0 and one.info("keyspace")["db2"]["keys"] == 1
assert db.get("a") == "10"
assert db.flushall() and db.dbsize() == 0
sub = db.pubsub()
sub.subscribe("a", "b")
sub.psubscribe("c*")
heard = sub.listen()
assert [next(heard)["data"] for _ in range(3)] == [1, 2, 3]
assert db.publish("a", "hello") == 1 and next(heard)["data"] == "hello"
assert db.publish("cd", "hi") == 1 and next(heard)["pattern"] == "c*"
assert db.pubsub_numpat() == 1 and db.pubsub_numsub("a") == [("a", 1)] and sorted(db.pubsub_channels()) == ["a", "b"]
sub.unsubscribe("a")
assert next(heard)["type"] == "unsubscribe" and db.publish("a", "x") == 0
sub.close()
print("done")
`
	nodeRedis = `
let redis
try { redis = require("redis") } catch { process.exit(77) }
const assert = require("node:assert")
async function use(options) {
	const db = redis.createClient({ url: "redis://127.0.0.1:" + process.argv[1], name: "test", ...options })
	db.on("error", e => { console.error(e); process.exit(1) })
	await db.connect()
	assert.equal(await db.ping(), "PONG")
	assert.equal(await db.sendCommand(["CLIENT", "GETNAME"]), "test")
	await db.set("a", "1", { EX: 3600 })
	assert.equal(await db.get("a"), "1")
	assert.equal(await db.get("none"), null)
	assert.equal(await db.hSet("h", { f: "1", g: "2" }), 2)
	assert.deepEqual({ ...await db.hGetAll("h") }, { f: "1", g: "2" })
	assert.deepEqual(await Promise.all([db.incr("a"), db.mGet(["a", "none"])]), [2, ["2", null]])
	assert.deepEqual(await db.multi().incrBy("a", 8).get("a").exec(), [10, "10"])
	await assert.rejects(db.sendCommand(["XADD", "a", "*", "f", "1"]), /unknown command/)
	await db.select(1)
	assert.equal(await db.get("a"), null)
	await db.set("a", "1")
	await db.select(0)
	assert.equal(await db.get("a"), "10")
	await db.flushAll()
	assert.equal(await db.dbSize(), 0)
	const sub = db.duplicate()
	sub.on("error", e => { console.error(e); process.exit(1) })
	await sub.connect()
	const heard = []
	let wake = () => {}
	const hear = (message, channel) => { heard.push(channel + " " + message); wake() }
	await sub.subscribe(["a", "b"], hear)
	await sub.pSubscribe("c*", hear)
	const next = new Promise(resolve => { wake = () => { if (heard.length === 2) resolve() } })
	assert.equal(await db.publish("a", "hello"), 1)
	assert.equal(await db.publish("cd", "hi"), 1)
	await next
	assert.deepEqual(heard, ["a hello", "cd hi"])
	await sub.unsubscribe("a")
	assert.equal(await db.publish("a", "x"), 0)
	await (sub.close ? sub.close() : sub.quit())
	await (db.close ? db.close() : db.quit())
}
use({}).then(() => use({ RESP: 2 })).then(() => use({ RESP: 3 })).then(() => console.log("done"))
`
)

// TestClientLibraries runs client libraries of other languages, if they are installed. node
// finds its libraries by NODE_PATH.
func TestClientLibraries(t *testing.T) {
	for name, tc := range map[string]struct {
		programs []string // the first that has the library
		args     []string
	}{
		"redis-py":   {[]string{"python3", "/usr/bin/python3"}, []string{"-c", redisPy}},
		"node-redis": {[]string{"node"}, []string{"-e", nodeRedis, "--"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, inMemory(), Options{})
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for _, program := range tc.programs {
				cmd := exec.CommandContext(ctx, program, append(tc.args, port)...)
				out, err := cmd.CombinedOutput()
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == missingLibrary {
					continue
				}
				if err != nil || strings.TrimSpace(string(out)) != "done" {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			t.Skipf("there is no %s here", name)
		})
	}
}

// missingLibrary is the exit code of a program that lacks its library.
const missingLibrary = 77

// TestClientReply: a client gets the replies that it wants, by loops and by goroutines.
func TestClientReply(t *testing.T) {
	for _, loops := range []int{-1, 1} {
		_, addr := start(t, inMemory(), Options{Loops: loops})
		p := dial(t, addr)
		for range 2 * plainBatches { // then a loop has the connection
			p.last("+PONG", "PING")
		}
		large := strings.Repeat("v", 2*fullOutput)
		for _, tc := range []struct{ commands, want string }{
			{"CLIENT REPLY ON", "+OK"},
			{"CLIENT REPLY nonsense", "-" + errSyntax},
			{"SET a 1; CLIENT REPLY SKIP; SET a 2; GET a", `+OK "2"`},
			{"CLIENT REPLY SKIP; nonsense; CLIENT REPLY SKIP; CLIENT REPLY SKIP; GET a; GET a", `"2"`},
			{"CLIENT REPLY SKIP; CLIENT REPLY ON", "+OK"},
			{"CLIENT REPLY SKIP; FLUSHALL; GET a", "nil"},
			{"SET a 3; CLIENT REPLY OFF; INCR a; CLIENT REPLY SKIP; INCR a; FLUSHDB nonsense; KEYS *; CLIENT REPLY ON; GET a", `+OK +OK "5"`},
			{"CLIENT REPLY OFF; MULTI; INCR a; CLIENT REPLY ON; EXEC; GET a", `+OK [:6] "6"`},
			{"CLIENT REPLY OFF; MULTI; INCR a; EXEC; CLIENT REPLY ON; GET a", `+OK "7"`},
			{"GET a; CLIENT REPLY OFF; SET large " + large + "; GET large; MGET large large; GET large; RESET; GET a", `"7" +RESET "7"`},
			{"CLIENT REPLY OFF; GET a; SELECT 1; CLIENT REPLY ON; DBSIZE; SELECT 0", "+OK :0 +OK"},
		} {
			var all strings.Builder
			for command := range strings.SplitSeq(tc.commands, "; ") {
				all.WriteString(encode(strings.Fields(command)...))
			}
			p.send(all.String() + encode("ECHO", "end"))
			var got []string
			for {
				reply := p.reply()
				if reply == `"end"` {
					break
				}
				got = append(got, reply)
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("loops %d: %.100s\n got %.200s\nwant %s", loops, tc.commands, got, tc.want)
			}
		}
		// A loop takes the connection without replies, and returns it for DBSIZE.
		p.send(encode("CLIENT", "REPLY", "OFF"))
		other := dial(t, addr)
		for i := range 2 * plainBatches {
			p.send(encode("INCR", "n"))
			testrun.Until(t, "INCR has run", func() bool { return other.do("GET", "n") == strconv.Quote(strconv.Itoa(i+1)) })
		}
		p.send(encode("DBSIZE") + encode("CLIENT", "REPLY", "ON"))
		if got := p.reply(); got != "+OK" {
			t.Errorf("loops %d: %s", loops, got)
		}
	}
}
