package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestTransactionsAreWhole transfers between accounts, in transactions and by commands on
// several keys. The sum stays constant in every reader's view, also in transactions that scan.
func TestTransactionsAreWhole(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{Sessions: 8})
			const accounts, rounds, total = 8, 200, 800
			setup := dial(t, addr)
			for i := range accounts {
				if got := setup.do("SET", fmt.Sprint("account", i), strconv.Itoa(total/accounts)); got != "+OK" {
					t.Fatal(got)
				}
			}
			var movers, lookers sync.WaitGroup
			done := make(chan struct{})
			for m := range 3 {
				p := dial(t, addr)
				movers.Go(func() {
					for i := range rounds {
						from, to := fmt.Sprint("account", (i+m)%accounts), fmt.Sprint("account", (i*3+m+1)%accounts)
						p.send(encode("MULTI") + encode("DECRBY", from, "3") + encode("INCRBY", to, "3") + encode("EXEC"))
						for range 3 {
							p.reply()
						}
						if got := p.reply(); !strings.HasPrefix(got, "[:") {
							t.Error(got)
						}
					}
				})
			}
			for _, whole := range []bool{false, true} {
				p := dial(t, addr)
				lookers.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						p.send(encode("MULTI"))
						n := 1
						for i := range accounts {
							p.send(encode("GET", fmt.Sprint("account", i)))
						}
						if whole {
							p.send(encode("DBSIZE"))
							n++
						}
						p.send(encode("EXEC"))
						for range accounts + n {
							p.reply()
						}
						sum := 0
						for _, element := range elementsOf(p.reply())[:accounts] {
							balance, err := strconv.Atoi(strings.Trim(element, `"`))
							if err != nil {
								t.Error(err)
							}
							sum += balance
						}
						if sum != total {
							t.Errorf("%d altogether, want %d", sum, total)
							return
						}
					}
				})
			}
			movers.Wait()
			close(done)
			lookers.Wait()
		})
	}
}

// TestWatch increments counters from many connections with WATCH, GET and SET. No increment is
// lost.
func TestWatch(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{})
			const clients, steps = 6, 40
			var wg sync.WaitGroup
			for range clients {
				p := dial(t, addr)
				wg.Go(func() {
					for done := 0; done < steps; {
						p.send(encode("WATCH", "n") + encode("GET", "n"))
						p.reply()
						n, _ := strconv.Atoi(strings.Trim(p.reply(), `"`)) // 0 if the key does not exist
						p.send(encode("MULTI") + encode("SET", "n", strconv.Itoa(n+1)) + encode("EXEC"))
						p.reply()
						p.reply()
						switch got := p.reply(); got {
						case "[+OK]":
							done++
						case "nil[]":
						default:
							t.Error(got)
							return
						}
					}
				})
			}
			wg.Wait()
			if got := dial(t, addr).do("GET", "n"); got != strconv.Quote(strconv.Itoa(clients*steps)) {
				t.Errorf("counted %s, want %d", got, clients*steps)
			}
		})
	}
}

