package resp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// The tests of this file run in this process, most of them over simulated commits;
// killed_test.go kills a process that serves a store on disk.

// commits simulates a store's commits for a committer. A commit takes its number when it
// begins.
type commits struct {
	takes   time.Duration
	outcome atomic.Pointer[error]

	number, last atomic.Uint64
	ended        atomic.Int64
	covers       atomic.Pointer[time.Time] // beginning of the last commit that has ended
}

func (s *commits) Commit(context.Context) error {
	n, at := s.number.Add(1), time.Now()
	time.Sleep(s.takes)
	s.ended.Add(1)
	if err := s.outcome.Load(); err != nil {
		return *err
	}
	s.covers.Store(&at)
	s.last.Store(n)
	return nil
}

func (s *commits) WaitForCommit(ctx context.Context, number uint64) error {
	if number <= s.LastCommit() {
		return nil
	}
	return s.Commit(ctx)
}

func (s *commits) NextCommit() uint64 { return s.number.Load() + 1 }
func (s *commits) LastCommit() uint64 { return s.last.Load() }

// committing starts a committer whose commits take the given time.
func committing(promise Durability, takes time.Duration) (*committer, *commits) {
	s := &commits{takes: takes}
	s.covers.Store(new(time.Time))
	c := newCommitter(promise, quietly)
	c.store = s
	c.start()
	return c, s
}

// TestOthersCommit: the committer does not commit again what others have committed.
func TestOthersCommit(t *testing.T) {
	for _, promise := range []Durability{DurabilityAlways, DurabilityEverySecond} {
		synctest.Test(t, func(t *testing.T) {
			c, store := committing(promise, 0)
			needs := store.NextCommit()
			if err := store.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.wait(needs); err != nil || !c.tryWait(needs) {
				t.Error(err)
			}
			time.Sleep(time.Hour)
			if n := store.ended.Load(); n != 1 {
				t.Errorf("%v: %d commits", promise, n)
			}
			c.stop()
		})
	}
}

// TestAlwaysFails: with always, a failed commit is an error for those that wait for it only.
func TestAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c, store := committing(DurabilityAlways, time.Second)
		store.outcome.Store(&broken)
		needs := store.NextCommit()
		for range 2 {
			if err := c.wait(needs); !errors.Is(err, broken) {
				t.Error(err)
			}
		}
		store.outcome.Store(nil)
		if err := c.wait(store.NextCommit()); err != nil {
			t.Error(err)
		}
		if err := c.wait(needs); err != nil {
			t.Error(err)
		}
		c.stop()
	})
}

// TestAlwaysResultsInAnyOrder: with always, connections tell the results of commits in any order.
// The state is that of the last commit.
func TestAlwaysResultsInAnyOrder(t *testing.T) {
	broken := errors.New("broken")
	type result struct {
		last, needs uint64 // LastCommit, and what was waited for
		err         error
	}
	for name, c := range map[string]struct {
		results []result
		fails   bool
	}{
		"a late error":             {[]result{{2, 2, nil}, {2, 1, broken}}, false},
		"a late success":           {[]result{{1, 2, broken}, {1, 1, nil}}, true},
		"an error":                 {[]result{{1, 1, nil}, {1, 2, broken}}, true},
		"a success after an error": {[]result{{1, 2, broken}, {3, 3, nil}}, false},
		"by somebody else":         {[]result{{1, 2, broken}, {3, 2, nil}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := &commits{}
			committer := newCommitter(DurabilityAlways, quietly)
			committer.store = store
			for _, r := range c.results {
				store.last.Store(r.last)
				committer.waited(r.needs, r.err)
			}
			if err := committer.state(); (err != nil) != c.fails {
				t.Errorf("the state is %v", err)
			}
		})
	}
}

