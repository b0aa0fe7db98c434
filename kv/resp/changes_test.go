package resp

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

func TestEventClasses(t *testing.T) {
	for letters, want := range map[string]string{"": "", "KEA": "AKE", "g$lshzxetd": "A", "mnE$K": "$nKEm", "Kgxn": "gxnK", "AnmE": "AEm"} {
		of, ok := parseClasses(letters)
		if !ok || of.String() != want {
			t.Errorf("%q: %q, %t, want %q", letters, of, ok, want)
		}
	}
	if _, ok := parseClasses("KEq"); ok {
		t.Error("q is a class")
	}
}

// tellsTheSame reports whether servers tell the same of a command: expiries that are past count as a
// deletion at once with some commands of Redis, and later with others.
func tellsTheSame(command []string) bool {
	switch name := strings.ToLower(command[0]); {
	case name == "set" || name == "getex" || name == "copy":
		return !slices.ContainsFunc(command, func(a string) bool { return strings.HasSuffix(strings.ToLower(a), "at") })
	case slices.Contains([]string{"reset", "select", "move", "multi", "exec", "hello", "auth", "client", "watch", "discard", "scan"}, name):
		return false
	}
	return true
}

// TestNotificationsAsRedis sends random commands to this server and to Redis, and compares what
// subscribers to keyspace notifications receive.
func TestNotificationsAsRedis(t *testing.T) {
	for name, loops := range map[string]int{"loops": 1, "goroutines": -1, "large": 1} {
		t.Run(name, func(t *testing.T) {
			redis, redisToo := startRedis(t)
			opts := Options{Loops: loops}
			if name == "large" {
				opts.packedMost = 20
			}
			_, addr := start(t, inMemory(), opts)
			theirs, ours := []*peer{redis, redisToo}, []*peer{dial(t, addr), dial(t, addr)}
			for _, peers := range [][]*peer{theirs, ours} {
				peers[0].do("CONFIG", "SET", "notify-keyspace-events", "AKEnm")
				peers[1].do("PSUBSCRIBE", "__key*")
			}
			c := newCommander(t, 2)
			for step := range compared(2000, 4) {
				command := c.command()
				if !tellsTheSame(command) {
					continue
				}
				var got [2][]string
				for i, peers := range [][]*peer{theirs, ours} {
					peers[0].goOn()
					peers[1].goOn()
					_ = peers[0].do(command...)
					got[i] = peers[1].until(fmt.Sprint("token", step))
					if strings.HasPrefix(strings.ToLower(command[0]), "sort") { // the order of a set's members differs
						slices.Sort(got[i])
					}
				}
				if !slices.Equal(got[0], got[1]) {
					testrun.Wrong(t, "step %d: %q\n  got %q\nRedis %q", step, command, got[1], got[0])
				}
			}
		})
	}
}

// TestSortTellsAsRedis: SORT tells which keys it has not found, and what it has stored.
func TestSortTellsAsRedis(t *testing.T) {
	redis, redisToo := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	theirs, ours := []*peer{redis, redisToo}, []*peer{dial(t, addr), dial(t, addr)}
	for step, command := range []string{
		"SORT l BY w* STORE d", "SORT l GET w* STORE d", "SORT l BY w* GET h*->f STORE d", "SORT none BY w* STORE d", "SORT l BY w* GET w*", "SORT none STORE d", "SORT l STORE d",
	} {
		var got [2][]string
		for i, peers := range [][]*peer{theirs, ours} {
			for _, before := range []string{"CONFIG SET notify-keyspace-events AKEnm", "DEL l d w1", "RPUSH l 2 1 3", "SET w1 2"} {
				_ = peers[0].do(strings.Fields(before)...)
			}
			if step == 0 {
				peers[1].do("PSUBSCRIBE", "__key*")
			}
			peers[1].goOn()
			_ = peers[0].do(strings.Fields(command)...)
			got[i] = peers[1].until(fmt.Sprint("token", step))
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s\n  got %q\nRedis %q", command, got[1], got[0])
		}
	}
}