// TestWhatTouches checks which changes make a transaction on a watched key fail.
func TestWhatTouches(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p, other := dial(t, addr), dial(t, addr)
	for command, touches := range map[string]bool{
		"SET a 1": true, "GET a": false, "DEL none": false, "DEL a": true, "SETNX a 2": false, "SET a 2 NX": false,
		"EXPIRE a 1000": true, "PERSIST a": false, "APPEND a x": true, "HSET a f 1": false, "INCR a": true,
		"SET b 1": false, "MSET b 1 a 2": true, "RENAME a c": true, "RENAME none a": false, "COPY b a": false,
		"COPY b a REPLACE": true, "FLUSHALL": true, "GETEX a": false, "GETEX a PX 100000": true, "MSETNX a 1 d 2": false,
	} {
		if got := other.do("MSET", "a", "1", "b", "2"); got != "+OK" {
			t.Fatal(got)
		}
		if got := p.do("WATCH", "a", "b2") + p.do("MULTI") + p.do("PING"); got != "+OK+OK+QUEUED" {
			t.Fatal(got)
		}
		other.do(strings.Fields(command)...)
		want := "[+PONG]"
		if touches {
			want = "nil[]"
		}
		if got := p.do("EXEC"); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
	// An expiry does, too.
	if got := p.do("SET", "a", "1", "PX", "1") + p.do("WATCH", "a") + p.do("MULTI"); got != "+OK+OK+OK" {
		t.Fatal(got)
	}
	testrun.Until(t, "the key is gone", func() bool { return other.do("EXISTS", "a") == ":0" })
	_ = p.do("EXEC") // the result depends on whether WATCH came before the expiry
	if got := p.do("UNWATCH") + p.do("EXEC") + p.do("DISCARD"); got != "+OK-"+errExecAlone+"-"+errDiscardAlone {
		t.Error(got)
	}
}

// TestQueueIsBounded: queued commands are charged to the memory for requests until they end.
func TestQueueIsBounded(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxBulk: 1 << 20, MaxRequest: 2 << 20, MaxBuffers: 4 << 20})
	p := dial(t, addr)
	value := strings.Repeat("v", 1<<20)
	if got := p.do("MULTI") + p.do("SET", "a", value) + p.do("SET", "a", value) + p.do("EXEC"); got != "+OK+QUEUED-"+errTooLarge+"-"+errExecAborted {
		t.Error(got)
	}
	if got := p.do("MULTI") + p.do("SET", "a", value) + p.do("DISCARD"); got != "+OK+QUEUED+OK" {
		t.Error(got)
	}
	p.send(encode("MULTI") + encode("SET", "a", value) + encode("WATCH", "a") + encode("QUIT"))
	for range 4 {
		p.reply()
	}
	p.expectEnd()
	testrun.Until(t, "what was queued is given back", func() bool { return s.Metrics().RequestBytes == 0 })
}

// TestTransactionOfLargeReplies: the replies of a transaction are held until its end, up to a
// limit.
func TestTransactionOfLargeReplies(t *testing.T) {
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	if got := p.do("SET", "a", strings.Repeat("v", 1<<20)) + p.do("MULTI"); got != "+OK+OK" {
		t.Fatal(got)
	}
	for range 2 * leastReplies >> 20 {
		if got := p.do("GET", "a"); got != "+QUEUED" {
			t.Fatal(got)
		}
	}
	if got := p.do("EXEC"); got != "-"+errTooLargeReply {
		t.Errorf("%.100s", got)
	}
	p.expectEnd()
	if got := dial(t, addr).do("STRLEN", "a"); got != ":1048576" {
		t.Error(got)
	}
}

// TestTransactionsShareTheBudget: the replies that a transaction holds back are in the budget for
// replies. One for which it has no room is carried out all the same.
func TestTransactionsShareTheBudget(t *testing.T) {
	s, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	exec := func() string {
		p.send(encode("MULTI") + strings.Repeat(encode("GET", "big"), batchBytes>>19) + encode("INCR", "n") + encode("EXEC"))
		for range batchBytes>>19 + 2 {
			p.reply()
		}
		got := p.reply()
		return got[max(0, len(got)-40):]
	}
	if got := p.do("SET", "big", strings.Repeat("v", 1<<19)); got != "+OK" {
		t.Fatal(got)
	}
	const others = leastReplies - batchBytes/2
	if !s.replies.take(others) {
		t.Fatal("the budget is in use")
	}
	if got := exec(); !strings.HasSuffix("-"+errTooLargeReply, got) {
		t.Errorf("without room: %s", got)
	}
	p.expectEnd()
	testrun.Until(t, "the replies are returned", func() bool { return s.replies.used.Load() == others })
	s.replies.give(others)
	p = dial(t, addr)
	if got := exec(); !strings.HasSuffix(got, " :2]") {
		t.Errorf("with room: %s", got)
	}
}

