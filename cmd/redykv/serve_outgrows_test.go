package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ssdtier"
)

// Sizes of the server and of the data written to it.
const (
	outgrownMemory  = 16 << 20 // a value may take a 32nd of it
	outgrownCache   = 32 << 20
	outgrownSegment = 4 << 20 // of the files, which are the unit of freed disk space

	outgrownRecord = 2 << 10
	outgrownKeys   = 6 * outgrownMemory / outgrownRecord
	outgrownBatch  = 256 // commands per pipeline
	outgrownRounds = 3   // of overwriting all keys
)

// Bounds of the server's memory and files beside the data.
const (
	// For the Go heap with garbage, the index, and buffers of connections, of compaction and
	// of the cache. Measured: 25 to 71 MiB. It must not exceed the data.
	outgrownAllowance = 96 << 20
	// The files may take this multiple of the live data: half of the log may be dead, the next
	// check follows after a growth by an eighth, and some files wait for reuse.
	outgrownFiles = 3
)

// outgrown is a server with more data than memory, and the expected data.
type outgrown struct {
	ts   *testscript.TestScript
	dir  string
	db   *redis.Client
	keys map[int]int // the version of each key

	flags []string
	ctx   context.Context
}

// cmdOutgrows writes six times the server's memory, overwrites it during a SCAN, and then
// overwrites all of it several times.
func cmdOutgrows(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "outgrows TRANSPORT")
	ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
	defer cancel()
	o := &outgrown{ts: ts, ctx: ctx, dir: "outgrown-" + args[0], keys: make(map[int]int)}
	o.flags = []string{
		"--addr", "127.0.0.1:0", "--dir", o.dir, "--memory", strconv.Itoa(outgrownMemory), "--records", "1000",
		"--redy", "embedded", "--cache", strconv.Itoa(outgrownCache), "--transport", args[0],
	}
	// Files of the default size for large disks would never fill up in this test.
	files, err := ssdtier.OpenWith(ts.MkAbs(o.dir), ssdtier.Options{SegmentSize: outgrownSegment})
	ts.Check(err)
	ts.Check(files.Close())

	o.start()
	o.write(0, outgrownKeys, 1)
	o.checkAll("loaded")
	o.scanWhileItChanges()
	o.checkAll("changed under SCAN")
	for round := range outgrownRounds {
		o.write(0, outgrownKeys, 3+round)
		o.waitForSpace()
	}
	o.checkAll("overwritten")
	cmdEnd(ts, false, []string{"OUTGROWN"})

	o.start()
	o.checkAll("opened again")
	cmdEnd(ts, false, []string{"OUTGROWN"})
}

func (o *outgrown) start() {
	cmdStart(o.ts, false, append([]string{"OUTGROWN", "redykv ready at (.*)$", "redykv", "serve"}, o.flags...))
	db := redis.NewClient(&redis.Options{Addr: o.ts.Getenv("OUTGROWN"), ReadTimeout: scriptTimeout, MaxRetries: -1})
	o.ts.Defer(func() { _ = db.Close() }) // the server has ended
	o.db = db
}

func outgrownKey(n int) string { return fmt.Sprintf("key:%d", n) }

// outgrownValue returns a record of a key and a version. Sizes differ.
func outgrownValue(n, version int) string {
	text := fmt.Sprintf("%d:%d ", n, version)
	return strings.Repeat(text, (outgrownRecord-n%100)/len(text))
}

// write stores the keys [from, until) in batches, and checks the number of keys after each.
func (o *outgrown) write(from, until, version int) {
	for ; from < until; from += outgrownBatch {
		_, err := o.db.Pipelined(o.ctx, func(p redis.Pipeliner) error {
			for n := from; n < min(from+outgrownBatch, until); n++ {
				p.Set(o.ctx, outgrownKey(n), outgrownValue(n, version), 0)
				o.keys[n] = version
			}
			return nil
		})
		o.ts.Check(err)
		o.checkSize()
	}
}

// remove deletes some of the keys [from, until).
func (o *outgrown) remove(from, until int) {
	_, err := o.db.Pipelined(o.ctx, func(p redis.Pipeliner) error {
		for n := from; n < until; n += 8 {
			p.Del(o.ctx, outgrownKey(n))
			delete(o.keys, n)
		}
		return nil
	})
	o.ts.Check(err)
	o.checkSize()
}

func (o *outgrown) checkSize() {
	size, err := o.db.DBSize(o.ctx).Result()
	o.ts.Check(err)
	if size != int64(len(o.keys)) {
		o.ts.Fatalf("DBSIZE is %d, of %d keys", size, len(o.keys))
	}
}