// TestEverySecond: with everysec, at any time all answered writes that are not durable are at
// most a second old, whatever the duration of commits and the delay of replies.
func TestEverySecond(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 900 * time.Millisecond, 3 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := committing(DurabilityEverySecond, takes)
				type write struct{ at, answered time.Time }
				var atRisk []write
				r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
				for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(70 * time.Millisecond) {
					w := write{at: time.Now()}
					needs := store.NextCommit()
					time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
					if err := c.wait(needs); err != nil {
						t.Fatal(err)
					}
					w.answered = time.Now()
					atRisk = append(atRisk, w)
					for len(atRisk) > 0 && !atRisk[0].at.After(*store.covers.Load()) {
						atRisk = atRisk[1:]
					}
					if len(atRisk) > 0 && time.Since(atRisk[0].answered) > mostAtRisk {
						t.Fatalf("after %v: a write that was answered %v before is at risk", time.Since(start), time.Since(atRisk[0].answered))
					}
				}
				c.stop()
				if n := len(atRisk); n > 0 && atRisk[n-1].at.After(*store.covers.Load()) {
					t.Error("the last writes are not durable at the end")
				}
				if n, most := store.ended.Load(), int64(30*time.Second/commitDelay)+4; n == 0 || n > most {
					t.Errorf("%d commits", n)
				}
			})
		})
	}
}

// TestEverySecondFails: with everysec, writes are refused while commits fail and answered
// again afterwards. An idle server does not commit.
func TestEverySecondFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c, store := committing(DurabilityEverySecond, 0)
		store.outcome.Store(&broken)
		if err := c.wait(store.NextCommit()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := c.wait(store.NextCommit()); !errors.Is(err, broken) {
			t.Errorf("a write that cannot become durable: %v", err)
		}
		store.outcome.Store(nil)
		time.Sleep(time.Second)
		if err := c.wait(store.NextCommit()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		before := store.ended.Load()
		time.Sleep(time.Hour)
		if n := store.ended.Load() - before; n != 0 {
			t.Errorf("%d commits of nothing", n)
		}
		c.stop()
	})
}

// TestServerAlways: the reply to a write waits for its commit; the reply to a read does not.
func TestServerAlways(t *testing.T) {
	st, addr := start(t, inMemory(), Options{Durability: DurabilityAlways})
	p := dial(t, addr)
	for n := range 10 {
		if got := p.do("SET", "a", strings.Repeat("x", n)); got != "+OK" {
			t.Fatal(got)
		}
		if commits := st.store.Metrics().Commits.Made; commits != uint64(n+1) {
			t.Fatalf("%d commits for %d answered writes", commits, n+1)
		}
	}
	for range 10 {
		_ = p.do("GET", "a")
	}
	if commits := st.store.Metrics().Commits.Made; commits != 10 {
		t.Errorf("%d commits; reads need none", commits)
	}
}

// standing is a device whose Sync can be made to wait.
type standing struct {
	device.Device
	gate  atomic.Pointer[chan struct{}] // nil: Sync does not wait
	waits chan struct{}                 // holds one element when Sync waits
}

func (d *standing) Sync() error {
	if gate := d.gate.Load(); gate != nil {
		select {
		case d.waits <- struct{}{}:
		default:
		}
		<-*gate
	}
	return d.Device.Sync()
}

// TestOperatorWhileTheDeviceStands: while a loop waits for the device, a new connection is served.
func TestOperatorWhileTheDeviceStands(t *testing.T) {
	dev := &standing{Device: device.NewMemory(), waits: make(chan struct{}, 1)}
	s, addr := start(t, kv.Options{Device: dev, Memory: 64 << 20, Records: 1 << 10}, Options{Durability: DurabilityAlways, Loops: 1})
	p := dial(t, addr)
	if got := p.do("SET", "a", "1"); got != "+OK" {
		t.Fatal(got)
	}
	gate := make(chan struct{})
	dev.gate.Store(&gate)
	p.send(encode("SET", "a", "2"))
	testrun.Receive(t, "the device waits", dev.waits)
	testrun.Until(t, "the loop stands", func() bool { return s.loops[0].stands() })
	operator := dial(t, addr)
	if got := operator.do("PING"); got != "+PONG" {
		t.Error(got)
	}
	if got := operator.do("GET", "a"); got != `"2"` {
		t.Error(got)
	}
	dev.gate.Store(nil)
	close(gate)
	if got := p.reply(); got != "+OK" {
		t.Error(got)
	}
}