// TestTransactionIsCarriedOutWhole: a transaction whose replies are too large, or that ends its own
// connection, is carried out whole.
func TestTransactionIsCarriedOutWhole(t *testing.T) {
	big := strings.Repeat("v", 1<<20)
	large := slices.Repeat([][]string{{"GET", "big"}}, 2*leastReplies>>20)
	for name, c := range map[string]struct {
		between [][]string
		want    string // the reply to EXEC, before the connection ends; "": it is cut off
	}{
		"large replies":             {large, "-" + errTooLargeReply},
		"a large reply of one":      {[][]string{append([]string{"MGET"}, slices.Repeat([]string{"big"}, len(large))...)}, "-" + errTooLargeReply},
		"kills itself":              {[][]string{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}}, ""},
		"kills itself, and more":    {append([][]string{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}}, large...), "-" + errTooLargeReply},
		"kills itself, and scans":   {[][]string{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}, {"DBSIZE"}}, ""},
		"large replies, and a scan": {append([][]string{{"DBSIZE"}}, large...), "-" + errTooLargeReply},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
			p := dial(t, addr)
			if got := p.do("SET", "big", big) + p.do("MULTI") + p.do("SET", "a", "1"); got != "+OK+OK+QUEUED" {
				t.Fatal(got)
			}
			for _, args := range append(c.between, []string{"SET", "b", "1"}) {
				if got := p.do(args...); got != "+QUEUED" {
					t.Fatal(got)
				}
			}
			p.send(encode("EXEC"))
			if c.want == "" {
				got, err := io.ReadAll(p.in)
				if want := fmt.Sprintf("*%d\r\n+OK\r\n:1\r\n", len(c.between)+2); string(got) != want || err != nil {
					t.Errorf("%q, %v, want %q", got, err, want)
				}
			} else {
				if got := p.reply(); got != c.want {
					t.Errorf("%.100s", got)
				}
				p.expectEnd()
			}
			if got := dial(t, addr).do("MGET", "a", "b"); got != `["1" "1"]` {
				t.Error(got)
			}
		})
	}
}