// TestExpiredEvents: an expired key is told once, whether somebody asks for it or not.
func TestExpiredEvents(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	early, sub, p := dial(t, addr), dial(t, addr), dial(t, addr)
	early.do("SET", "before", "v", "PX", "1")
	for early.do("GET", "before") != "nil" { // until it has expired, which nobody was told
	}
	sub.do("CONFIG", "SET", "notify-keyspace-events", "Ex")
	sub.do("SUBSCRIBE", "__keyevent@0__:expired", "__keyevent@1__:expired")
	sub.reply()
	expect := func(want string) {
		t.Helper()
		sub.goOn()
		if got := sub.reply(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := p.do("GET", "before"); got != "nil" {
		t.Error(got)
	}
	expect(`["message" "__keyevent@0__:expired" "before"]`)
	p.do("SET", "a", "v", "PX", "1")
	expect(`["message" "__keyevent@0__:expired" "a"]`)
	p.do("SELECT", "1")
	p.do("SET", "b", "v")
	p.do("PEXPIRE", "b", "1000")
	p.do("PEXPIRE", "b", "1")
	expect(`["message" "__keyevent@1__:expired" "b"]`)
	p.do("SET", "c", "v", "PX", "1")
	p.do("PEXPIRE", "c", "100000")
	p.do("SET", "d", "v", "PX", "1")
	if got := sub.reply(); !strings.HasSuffix(got, `"d"]`) && !strings.HasSuffix(got, `"c"]`) {
		t.Error(got)
	}
	if got := sub.until("end"); len(got) > 1 {
		t.Errorf("more: %q", got)
	}
	s.expirer.mu.Lock()
	defer s.expirer.mu.Unlock()
	if len(s.expirer.ends) > 1 {
		t.Errorf("the expirer knows %d keys", len(s.expirer.ends))
	}
}

// settle returns what the connection receives before the second of two replies: messages for a client
// that it causes itself come after its batch.
func (p *peer) settle(token string) []string {
	p.t.Helper()
	first := p.until(token)
	return append(first, p.until(token+"again")...)
}

// told returns the keys of messages about tracked keys.
func told(t *testing.T, received []string) (keys []string) {
	t.Helper()
	for _, text := range received {
		rest, ok := strings.CutPrefix(text, `push["invalidate" `)
		if !ok {
			t.Fatalf("received %s", text)
		}
		if rest = strings.TrimSuffix(rest, "]"); rest == "null" {
			keys = append(keys, rest)
			continue
		}
		keys = append(keys, strings.Split(strings.Trim(rest, "[]"), `" "`)...)
	}
	for i := range keys {
		keys[i] = strings.Trim(keys[i], `"`)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// TestTrackingAsRedis sends random commands to this server and to Redis, and compares what a client
// with tracking is told.
func TestTrackingAsRedis(t *testing.T) {
	for _, mode := range []string{"", "NOLOOP", "BCAST", "BCAST NOLOOP PREFIX a PREFIX b", "OPTIN", "OPTOUT NOLOOP"} {
		t.Run(mode, func(t *testing.T) {
			redis, redisToo := startRedis(t)
			_, addr := start(t, inMemory(), Options{Loops: 1})
			theirs, ours := []*peer{redis, redisToo}, []*peer{dial(t, addr), dial(t, addr)}
			for _, peers := range [][]*peer{theirs, ours} {
				peers[1].do("HELLO", "3")
				if got := peers[1].do(append([]string{"CLIENT", "TRACKING", "ON"}, strings.Fields(mode)...)...); got != "+OK" {
					t.Fatal(got)
				}
			}
			c := newCommander(t, 3)
			for step := range compared(400, 12) {
				of := c.IntN(2)
				command := c.command()
				if !tellsTheSame(command) || strings.HasPrefix(strings.ToLower(command[0]), "eval") { // Redis 7.0 tracks the keys of EVAL instead of those read
					continue
				}
				var got [2][]string
				caching := c.IntN(3) == 0
				for i, peers := range [][]*peer{theirs, ours} {
					peers[0].goOn()
					peers[1].goOn()
					var of1 string
					if of == 1 && caching && strings.HasPrefix(mode, "OPT") {
						yes := map[bool]string{true: "YES", false: "NO"}[strings.HasPrefix(mode, "OPTIN")]
						of1 = encode("CLIENT", "CACHING", yes)
					}
					token := fmt.Sprint("token", step)
					if of == 0 {
						_ = peers[0].do(command...)
						got[i] = told(t, peers[1].until(token))
						continue
					}
					peers[1].send(of1 + encode(command...))
					var received []string
					for _, text := range peers[1].settle(token) {
						if strings.HasPrefix(text, "push") {
							received = append(received, text)
						}
					}
					got[i] = told(t, received)
				}
				if !slices.Equal(got[0], got[1]) {
					testrun.Wrong(t, "step %d, connection %d: %q\n  got %q\nRedis %q", step, of, command, got[1], got[0])
				}
			}
		})
	}
}

// TestTrackingCommandsAsRedis compares the replies of the commands about tracking.
func TestTrackingCommandsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	for _, command := range []string{
		"TRACKINGINFO", "GETREDIR", "CACHING YES", "TRACKING", "TRACKING maybe", "TRACKING ON REDIRECT 99999", "TRACKING ON REDIRECT x", "TRACKING ON PREFIX a", "TRACKING ON BCAST OPTIN",
		"TRACKING ON OPTIN OPTOUT", "TRACKING ON nonsense", "TRACKING ON REDIRECT", "TRACKING OFF", "TRACKING ON", "GETREDIR", "TRACKINGINFO", "TRACKING ON BCAST", "TRACKING ON NOLOOP", "TRACKINGINFO",
		"CACHING YES", "TRACKING OFF", "TRACKING ON OPTIN", "TRACKING ON OPTOUT", "CACHING NO", "CACHING x", "CACHING YES", "TRACKINGINFO", "TRACKINGINFO", "TRACKING OFF", "TRACKING ON OPTOUT", "CACHING YES",
		"CACHING NO", "TRACKINGINFO", "TRACKING OFF", "TRACKING ON BCAST PREFIX a PREFIX ab", "TRACKING ON BCAST PREFIX a PREFIX b", "TRACKING ON BCAST PREFIX ab", "TRACKING ON BCAST PREFIX c",
		"TRACKING OFF", "TRACKINGINFO", "TRACKING ON BCAST", "TRACKINGINFO", "TRACKING OFF",
	} {
		args := append([]string{"CLIENT"}, strings.Fields(command)...)
		want, got := redis.do(args...), ours.do(args...)
		if got != want && !strings.HasPrefix(command, "TRACKING ON BCAST PREFIX") && command != "TRACKINGINFO" || sorted(got) != sorted(want) {
			t.Errorf("%q\n  got %s\nRedis %s", command, got, want)
		}
	}
	for _, name := range []string{"client|tracking", "client|trackinginfo", "client|caching", "client|getredir"} {
		if want, got := redis.do("COMMAND", "INFO", name), ours.do("COMMAND", "INFO", name); got != want {
			t.Errorf("%s\n  got %s\nRedis %s", name, got, want)
		}
	}
}

// TestTrackingRedirects: a client of RESP2 is told through another connection.
func TestTrackingRedirects(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		sub, reader, writer := connect(), connect(), connect()
		id := strings.TrimPrefix(sub.do("CLIENT", "ID"), ":")
		sub.do("SUBSCRIBE", trackingChannel)
		reader.do("HELLO", "3")
		if got := reader.do("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != "+OK" {
			t.Fatal(got)
		}
		reader.do("GET", "k")
		writer.do("SET", "k", "v")
		if got := sub.reply(); got != `["message" "`+trackingChannel+`" ["k"]]` {
			t.Error(got)
		}
		writer.do("SET", "k", "w") // nobody has read it since
		writer.do("FLUSHALL")
		if got := sub.reply(); got != `["message" "`+trackingChannel+`" nil]` {
			t.Error(got)
		}
		_ = sub.conn.Close()
		for strings.Contains(writer.do("CLIENT", "LIST", "ID", id), "id=") { // until the server has seen that
		}
		reader.do("GET", "k")
		writer.do("SET", "k", "v")
		if got := reader.reply(); got != `push["tracking-redir-broken" :`+id+`]` {
			t.Error(got)
		}
		if got := reader.do("CLIENT", "TRACKINGINFO"); !strings.Contains(got, "broken_redirect") {
			t.Error(got)
		}
	})
}

// TestTrackingRedirectsToAnIdleClient: a client of RESP3 that sends nothing after HELLO is told.
func TestTrackingRedirectsToAnIdleClient(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		idle, reader := connect(), connect()
		id := strings.TrimPrefix(idle.do("CLIENT", "ID"), ":")
		idle.do("HELLO", "3")
		if got := reader.do("CLIENT", "TRACKING", "ON", "REDIRECT", id); got != "+OK" {
			t.Fatal(got)
		}
		for range 2 {
			reader.do("GET", "k")
			reader.do("SET", "k", "v")
			if got := idle.reply(); got != `push["invalidate" ["k"]]` {
				t.Error(got)
			}
		}
	})
}

