package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// damaged serves a store on files in which some records of many keys are damaged. The same
// records are damaged in every directory. Reads complete out of order. The store is a copy of
// an empty one, so that the hash's seed, and with it the chains, are the same everywhere.
func damaged(t *testing.T, empty string, rounds int, opts Options) (addr, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(empty)); err != nil {
		t.Fatal(err)
	}
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	options := cold()
	options.Device = device.NewFaulty(ssd, device.FaultyOptions{Delay: 0.5, MaxDelay: 20})
	s, addr := start(t, options, opts)
	p := dial(t, addr)
	for round := range rounds {
		for _, key := range failingKeys {
			request := encode("SET", keyOf(round, key), strings.Repeat(key, 700))
			if key > "e" {
				request = encode("HSET", keyOf(round, key), "f", "1", "g", strings.Repeat(key, 700))
			}
			p.send(request)
			_ = p.reply()
		}
	}
	for n := range 300 {
		if got := p.do("SET", fmt.Sprint("filler", n), strings.Repeat("v", 1000)); got != "+OK" {
			t.Fatal(got)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	bad := make(map[string]bool)
	for round := range rounds {
		for range 1 + r.IntN(4) {
			bad[keyOf(round, failingKeys[r.IntN(len(failingKeys))])] = true
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "000000000000.seg"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range s.store.Scan() {
		if err != nil {
			t.Fatal(err)
		}
		if bad[string(rec.Key)] {
			if _, err := f.WriteAt([]byte{0x5a, 0xa5, 0x5a}, rec.Address+200); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return addr, dir
}

// emptyStore returns the directory of a store without keys.
func emptyStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	options := cold()
	options.Device = ssd
	st, err := kv.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Close(), ssd.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// failingKeys are the keys of a commander. Each round has its own copies.
var failingKeys = []string{"a", "b", "c", "d", "e", "f", "g"}

func keyOf(round int, key string) string { return fmt.Sprint("round", round, ":", key) }

// TestFailingReads sends random pipelines to a server with unreadable records. Every reply
// must be in its place and equal that of a server that gets the commands one at a time.
func TestFailingReads(t *testing.T) {
	for name, opts := range map[string]Options{"goroutines": {Loops: -1}, "loops": {Loops: 1}} {
		t.Run(name, func(t *testing.T) {
			rounds := testrun.Scale(30, 150, 1000)
			empty := emptyStore(t)
			piped, pipedDir := damaged(t, empty, rounds, opts)
			single, singleDir := damaged(t, empty, rounds, opts)
			ours, reference := dial(t, piped), dial(t, single)
			plain := strings.NewReplacer(pipedDir, "DIR", singleDir, "DIR")
			failures, seed := 0, testrun.Seed(t, *differentSeed)
			for round := range rounds {
				ours.goOn()
				reference.goOn()
				c := commander{rand.New(rand.NewPCG(seed, uint64(round)))}
				commands := failingPipeline(c, round)
				var pipeline strings.Builder
				for _, command := range commands {
					pipeline.WriteString(encode(command...))
				}
				ours.send(pipeline.String())
				for i, command := range commands {
					want, got := plain.Replace(reference.do(command...)), plain.Replace(ours.reply())
					if !alike(command, unplaced(got), unplaced(want)) {
						testrun.Wrong(t, "round %d: reply %d, to %q, behind %q:\ngot  %.200s\nwant %.200s", round, i, command, commands[max(i-5, 0):i], got, want)
					}
					if strings.Contains(want, device.ErrCorrupt.Error()) {
						failures++
					}
				}
			}
			if failures < 3*rounds {
				t.Errorf("%d replies say that a record cannot be read", failures)
			}
		})
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// unplaced drops the place of the damage from an error: of several unreadable records either may be
// the one that is read first.
func unplaced(reply string) string {
	if strings.Contains(reply, device.ErrCorrupt.Error()) {
		return numbers.ReplaceAllString(reply, "N")
	}
	return reply
}

// failingPipeline returns random commands on the keys of a round, followed by reads of all its
// keys.
func failingPipeline(c commander, round int) (commands [][]string) {
	for range 1 + c.IntN(20) {
		command := c.command()
		switch strings.ToLower(command[0]) {
		case "flushall", "keys", "scan", "dbsize", "slowlog": // depend on other rounds
			command = []string{"ECHO", "x"}
		}
		commands = append(commands, command)
		if c.IntN(3) == 0 {
			commands = append(commands, []string{"GET", c.one(failingKeys...)})
		}
	}
	commands = append(commands, []string{"RESET"})
	for _, key := range failingKeys {
		commands = append(commands, []string{"DUMP", key})
	}
	for _, command := range commands {
		for i := range command[1:] {
			if arg := &command[i+1]; slices.Contains(failingKeys, *arg) {
				*arg = keyOf(round, *arg)
			}
		}
	}
	return commands
}

// deafDevice is a device on which one Wait for reads fails.
type deafDevice struct {
	device.Device
	deaf atomic.Bool // the next Wait for reads fails
}

type deafQueue struct {
	device.Queue
	d     *deafDevice
	reads bool
}

func (d *deafDevice) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &deafQueue{Queue: q, d: d}, err
}

func (q *deafQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.reads = true
	return q.Queue.Read(dst, addr, tag)
}

func (q *deafQueue) Wait(ctx context.Context) error {
	if q.reads && q.d.deaf.Swap(false) {
		return device.ErrFault
	}
	return q.Queue.Wait(ctx)
}

// TestFailingSession: after the failure of a session its connection sends nothing more,
// whatever command follows. Other connections are not affected.
func TestFailingSession(t *testing.T) {
	queued := func(n int) string { return "+OK\r\n" + strings.Repeat("+QUEUED\r\n", n) }
	for _, tc := range []struct{ pipeline, want string }{
		{"SET x 1,GET x,GET cold", ""},
		{"PING,GET cold", "+PONG\r\n"},
		{"PING,GET cold,ECHO x", "+PONG\r\n"},
		{"GET x,PING,GET cold,MULTI", "$-1\r\n+PONG\r\n"},
		{"PING,GET cold,SET x 2,PING,QUIT", "+PONG\r\n"},
		{"PING,MGET x cold y,EXISTS x", "+PONG\r\n"},
		{"MULTI,GET x,ECHO x,GET cold,SET x 3,ECHO x,EXEC,PING", queued(5) + "*5\r\n$-1\r\n$1\r\nx\r\n"},
		{"MULTI,GET cold,DBSIZE,SET x 3,MSET a 1 b 2,FLUSHALL,EXEC,PING", queued(5) + "*5\r\n"},
		{"PING,RENAME cold other,PING", "+PONG\r\n"},
		{"PING,COPY cold other,PING", "+PONG\r\n"},
		{"PING,MSETNX cold 1 x 2,PING", "+PONG\r\n"},
		{"PING,WATCH cold,MULTI", "+PONG\r\n"},
		{"PING,INCR cold,RESET,FLUSHALL", "+PONG\r\n"},
	} {
		for _, loops := range []int{-1, 1} {
			t.Run(fmt.Sprint(tc.pipeline, loops), func(t *testing.T) {
				options := cold()
				dev := &deafDevice{Device: device.NewFaulty(options.Device, device.FaultyOptions{Delay: 1})}
				options.Device = dev
				s, addr := start(t, options, Options{Loops: loops, Sessions: 2})
				p, other := dial(t, addr), dial(t, addr)
				if got := p.do("SET", "cold", "cold"); got != "+OK" {
					t.Fatal(got)
				}
				other.coolDown()
				var pipeline strings.Builder
				for command := range strings.SplitSeq(tc.pipeline, ",") {
					pipeline.WriteString(encode(strings.Fields(command)...))
				}
				dev.deaf.Store(true)
				p.send(pipeline.String())
				got, err := io.ReadAll(p.in)
				if string(got) != tc.want || isTimeout(err) {
					t.Errorf("%q, %v, want %q", got, err, tc.want)
				}
				if dev.deaf.Load() {
					t.Error("nothing has failed")
				}
				if got := other.do("MSET", "x", "1", "y", "2"); got != "+OK" {
					t.Error(got)
				}
				if got := other.do("GET", "cold"); got != `"cold"` {
					t.Error(got)
				}
				testrun.Until(t, "the connection is gone", func() bool { return s.Metrics().Clients == 1 })
			})
		}
	}
}