// TestScriptKillBesideACommit: while a commit waits for a script, an open connection of the loop can kill it.
func TestScriptKillBesideACommit(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Durability: DurabilityAlways, Loops: 1})
	runner, writer, operator := dial(t, addr), dial(t, addr), dial(t, addr)
	operator.last("+OK", "CONFIG SET busy-reply-threshold 1")
	for range 2 * plainBatches { // move to the loop
		writer.last("+OK", "SET a 1")
		operator.last("+PONG", "PING")
	}
	runner.send(encode("EVAL", endless, "1", "k"))
	testrun.Until(t, "the script is busy", func() bool { _, n := s.scripts.killable(); return n > 0 })
	writer.send(encode("SET", "a", "2"))
	testrun.Until(t, "the write has run", func() bool {
		got, err := s.store.Read(t.Context(), []byte("a"), nil)
		return err == nil && string(got) == "2"
	})
	operator.last("+OK", "SCRIPT KILL")
	if got := runner.reply(); !strings.HasPrefix(got, "-ERR Script killed") {
		t.Error(got)
	}
	writer.expects("+OK")
}

// TestServerCannotCommit: a write that cannot be committed is not answered.
func TestServerCannotCommit(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	_, addr := start(t, kv.Options{Device: faulty, Memory: 64 << 20, Records: 1 << 10}, Options{Durability: DurabilityAlways})
	p := dial(t, addr)
	if got := p.do("SET", "a", "1"); got != "+OK" {
		t.Fatal(got)
	}
	faulty.Set(device.FaultyOptions{SyncError: 1})
	p.send(encode("SET", "a", "2") + encode("SET", "a", "3"))
	if got := p.reply(); !strings.HasPrefix(got, "-MISCONF ") || !strings.Contains(got, device.ErrFault.Error()) {
		t.Error(got)
	}
	p.expectEnd()
	p = dial(t, addr)
	p.send(encode("SET", "a", "2") + encode("WAIT", "1", "0")) // it would wait for ever
	if got := p.reply(); !strings.HasPrefix(got, "-MISCONF ") {
		t.Error(got)
	}
	p.expectEnd()
	p = dial(t, addr)
	_ = p.do("SAVE")
	for _, line := range []string{"aof_last_write_status:err", "rdb_last_bgsave_status:err"} {
		if got := p.do("INFO", "persistence"); !strings.Contains(got, line) {
			t.Errorf("%s lacks %s", got, line)
		}
	}
	faulty.Set(device.FaultyOptions{})
	if got := p.do("SET", "a", "4"); got != "+OK" {
		t.Error(got)
	}
	_ = p.do("SAVE")
	for _, line := range []string{"aof_last_write_status:ok", "rdb_last_bgsave_status:ok"} {
		if got := p.do("INFO", "persistence"); !strings.Contains(got, line) {
			t.Errorf("%s lacks %s", got, line)
		}
	}
}