// TestTrackingIsBounded: keys that are dropped from the table are told as changed, as are keys that
// expire.
func TestTrackingIsBounded(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	p.do("HELLO", "3")
	p.do("CONFIG", "SET", "tracking-table-max-keys", "10")
	p.do("CLIENT", "TRACKING", "ON")
	dropped := 0
	for i := range 25 {
		p.send(encode("GET", fmt.Sprint("k", i)))
		dropped += len(p.settle(fmt.Sprint("t", i))) - 1
	}
	if clients, keys, items, _ := s.tracking.stats(); clients != 1 || keys != 10 || items != 10 || dropped != 15 {
		t.Errorf("%d clients, %d keys, %d items, %d dropped", clients, keys, items, dropped)
	}
	p.do("CLIENT", "TRACKING", "OFF")
	p.settle("off")
	p.do("SET", "x", "v", "PX", "200")
	p.do("CLIENT", "TRACKING", "ON", "NOLOOP")
	if p.do("GET", "x") == `"v"` {
		if got := p.reply(); got != `push["invalidate" ["x"]]` {
			t.Error(got)
		}
	}
	if s.changes.on.Load() != true {
		t.Error("changes are not told")
	}
	p.do("CLIENT", "TRACKING", "OFF")
	if s.changes.on.Load() {
		t.Error("changes are still told")
	}
}