// TestTransactionKillsItselfAsRedis compares a transaction that ends its own connection with Redis.
func TestTransactionKillsItselfAsRedis(t *testing.T) {
	redis, other := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	for name, p := range map[string][2]*peer{"redis": {redis, other}, "redykv": {dial(t, addr), dial(t, addr)}} {
		id := strings.TrimPrefix(p[0].do("CLIENT", "ID"), ":")
		p[0].send(encode("MULTI") + encode("SET", "a", "1") + encode("CLIENT", "KILL", "ID", id, "SKIPME", "no") + encode("SET", "b", "1") + encode("EXEC"))
		got, err := io.ReadAll(p[0].in)
		if want := "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:1\r\n"; string(got) != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		if got := p[1].do("MGET", "a", "b"); got != `["1" "1"]` {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestScriptOfLargeReplies: a script whose command has a too large reply gets an error, and goes on.
func TestScriptOfLargeReplies(t *testing.T) {
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	if got := p.do("SET", "big", strings.Repeat("v", 1<<20)); got != "+OK" {
		t.Fatal(got)
	}
	const script = `redis.call("SET", KEYS[2], 1)
		local bigs = {}
		for i = 1, tonumber(ARGV[1]) do bigs[i] = KEYS[1] end
		local refused = redis.pcall("MGET", unpack(bigs))
		redis.call("SET", KEYS[3], 1)
		return refused`
	eval := []string{"EVAL", script, "3", "big", "a", "b", strconv.Itoa(2 * leastReplies >> 20)}
	for _, in := range []string{"", "MULTI"} {
		want := "-" + errMemory
		if _ = p.do("DEL", "a", "b"); in != "" {
			_, want = p.do(in), "["+want+"]"
			p.do(eval...)
			eval = []string{"EXEC"}
		}
		if got := p.do(eval...); got != want {
			t.Errorf("%s: %.100s", in, got)
		}
		if got := p.do("MGET", "a", "b"); got != `["1" "1"]` {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// watchingUser calls runs for each command that it may run.
type watchingUser struct {
	everybody
	runs func(command string)
}

func (watchingUser) Unrestricted() bool { return false }

func (u watchingUser) MayRun(command string, _ Category) bool {
	u.runs(command)
	return true
}

// TestWholeTransactionsAreCommittedWhole: no commit begins between two commands of a transaction or a script
// that has the store alone.
func TestWholeTransactionsAreCommittedWhole(t *testing.T) {
	var s *Server
	watching, commits := false, 0
	users := testUsers{watchingUser{runs: func(command string) {
		if !watching || command != "dbsize" {
			return
		}
		commits++
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := s.store.Commit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a commit: %v", err)
		}
	}}}
	s, addr := start(t, inMemory(), Options{Users: users, Loops: -1})
	p := dial(t, addr)
	for _, command := range []string{"MULTI", "SET a 1", "DBSIZE", "SET b 1"} {
		p.do(strings.Fields(command)...)
	}
	watching = true
	if got := p.do("EXEC"); got != "[+OK :1 +OK]" {
		t.Error(got)
	}
	if got := p.do("EVAL", "redis.call('SET', 'c', 1) redis.call('DBSIZE') return redis.call('SET', 'd', 1)", "0"); got != "+OK" {
		t.Error(got)
	}
	if commits != 2 {
		t.Errorf("%d commits were tried", commits)
	}
}

// TestTransactionsKeepTheirSession: no other client is lent the session of a transaction before its end,
// also if that names no key.
func TestTransactionsKeepTheirSession(t *testing.T) {
	var s *Server
	watching, looks := false, 0
	users := testUsers{watchingUser{runs: func(command string) {
		if !watching || command != "ping" {
			return
		}
		looks++
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		if s.pool.lent != 1 {
			t.Errorf("%d sessions are lent within the transaction", s.pool.lent)
		}
	}}}
	s, addr := start(t, inMemory(), Options{Users: users, Loops: -1})
	p := dial(t, addr)
	const keyless, roams = "return 1", "return redis.call('SET', ARGV[1], 1)"
	p.do("EVAL", keyless, "0") // from now on it is known to need no key
	for name, queue := range map[string][][]string{
		"commands":                {{"ECHO", "a"}},
		"a script":                {{"EVAL", keyless, "0"}},
		"a script and a key":      {{"EVAL", keyless, "0"}, {"GET", "a"}},
		"a script of one key":     {{"EVAL", keyless, "1", "a"}},
		"a script that is new":    {{"EVAL", "return 2", "0"}},
		"a script that uses keys": {{"EVAL", roams, "0", "a"}},
	} {
		p.do("MULTI")
		for _, command := range append(queue, []string{"PING"}) {
			if got := p.do(command...); got != "+QUEUED" {
				t.Errorf("%s: %s: %s", name, command, got)
			}
		}
		watching = true
		if got := p.do("EXEC"); !strings.HasSuffix(got, " +PONG]") || strings.Contains(got, "-ERR") {
			t.Errorf("%s: %s", name, got)
		}
		watching = false
	}
	if looks != 6 {
		t.Errorf("%d transactions were looked at", looks)
	}
}

// TestClearsWithinTransactions: transactions and scripts that have the store alone may clear it, beside
// commits.
func TestClearsWithinTransactions(t *testing.T) {
	for durability := range durabilities {
		t.Run(durability.String(), func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{Durability: durability})
			p := dial(t, addr)
			ctx, cancel := context.WithCancel(t.Context())
			var commits sync.WaitGroup
			commits.Go(func() {
				for ctx.Err() == nil {
					_ = s.store.Commit(ctx)
				}
			})
			defer commits.Wait()
			defer cancel()
			for range 20 {
				for _, flush := range []string{"FLUSHALL", "FLUSHDB"} {
					p.do("SELECT", "1")
					p.do("SET", "other", "1")
					p.do("SELECT", "0")
					p.send(encode("MULTI") + encode("SET", "a", "1") + encode("DBSIZE") + encode(flush) + encode("SET", "b", "1") + encode("EXEC"))
					for range 5 {
						p.reply()
					}
					if got := p.reply(); got != "[+OK :1 +OK +OK]" {
						t.Fatal(got)
					}
					if got := p.do("EXISTS", "a", "b"); got != ":1" {
						t.Fatal(got)
					}
					if got := p.do("EVAL", "redis.call('SET', 'a', 1) redis.call('"+flush+"') return redis.call('DBSIZE')", "0"); got != ":0" {
						t.Fatal(got)
					}
				}
			}
		})
	}
}