// TestOnlyWritesAreNotDurable: if writes cannot be committed, the replies to the commands before the first
// write of a pipeline arrive. The error replaces the reply to that write, and the connection ends.
func TestOnlyWritesAreNotDurable(t *testing.T) {
	const misconf = "-MISCONF"
	for name, opts := range map[string]Options{"goroutines": {Loops: -1}, "loops": {Loops: 1}} {
		t.Run(name, func(t *testing.T) {
			faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
			options := inMemory()
			options.Device = faulty
			opts.Durability = DurabilityAlways
			_, addr := start(t, options, opts)
			setup := dial(t, addr)
			setup.do("SET", "g", "hello")
			for i := range 1000 {
				setup.do("HSET", "large", fmt.Sprint("field", i), "value")
			}
			setup.do("RPUSH", "l", "1", "2", "3", "4", "5", "6", "7", "8")
			faulty.Set(device.FaultyOptions{SyncError: 1})
			for _, c := range []struct {
				commands string
				want     []string
			}{
				{"GET g; GET g; SET g hello; GET g", []string{`"hello"`, `"hello"`, misconf}},
				{"SET g hello; GET g", []string{misconf}},
				{"GET g; MGET g g; HGET large field7; EXISTS g large", []string{`"hello"`, `["hello" "hello"]`, `"value"`, ":2"}},
				{"GET g; HGET large field7; HSET large field7 value; HGET large field7", []string{`"hello"`, `"value"`, misconf}},
				{"HGET large field7; HSET large field7 value; SET g hello", []string{`"value"`, misconf}},
				{"GET g; MSET g hello h 1", []string{`"hello"`, misconf}},
				{"GET g; DEL none more", []string{`"hello"`, misconf}},
				{"GET g; LPOP l", []string{`"hello"`, misconf}},
				{"GET g; BLPOP l 0; GET g", []string{`"hello"`, misconf}},
				{"GET g; LMOVE l l LEFT LEFT; GET g", []string{`"hello"`, misconf}},
				{"GET g; MSETNX m 1 n 2; GET g", []string{`"hello"`, misconf}},
				{"GET g; MSETNX g 1 n 2; GET g", []string{`"hello"`, ":0", `"hello"`}},
				{"GET g; RENAME g g2; RENAME g2 g", []string{`"hello"`, misconf}},
				{"GET g; MULTI; GET g; SET g hello; EXEC; GET g", []string{`"hello"`, "+OK", "+QUEUED", "+QUEUED", misconf}},
				{"MULTI; GET g; EXEC; MULTI; LLEN l; HSET large field7 value; LLEN l; EXEC", []string{"+OK", "+QUEUED", `["hello"]`, "+OK", "+QUEUED", "+QUEUED", "+QUEUED", misconf}},
				{"GET g; EVAL return(redis.call('get',KEYS[1])) 1 g", []string{`"hello"`, `"hello"`}},
				{"GET g; EVAL return({redis.call('get',KEYS[1]),redis.call('set',KEYS[1],'hello')}) 1 g; GET g", []string{`"hello"`, misconf}},
			} {
				p := dial(t, addr)
				var pipeline strings.Builder // sent at once: the connection may end after a part
				for command := range strings.SplitSeq(c.commands, "; ") {
					pipeline.WriteString(encode(strings.Fields(command)...))
				}
				p.send(pipeline.String())
				for i, want := range c.want {
					if got := p.reply(); got != want && (want != misconf || !strings.HasPrefix(got, misconf+" ")) {
						t.Errorf("%s: reply %d is %s, want %s", c.commands, i, got, want)
						break
					} else if want == misconf {
						p.expectEnd()
					}
				}
			}
			faulty.Set(device.FaultyOptions{})
		})
	}
}

func TestDurabilityText(t *testing.T) {
	for d := range durabilities {
		var back Durability
		text, err := d.MarshalText()
		if err == nil {
			err = back.UnmarshalText(text)
		}
		if back != d || err != nil {
			t.Errorf("%v becomes %v, %v", d, back, err)
		}
	}
	if err := new(Durability).UnmarshalText([]byte("sometimes")); err == nil || durabilities.String() != "Durability(3)" {
		t.Error(err, durabilities)
	}
}

// startFull starts a server, which promises nothing, whose device can be made full.
func startFull(t *testing.T, opts Options) (*device.Faulty, *Server, string) {
	t.Helper()
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	options := cold()
	options.Device, opts.Durability = dev, DurabilityNone
	s, addr := start(t, options, opts)
	return dev, s, addr
}

// fillUp makes the device full, and uses up the room in memory.
func fillUp(t *testing.T, dev *device.Faulty, s *Server) {
	t.Helper()
	dev.Set(device.FaultyOptions{Full: true})
	for n, err := 0, error(nil); err == nil; n++ {
		err = s.store.Upsert(t.Context(), fmt.Append(nil, n), make([]byte, 100))
	}
}

// makeSpace returns when the server has noticed that the device is not full any more.
func makeSpace(t *testing.T, dev *device.Faulty, s *Server) {
	t.Helper()
	dev.Set(device.FaultyOptions{})
	testrun.UntilNil(t, s.Durable)
}

// While the device is full, the server says so, also if it promises nothing, until there is space.
func TestFullDeviceShows(t *testing.T) {
	dev, s, addr := startFull(t, Options{})
	p := dial(t, addr)
	written := func(want string) {
		t.Helper()
		if got := p.do("INFO", "persistence"); !strings.Contains(got, "aof_last_write_status:"+want) {
			t.Errorf("%s lacks the status %s", got, want)
		}
	}
	set := func(n int) string { return p.do("SET", fmt.Sprint(n), strings.Repeat("v", 1000)) }
	if err := s.Durable(); err != nil {
		t.Error(err)
	}
	written("ok")
	dev.Set(device.FaultyOptions{Full: true})
	n := 0
	for got := "+OK"; got == "+OK"; n++ {
		got = set(n)
	}
	if err := s.Durable(); !errors.Is(err, device.ErrNoSpace) {
		t.Errorf("on a full device: %v", err)
	}
	written("err")
	makeSpace(t, dev, s)
	written("ok")
	if got := set(n); got != "+OK" {
		t.Errorf("with space: %s", got)
	}
}