// TestTrackedMemoryIsBounded: what the server remembers of tracked keys, prefixes and expiries is part of the
// budget for large requests, and its tables take a share of that.
func TestTrackedMemoryIsBounded(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxBuffers: 1 << 20, MaxBulk: 16 << 10})
	p, other := dial(t, addr), dial(t, addr)
	p.do("HELLO", "3")
	p.do("CLIENT", "TRACKING", "ON")
	long := strings.Repeat("k", 1000)
	dropped := 0
	for i := range 200 {
		p.send(encode("GET", fmt.Sprint(long, i)))
		dropped += len(p.settle(fmt.Sprint("t", i))) - 1
	}
	_, keys, _, _ := s.tracking.stats()
	if keys+dropped != 200 || keys < 100 || keys > 1<<20/8/1000 {
		t.Errorf("%d keys, %d dropped", keys, dropped)
	}
	used := func() int64 { return s.large.used.Load() }
	if got := used(); got < int64(keys)*1000 || got > s.large.share() {
		t.Errorf("%d bytes for %d keys", got, keys)
	}
	for i := range 200 {
		other.do("SET", fmt.Sprint(long, i), "v", "PX", "1000000")
	}
	if _, keys, _, _ := s.tracking.stats(); keys != 0 {
		t.Errorf("%d keys", keys)
	}
	p.settle("set")
	s.expirer.mu.Lock()
	if known := len(s.expirer.ends); known < 100 || known >= 200 {
		t.Errorf("%d expiries", known)
	}
	if got := used(); got != s.expirer.bytes || got > s.large.share() {
		t.Errorf("%d bytes, %d of expiries", got, s.expirer.bytes)
	}
	s.expirer.mu.Unlock()
	expiries := used()
	p.do("CLIENT", "TRACKING", "OFF")
	p.settle("off")
	if got := p.do("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", long+"1", "PREFIX", long+"2"); got != "+OK" {
		t.Error(got)
	}
	if got := used(); got < expiries+2000 {
		t.Errorf("%d bytes with prefixes, %d before", got, expiries)
	}
	before := s.large.used.Swap(s.large.most)
	if got := p.do("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", long+"3"); got != "-"+errMemory {
		t.Error(got)
	}
	s.large.used.Store(before)
	p.do("CLIENT", "TRACKING", "OFF")
	if got := used(); got != expiries {
		t.Errorf("%d bytes without prefixes, %d before them", got, expiries)
	}
}