// scanWhileItChanges scans all keys. Between two steps it overwrites, deletes and stores keys,
// before and behind the cursor. The scan must return all keys that exist during the whole
// scan.
func (o *outgrown) scanWhileItChanges() {
	before := make(map[string]bool)
	for n := range o.keys {
		before[outgrownKey(n)] = true
	}
	found := make(map[string]bool)
	var cursor uint64
	for at, added := 0, outgrownKeys; ; {
		keys, next, err := o.db.Scan(o.ctx, cursor, "", outgrownBatch).Result()
		o.ts.Check(err)
		for _, key := range keys {
			found[key] = true
		}
		if at < outgrownKeys {
			o.write(at, at+outgrownBatch/2, 2)
			o.remove(at+outgrownBatch/2, at+outgrownBatch)
			o.write(added, added+outgrownBatch/8, 2)
			at, added = at+outgrownBatch, added+outgrownBatch/8
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	missing := 0
	for n := range o.keys {
		if key := outgrownKey(n); before[key] && !found[key] {
			missing++
		}
	}
	if missing > 0 {
		o.ts.Fatalf("SCAN has not found %d of the keys that were there throughout", missing)
	}
	for key := range found {
		n, err := strconv.Atoi(strings.TrimPrefix(key, "key:"))
		if _, is := o.keys[n]; err != nil || !is && !before[key] {
			o.ts.Fatalf("SCAN has found %q, which never was", key)
		}
	}
}

// waitForSpace waits until compaction has freed the space of overwritten records.
func (o *outgrown) waitForSpace() {
	bound := int64(outgrownFiles * outgrownRecord * len(o.keys))
	for until := time.Now().Add(scriptTimeout); ; time.Sleep(10 * time.Millisecond) {
		taken := o.taken()
		if taken <= bound {
			return
		}
		if time.Now().After(until) {
			o.ts.Fatalf("the files take %v, and should take %v at most", units.Size(taken), units.Size(bound))
		}
	}
}

// taken returns the disk space of the files.
func (o *outgrown) taken() (bytes int64) {
	o.ts.Check(filepath.WalkDir(o.ts.MkAbs(o.dir), func(_ string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) { // removed after the listing
			return nil
		}
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	}))
	return bytes
}

// checkAll reads all keys, and checks the server's metrics and memory.
func (o *outgrown) checkAll(when string) {
	o.checkSize()
	batch := make([]int, 0, outgrownBatch)
	check := func() {
		replies, err := o.db.Pipelined(o.ctx, func(p redis.Pipeliner) error {
			for _, n := range batch {
				p.Get(o.ctx, outgrownKey(n))
			}
			return nil
		})
		o.ts.Check(err)
		for i, n := range batch {
			if got := replies[i].(*redis.StringCmd).Val(); got != outgrownValue(n, o.keys[n]) {
				o.ts.Fatalf("%s: key %d is %.40q…, want %.40q…", when, n, got, outgrownValue(n, o.keys[n]))
			}
		}
		batch = batch[:0]
	}
	for n := range o.keys {
		if batch = append(batch, n); len(batch) == outgrownBatch {
			check()
		}
	}
	check()

	info, err := o.db.InfoMap(o.ctx, "memory", "stats").Result()
	o.ts.Check(err)
	if evicted := info["Stats"]["evicted_keys"]; evicted != "0" {
		o.ts.Fatalf("%s: %q keys were evicted", when, evicted)
	}
	log, err := strconv.Atoi(info["Memory"]["log_memory"])
	o.ts.Check(err)
	if log > outgrownMemory {
		o.ts.Fatalf("%s: the log has %v of memory, and should have %v", when, units.Size(log), units.Size(outgrownMemory))
	}
	o.checkMemory(when)
}

// checkMemory compares the peak memory of the server's process with its options. The program's
// code, which is mapped from its file, does not count.
func (o *outgrown) checkMemory(when string) {
	pid := o.ts.Value(processesKey{}).(processes)["OUTGROWN"].Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return // not Linux
	}
	o.ts.Check(err)
	read := func(name string) (bytes int64) {
		_, line, _ := strings.Cut(string(status), "\n"+name+":")
		_, err := fmt.Sscanf(line, "%d kB", &bytes)
		o.ts.Check(err)
		return bytes << 10
	}
	resident, most := read("VmRSS")-read("RssFile"), read("VmHWM")-read("RssFile")
	o.ts.Logf("%s: %v of memory, %v at most; files of %v", when, units.Size(resident), units.Size(most), units.Size(o.taken()))
	if most > outgrownMemory+outgrownAllowance {
		o.ts.Fatalf("%s: the process had %v of memory, and should have %v", when, units.Size(most), units.Size(outgrownMemory+outgrownAllowance))
	}
}