// While the device is full, commands that may need room are refused, also those for which there is room in
// memory. The others run.
func TestFullDeviceRefuses(t *testing.T) {
	dev, s, addr := startFull(t, Options{})
	p, other := dial(t, addr), dial(t, addr)
	other.do("MULTI")
	other.do("DEL", "0")
	other.do("SET", "0", "x")
	dev.Set(device.FaultyOptions{Full: true})
	n := 0
	for got := "+OK"; got == "+OK"; n++ {
		got = p.do("SET", fmt.Sprint(n), strings.Repeat("v", 1000))
	}
	last := fmt.Sprint(n - 2)
	for _, command := range []string{"SET " + last + " x", "APPEND " + last + " x", "HSET hash f v", "EVAL return(redis.call('SET','1','x')) 1 1"} {
		if got := p.do(strings.Fields(command)...); !strings.HasPrefix(got, "-MISCONF ") {
			t.Errorf("%s: %s", command, got)
		}
	}
	if got := other.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT ") || !strings.Contains(got, "MISCONF ") {
		t.Errorf("EXEC: %s", got)
	}
	for _, c := range [][2]string{{"EXISTS 0", ":1"}, {"STRLEN " + last, ":1000"}, {"DEL " + last, ":1"}} {
		if got := p.do(strings.Fields(c[0])...); got != c[1] {
			t.Errorf("%s: %s", c[0], got)
		}
	}
	if got := p.do("FLUSHALL"); got != "+OK" && !strings.Contains(got, device.ErrNoSpace.Error()) {
		t.Errorf("FLUSHALL: %s", got)
	}
	makeSpace(t, dev, s)
	if got := p.do("SET", last, "x"); got != "+OK" {
		t.Errorf("with space: %s", got)
	}
}

// While the device is full, a command on a large collection takes effect as a whole or not at all, though
// the header can be changed in place and most nodes cannot.
func TestFullDeviceTearsNothing(t *testing.T) {
	for _, opts := range []Options{{Loops: 1}, {Loops: -1}}[:testrun.Raced(2, 1)] {
		t.Run(fmt.Sprint(opts.Loops), func(t *testing.T) {
			dev, s, addr := startFull(t, opts)
			p := dial(t, addr)
			keys := []string{"hash", "set", "list", "sorted", "other"}
			for i := range 1000 {
				n := fmt.Sprint(i)
				p.do("HSET", "hash", n, "value"+n)
				p.do("SADD", "set", "member"+n)
				p.do("RPUSH", "list", "element"+n)
				p.do("ZADD", "sorted", n, "entry"+n)
				p.do("RPUSH", "other", "element"+n)
			}
			p.coolDown()
			for _, command := range []string{"HSET hash 0 other", "SADD set more", "RPUSH list more", "ZADD sorted 1 more", "RPUSH other more"} {
				p.do(strings.Fields(command)...)
			}
			fillUp(t, dev, s)
			failed := 0
			check := func(command string) {
				t.Helper()
				before := make(map[string]string)
				for _, key := range keys {
					before[key] = p.do("DUMP", key)
				}
				requests := strings.Split(command, ";")
				for _, request := range requests {
					p.send(encode(strings.Fields(request)...))
				}
				errs := 0
				for range requests {
					if got := p.reply(); got[0] == '-' {
						errs++
					}
				}
				failed += errs
				for _, key := range keys {
					if got := p.do("DUMP", key); got[0] == '-' || errs == len(requests) && got != before[key] {
						t.Errorf("%s after %s: %.100s", key, command, got)
					}
				}
			}
			all := func() {
				t.Helper()
				for i := range 5 {
					n := fmt.Sprint(i * 200)
					check("HSET hash " + n + " longer" + n)
					check("HSET hash new" + n + " 1;HSET hash newer" + n + " 1;HSET hash " + n + " 2")
					check("HDEL hash " + n + " 1" + n)
					check("HDEL hash 2" + n + ";HDEL hash 3" + n + ";SREM set member4" + n)
					check("SADD set new" + n)
					check("SREM set member" + n)
					check("ZADD sorted 5 new" + n)
					check("ZREM sorted entry" + n)
					check("LSET list " + n + " x")
					check("LREM list 1 element" + n)
					check("LMOVE list other LEFT LEFT")
					check("LMOVE other list RIGHT LEFT")
				}
				check("LTRIM list 500 520")
				check("ZREMRANGEBYRANK sorted 100 700")
			}
			all()
			if failed < 30 {
				t.Errorf("%d commands failed", failed)
			}
			makeSpace(t, dev, s)
			failed = 0
			all()
			if failed > 0 {
				t.Errorf("with space: %d commands failed", failed)
			}
		})
	}
}

