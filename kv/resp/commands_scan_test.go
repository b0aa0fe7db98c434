package resp

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// scanStep sends one SCAN and returns the next cursor and the keys. It checks that the cursor
// survives conversion to a floating-point number.
func scanStep(p *peer, cursor string, args ...string) (next string, keys []string) {
	p.t.Helper()
	reply := p.do(append([]string{"SCAN", cursor}, args...)...)
	parts := elementsOf(reply)
	if len(parts) != 2 {
		p.t.Fatalf("SCAN %s: %s", cursor, reply)
	}
	next = strings.Trim(parts[0], `"`)
	if n, err := strconv.ParseUint(next, 10, 64); err != nil || n >= 1<<53 || strconv.FormatUint(uint64(float64(n)), 10) != next {
		p.t.Fatalf("cursor %s is none for clients that keep numbers", next)
	}
	for _, key := range elementsOf(parts[1]) {
		if key == "" { // the array is empty
			continue
		}
		key, err := strconv.Unquote(key)
		if err != nil {
			p.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return next, keys
}

// writeMany sends n SETs in one pipeline.
func writeMany(p *peer, n int, key func() string, value string) {
	p.t.Helper()
	var b strings.Builder
	for range n {
		b.WriteString(encode("SET", key(), value))
	}
	p.send(b.String())
	for range n {
		if got := p.reply(); got != "+OK" {
			p.t.Fatal(got)
		}
	}
}

// TestScanBesideWriters scans a store while its keys are overwritten and its log is compacted.
// Each call returns about COUNT keys, each key is returned once, and the scan ends.
func TestScanBesideWriters(t *testing.T) {
	for name, memory := range map[string]int64{"cold": 64 << 10, "warm": 256 << 10} {
		t.Run(name, func(t *testing.T) {
			store := cold()
			store.Memory = memory
			store.Compaction = kv.AutoCompaction{DeadShare: 0.5, LogSize: 1 << 20, Share: 1, Every: time.Millisecond}
			s, addr := start(t, store, Options{})
			p := dial(t, addr)
			const keys, count = 2000, 10
			n := 0
			next := func() string { n++; return fmt.Sprint("key", n%keys) }
			r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
			anyKey := func() string { return fmt.Sprint("key", r.IntN(keys)) }
			value := strings.Repeat("x", 100)
			writeMany(p, 5*keys, next, value)
			for p.do("SET", "counter", "1"); s.store.Metrics().Compaction.Runs == 0; {
				writeMany(p, keys, next, value)
			}
			found, calls, empty := map[string]int{}, 0, 0
			for cursor, begun := "0", false; !begun || cursor != "0"; begun = true {
				var got []string
				if cursor, got = scanStep(p, cursor, "COUNT", strconv.Itoa(count)); len(got) == 0 {
					empty++
				}
				for _, key := range got {
					found[key]++
				}
				writeMany(p, 100, anyKey, value)
				if calls++; calls > 2*keys {
					t.Fatal("the scan does not end")
				}
			}
			for n := range keys {
				if key := fmt.Sprint("key", n); found[key] != 1 {
					t.Errorf("%s is found %d times", key, found[key])
				}
			}
			if len(found) != keys+1 || calls > keys/count*3/2 {
				t.Errorf("%d keys of %d in %d calls, of which %d found none", len(found), keys+1, calls, empty)
			}
		})
	}
}

// TestScanCursors reuses cursors, abandons scans, and sends invented cursors.
func TestScanCursors(t *testing.T) {
	_, addr := start(t, cold(), Options{})
	p := dial(t, addr)
	const keys = 1000
	n := 0
	writeMany(p, 3*keys, func() string { n++; return fmt.Sprint("key", n%keys) }, "1")
	r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
	for range 300 {
		cursor, _ := scanStep(p, "0")
		for range r.IntN(3) {
			cursor, _ = scanStep(p, cursor)
		}
	}
	found := map[string]bool{}
	for cursor, begun := "0", false; !begun || cursor != "0"; begun = true {
		next, once := scanStep(p, cursor)
		again, twice := scanStep(p, cursor)
		if next != again || strings.Join(once, " ") != strings.Join(twice, " ") {
			t.Fatalf("cursor %s leads to %s and %s, then to %s and %s", cursor, next, once, again, twice)
		}
		for _, key := range once {
			found[key] = true
		}
		cursor = next
	}
	if len(found) != keys {
		t.Errorf("found %d keys of %d", len(found), keys)
	}
	for _, cursor := range []string{"", "-1", "x", "1.5", " 1", "4503599627370496", "9007199254740993", "18446744073709551615", "18446744073709551616"} {
		if got := p.do("SCAN", cursor); got != "-"+errCursor {
			t.Errorf("cursor %q: %s", cursor, got)
		}
	}
	for range 100 {
		cursor := strconv.FormatUint(r.Uint64()>>(12+r.IntN(52)), 10)
		for steps := 0; steps == 0 || cursor != "0"; steps++ {
			if cursor, _ = scanStep(p, cursor, "COUNT", "50"); steps > keys {
				t.Fatalf("a scan from %s does not end", cursor)
			}
		}
	}
}

// Programs that print all keys, one per line.
const (
	nodeRedisScan = `
let redis
try { redis = require("redis") } catch { process.exit(77) }
async function main() {
	const db = redis.createClient({ url: "redis://127.0.0.1:" + process.argv[1] })
	await db.connect()
	for await (const keys of db.scanIterator({ COUNT: 1000 })) console.log(keys.join("\n"))
	db.destroy()
}
main()
`
	// For cursors as numbers, as older programs use them.
	ioredisScan = `
let Redis
try { Redis = require("ioredis") } catch { process.exit(77) }
Redis = Redis.default ?? Redis
async function main() {
	const db = new Redis(Number(process.argv[1]))
	let cursor = 0
	do {
		const [next, keys] = await db.scan(cursor, "COUNT", 1000)
		if (!Number.isSafeInteger(Number(next))) throw new Error(next)
		if (keys.length) console.log(keys.join("\n"))
		cursor = Number(next)
	} while (cursor !== 0)
	db.disconnect()
}
main()
`
	phpRedisScan = `
if (!extension_loaded("redis")) exit(77);
$db = new Redis();
$db->connect("127.0.0.1", (int)$argv[1]);
$db->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$at = null;
while (($keys = $db->scan($at, "*", 1000)) !== false) echo implode("\n", $keys), "\n";
`
	redisPyScan = `
import sys
try:
    import redis
except ImportError:
    sys.exit(77)
for key in redis.Redis(port=int(sys.argv[1]), decode_responses=True).scan_iter(count=1000):
    print(key)
`
)

// TestClientsScan scans with clients of other languages beside a writer. Each key must be
// returned once.
func TestClientsScan(t *testing.T) {
	keys := testrun.Scale(20_000, 20_000, 200_000)
	store := inMemory()
	store.Compaction = kv.AutoCompaction{DeadShare: 0.5, Every: 10 * time.Millisecond}
	_, addr := start(t, store, Options{})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	p := dial(t, addr)
	for n := 0; n < keys; {
		writeMany(p, 1000, func() string { n++; return fmt.Sprint("key", n-1) }, "value")
	}
	for name, tc := range map[string]struct { // the first one whose library is installed is used
		programs []string // the first that has the library
		args     []string
	}{
		"redis-cli":  {[]string{"redis-cli"}, []string{"--scan", "-p"}},
		"redis-py":   {[]string{"python3", "/usr/bin/python3"}, []string{"-c", redisPyScan}},
		"node-redis": {[]string{"node"}, []string{"-e", nodeRedisScan, "--"}},
		"ioredis":    {[]string{"node"}, []string{"-e", ioredisScan, "--"}},
		"phpredis":   {[]string{"php"}, []string{"-r", phpRedisScan, "--"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stop := overwrite(t, addr, keys)
			defer stop()
			for _, program := range tc.programs {
				cmd := exec.CommandContext(ctx, program, append(tc.args, port)...)
				var failures strings.Builder
				cmd.Stderr = &failures
				out, err := cmd.Output()
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == missingLibrary {
					continue
				}
				found, repeated := map[string]bool{}, 0
				for key := range strings.FieldsSeq(string(out)) {
					if found[key] {
						repeated++
					}
					found[key] = true
				}
				missing := 0
				for n := range keys {
					if !found[fmt.Sprint("key", n)] {
						missing++
					}
				}
				if err != nil || len(found) != keys || missing > 0 || repeated > 0 {
					t.Errorf("%v %s: found %d keys of %d, %d missing, %d repeated", err, failures.String(), len(found), keys, missing, repeated)
				}
				return
			}
			t.Skipf("there is no %s here", name)
		})
	}
}

// overwrite writes keys until stop is called. It rests after each batch, so that it does not take a
// processor for itself.
func overwrite(t *testing.T, addr string, keys int) (stop func()) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
	wg.Go(func() {
		for err := error(nil); err == nil; time.Sleep(time.Millisecond) {
			var batch strings.Builder
			for range 100 {
				batch.WriteString(encode("SET", fmt.Sprint("key", r.IntN(keys)), "another"))
			}
			_, err = io.WriteString(conn, batch.String())
		}
	})
	return func() {
		_ = conn.Close() // ends both goroutines
		wg.Wait()
	}
}