// TestServedEventsAsRedis compares what is told when a client that waits is served.
func TestServedEventsAsRedis(t *testing.T) {
	redis, redisToo := startRedis(t)
	conn, err := net.Dial("unix", redis.conn.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs := []*peer{redis, redisToo, dialed(t, conn)}
	_, addr := start(t, inMemory(), Options{})
	ours := []*peer{dial(t, addr), dial(t, addr), dial(t, addr)}
	for _, tc := range [][2]string{
		{"BLPOP k 0", "RPUSH k a"},
		{"BRPOP k 0", "RPUSH k a b"},
		{"BLMOVE k to LEFT RIGHT 0", "LPUSH k a b"},
		{"BLMPOP 0 1 k LEFT COUNT 5", "LPUSH k a b"},
		{"BZPOPMIN k 0", "ZADD k 1 a"},
		{"BZMPOP 0 1 k MAX COUNT 5", "ZADD k 1 a 2 b"},
		{"BLPOP k 0", "EVAL redis.call('rpush',KEYS[1],'a','b') 1 k"},
	} {
		var got [2][]string
		for i, peers := range [][]*peer{theirs, ours} {
			writer, sub, waiting := peers[0], peers[1], peers[2]
			writer.do("FLUSHALL")
			writer.do("CONFIG", "SET", "notify-keyspace-events", "AKEnm")
			sub.do("PSUBSCRIBE", "__key*")
			waiting.send(encode(strings.Fields(tc[0])...))
			for !strings.Contains(writer.do("INFO", "clients"), `blocked_clients:1\r`) {
			}
			sub.until("waits")
			writer.do(strings.Fields(tc[1])...)
			_ = waiting.reply()
			got[i] = sub.until("served")
			sub.do("PUNSUBSCRIBE")
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%q\n  got %q\nRedis %q", tc, got[1], got[0])
		}
	}
}

// TestExpiryIsToldLast: that a key is set, and expires, is told before that it has expired, however soon.
func TestExpiryIsToldLast(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	sub, p := dial(t, addr), dial(t, addr)
	p.do("CONFIG", "SET", "notify-keyspace-events", "KEA")
	sub.do("PSUBSCRIBE", "__keyevent@*__:*")
	for step := range 500 {
		sub.goOn()
		p.goOn()
		if step%2 == 0 {
			p.do("SET", "k", "v", "PX", "1")
		} else {
			p.do("SET", "k", "v")
			p.do("PEXPIRE", "k", "1")
		}
		for _, event := range []string{"set", "expire", "expired"} {
			if got := sub.reply(); !strings.Contains(got, `:`+event+`"`) {
				t.Fatalf("step %d: %s, want %s", step, got, event)
			}
		}
	}
}