// While the device is full, RENAME and MOVE that can set one key in place and not remove the other change
// neither.
func TestFullDeviceRenamesNothing(t *testing.T) {
	dev, s, addr := startFull(t, Options{})
	p := dial(t, addr)
	p.do("SET", "string", "x")
	for i := range 1000 {
		p.do("RPUSH", "list", fmt.Sprint("element", i))
		p.do("RPUSH", "owned", fmt.Sprint("element", i))
	}
	p.coolDown()
	header, err := s.store.Read(t.Context(), []byte("owned"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, h, _ := headerIn(header)
	owner, err := s.store.Read(t.Context(), ownerKey(h.gen), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Upsert(t.Context(), ownerKey(h.gen), owner); err != nil { // in memory again
		t.Fatal(err)
	}
	other := strings.Repeat("y", 200)
	p.do("SET", "other", other)
	fillUp(t, dev, s)
	check := func(when string) {
		t.Helper()
		for _, c := range [][2]string{
			{"GET string", `"x"`}, {"GET other", strconv.Quote(other)}, {"LLEN list", ":1000"}, {"LLEN owned", ":1000"},
			{"LINDEX list 500", `"element500"`}, {"LINDEX owned 999", `"element999"`},
		} {
			if got := p.do(strings.Fields(c[0])...); got != c[1] {
				t.Errorf("%s: %s: %s", when, c[0], got)
			}
		}
		if got, err := s.store.Read(t.Context(), ownerKey(h.gen), nil); err != nil || string(got[8:]) != "owned" {
			t.Errorf("%s: the owner is %q, %v", when, got, err)
		}
	}
	for _, from := range []string{"string", "list", "owned"} {
		if got := p.do("RENAME", from, "other"); !strings.Contains(got, device.ErrNoSpace.Error()) {
			t.Errorf("RENAME %s: %s", from, got)
		}
		check("RENAME " + from)
	}
	makeSpace(t, dev, s)
	check("with space")
}

// While the device is full, a command that empties a node in memory and one on the device changes neither.
func TestFullDeviceEmptiesNothing(t *testing.T) {
	dev, s, addr := startFull(t, Options{})
	p := dial(t, addr)
	for i := range 3000 {
		p.do("RPUSH", "list", fmt.Sprint("element", i))
	}
	p.coolDown()
	p.do("LSET", "list", "0", "e") // the header and the first node are in memory again
	value, err := s.store.Read(t.Context(), []byte("list"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, h, _ := headerIn(value)
	two := 0 // elements of the first two nodes
	for id := range nodeID(2) {
		value, err := s.store.Read(t.Context(), appendNodeKey(nil, h.gen, id), nil)
		var nd node
		if err != nil || !nd.take(value) {
			t.Fatal(value, err)
		}
		two += len(new(quickList).elementsOf(&nd))
	}
	fillUp(t, dev, s)
	before := p.do("DUMP", "list")
	if got := p.do("LPOP", "list", fmt.Sprint(two)); !strings.Contains(got, device.ErrNoSpace.Error()) || strings.Contains(got, errTorn.Error()) {
		t.Errorf("LPOP: %.100s", got)
	}
	if got := p.do("DUMP", "list"); got != before {
		t.Errorf("the list is changed: %.100s", got)
	}
	makeSpace(t, dev, s)
	if got := p.do("LPOP", "list", fmt.Sprint(two)); got[0] != '[' {
		t.Errorf("with space: LPOP: %.100s", got)
	}
}
