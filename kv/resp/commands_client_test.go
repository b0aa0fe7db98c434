package resp

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
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
    db.lpush("a", 1)
    sys.exit("no error")
except redis.ResponseError as e:
    assert "unknown command" in str(e), e
assert db.flushall() and db.dbsize() == 0
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
	await assert.rejects(db.sendCommand(["LPUSH", "a", "1"]), /unknown command/)
	await db.flushAll()
	assert.equal(await db.dbSize(), 0)
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
