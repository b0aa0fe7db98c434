package resp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// ints formats replies that are integers.
func ints(n int) string { return ":" + strconv.Itoa(n) }

// members returns the elements of an array or set as printed by reply, sorted.
func members(reply string) []string {
	all := elementsOf(reply)
	slices.Sort(all)
	return all
}

// addMany sends SADD with the members m0 … in pipelines.
func addMany(p *peer, key string, from, to int) {
	for at := from; at < to; {
		var all strings.Builder
		sent := 0
		for ; at < to && sent < 100; sent++ {
			all.WriteString(encode("SADD", key, fmt.Sprint("m", at)))
			at++
		}
		p.send(all.String())
		for range sent {
			p.reply()
		}
	}
}

// TestSpreadSet follows a set from one member to many and back, in memory and cold.
func TestSpreadSet(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, options(), Options{})
			p := dial(t, addr)
			const n = 5000
			addMany(p, "s", 0, n)
			if got := p.do("SCARD", "s"); got != ints(n) {
				t.Fatalf("%s members", got)
			}
			if got := p.do("OBJECT", "ENCODING", "s"); got != `"hashtable"` {
				t.Errorf("encoding %s", got)
			}
			all := members(p.do("SMEMBERS", "s"))
			if len(all) != n || len(slices.Compact(all)) != n {
				t.Fatalf("%d members", len(all))
			}
			for _, i := range []int{0, 1, n / 2, n - 1} {
				if got := p.do("SMISMEMBER", "s", fmt.Sprint("m", i), fmt.Sprint("x", i)); got != "[:1 :0]" {
					t.Errorf("member %d: %s", i, got)
				}
			}
			if keys, _, _ := s.store.KeyCount(); keys != 1 {
				t.Errorf("%d keys", keys)
			}
			if got := p.do("KEYS", "*"); got != `["s"]` {
				t.Errorf("keys %s", got)
			}
			// SSCAN returns each once.
			seen := map[string]int{}
			for cursor := "0"; ; {
				parts := elementsOf(p.do("SSCAN", "s", cursor, "COUNT", "50"))
				for _, m := range elementsOf(parts[1]) {
					seen[m]++
				}
				if cursor, _ = strconv.Unquote(parts[0]); cursor == "0" {
					break
				}
			}
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, all) {
				t.Errorf("SSCAN returned %d members", len(got))
			}
			for m, times := range seen {
				if times != 1 {
					t.Fatalf("SSCAN returned %s %d times", m, times)
				}
			}
			if got := p.do("SADD", "s", "m1", "new", "new"); got != ":1" {
				t.Error(got)
			}
			if got := p.do("SREM", "s", "new", "m0", "none"); got != ":2" {
				t.Error(got)
			}
			if got := len(elementsOf(p.do("SRANDMEMBER", "s", "100"))); got != 100 {
				t.Errorf("%d random members", got)
			}
			all = members(p.do("SMEMBERS", "s"))
			for _, many := range []int{n - 2, 3 * n} {
				some := members(p.do("SRANDMEMBER", "s", fmt.Sprint(-many)))
				if len(some) != many {
					t.Errorf("%d random members of %d", len(some), many)
				}
				if some = slices.Compact(some); len(some) < n/2 || slices.ContainsFunc(some, func(m string) bool { return !slices.Contains(all, m) }) {
					t.Errorf("%d different members of %d", len(some), many)
				}
			}
			for left := n - 1; left > 0; {
				got := members(p.do("SPOP", "s", "700"))
				if want := min(left, 700); len(got) != want || len(slices.Compact(got)) != want {
					t.Fatalf("SPOP returned %d members of %d", len(got), left)
				}
				left -= len(got)
				if got := p.do("SCARD", "s"); got != ints(left) {
					t.Fatalf("%s members, want %d", got, left)
				}
			}
			if got := p.do("EXISTS", "s"); got != ":0" {
				t.Error("an empty set exists")
			}
		})
	}
}

// TestPipelinesOnSpread sends random pipelines of commands on large and small hashes and sets, and
// on strings of the same keys, to a server with and one without spread collections.
func TestPipelinesOnSpread(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{})
			packedOnly := inMemory()
			packedOnly.Inner, packedOnly.Orphans = nil, nil
			_, modelAddr := start(t, packedOnly, Options{})
			p, model := dial(t, addr), dial(t, modelAddr)
			c := commander{rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))}
			for round := range 60 {
				compareLarge(t, c, round, model, p, 1+c.IntN(80))
			}
		})
	}
}

// large returns a random command on few keys, whose collections are often large.
func (c commander) large() []string {
	key := func() string { return c.one("h", "h2", "s", "s2", "x") }
	many := func(n int, make func() []string) (all []string) {
		for range 1 + c.IntN(n) {
			all = append(all, make()...)
		}
		return all
	}
	field := func() []string { return []string{fmt.Sprint("field", c.IntN(600))} }
	pair := func() []string { return []string{fmt.Sprint("field", c.IntN(600)), strings.Repeat("v", c.IntN(40))} }
	switch c.IntN(34) {
	case 0, 1, 2:
		return append([]string{"HSET", c.one("h", "h", "h2", "x")}, many(100, pair)...)
	case 3, 4, 5:
		return append([]string{"SADD", c.one("s", "s", "s2", "x")}, many(200, field)...)
	case 6:
		return append([]string{"HDEL", key()}, many(50, field)...)
	case 7:
		return append([]string{"SREM", key()}, many(50, field)...)
	case 8:
		return append([]string{"HGET", key()}, field()...)
	case 9:
		return append([]string{"HMGET", key()}, many(5, field)...)
	case 10:
		return append([]string{"SISMEMBER", key()}, field()...)
	case 11:
		return append([]string{"SMISMEMBER", key()}, many(5, field)...)
	case 12:
		return []string{c.one("HLEN", "SCARD", "HGETALL", "SMEMBERS", "HKEYS", "TYPE", "HVALS", "PTTL", "STRLEN"), key()}
	case 13:
		return []string{"HINCRBY", key(), "n", "3"}
	case 14:
		return []string{"HINCRBYFLOAT", key(), "f", "0.5"}
	case 15:
		return append([]string{"HSETNX", key()}, pair()...)
	case 16:
		if c.IntN(4) == 0 {
			return []string{c.one("DEL", "UNLINK"), key()}
		}
		return []string{"EXISTS", key(), key()}
	case 17:
		return []string{"SET", "x", c.value()}
	case 18:
		return []string{"GET", "x"}
	case 19:
		return []string{"RENAME", key(), key()}
	case 20:
		return []string{"COPY", key(), key(), "REPLACE"}
	case 21:
		return []string{"OBJECT", "ENCODING", key()}
	case 22:
		return append([]string{"SMOVE", key(), key()}, field()...)
	case 23:
		return []string{c.one("SINTER", "SUNION", "SDIFF"), c.one("s", "s2"), c.one("s", "s2", "x")}
	case 24:
		return []string{c.one("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), key(), c.one("s", "s2"), c.one("s", "s2", "x")}
	case 25:
		return []string{"SINTERCARD", "2", "s", "s2", "LIMIT", strconv.Itoa(c.IntN(20))}
	case 26:
		return []string{"EXPIRE", key(), "10000"}
	case 27:
		return []string{"SPOP", key(), "100000"}
	case 28:
		return []string{"SADD", key(), strconv.Itoa(c.IntN(1000))}
	case 29:
		return []string{c.one("MULTI", "EXEC", "EXEC")}
	case 30:
		return []string{"MSET", "x", "1", "y", "2"}
	case 31:
		return []string{"HSTRLEN", key(), fmt.Sprint("field", c.IntN(600))}
	case 32:
		return []string{"PERSIST", key()}
	}
	return []string{"GETDEL", "x"}
}

func compareLarge(t *testing.T, c commander, round int, model, p *peer, n int) {
	t.Helper()
	commands := make([][]string, n)
	var pipeline strings.Builder
	for i := range commands {
		commands[i] = c.large()
		pipeline.WriteString(encode(commands[i]...))
	}
	for _, q := range []*peer{model, p} {
		q.goOn()
		q.send(pipeline.String())
	}
	for i, command := range commands {
		want, got := model.reply(), p.reply()
		if !alikeUnordered(command, got, want) {
			for _, before := range commands[max(i-30, 0):i] {
				t.Logf("before: %.200q", before)
			}
			testrun.Wrong(t, "round %d, command %d: %.300q\n  got %.500s\n want %.500s", round, i, command, got, want)
		}
	}
}

// alikeUnordered is alike for replies whose order differs between packed and spread collections.
func alikeUnordered(command []string, got, want string) bool {
	return alike(command, got, want) || sorted(got) != "" && sorted(got) == sorted(want)
}

// TestNodesOfDeadAreDropped deletes, overwrites, renames, copies and moves large sets, compacts, and
// checks that exactly the nodes of the others remain.
func TestNodesOfDeadAreDropped(t *testing.T) {
	options := inMemory()
	options.PageSize = 16 << 10
	s, addr := start(t, options, Options{})
	p := dial(t, addr)
	const n = 1000
	for _, key := range []string{"deleted", "overwritten", "expired", "renamed", "copied", "moved", "kept", "replaced"} {
		addMany(p, key, 0, n)
	}
	for _, tc := range [][]string{
		{"DEL", "deleted"}, {"SET", "overwritten", "1"}, {"PEXPIRE", "expired", "1"}, {"RENAME", "renamed", "renamed to"},
		{"COPY", "copied", "copy"}, {"MOVE", "moved", "1"}, {"RENAME", "renamed to", "renamed"}, {"RENAME", "renamed", "replaced"},
	} {
		if got := p.do(tc...); got[0] == '-' {
			t.Fatalf("%q: %s", tc, got)
		}
	}
	for p.do("EXISTS", "expired") != ":0" {
	}
	check := func(when string) {
		t.Helper()
		for _, key := range []string{"copied", "copy", "kept", "replaced"} {
			if got := len(elementsOf(p.do("SMEMBERS", key))); got != n {
				t.Errorf("%s: %s has %d members", when, key, got)
			}
		}
		p.do("SELECT", "1")
		if got := len(elementsOf(p.do("SMEMBERS", "moved"))); got != n {
			t.Errorf("%s: moved has %d members", when, got)
		}
		p.do("SELECT", "0")
	}
	check("before")
	nodes := func() (n int) {
		generations := map[generation]int{}
		for rec, err := range s.store.ScanLog(0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if Inner(rec.Key) && string(rec.Key[:markSize]) == nodeMark {
				g, _ := generationOf(rec.Key)
				generations[g]++
			}
		}
		return len(generations)
	}
	if got := nodes(); got != 9 {
		t.Errorf("nodes of %d sets, want 9", got)
	}
	freeze(t, s, p)
	if got := nodes(); got != 5 {
		t.Errorf("nodes of %d sets after compaction, want 5", got)
	}
	check("after")
}

// freeze makes all of the log read-only, and compacts it, except for new records of other keys.
func freeze(t *testing.T, s *Server, p *peer) {
	t.Helper()
	for i := range 8 {
		p.do("SET", fmt.Sprint("filler", i), strings.Repeat("f", 8<<10))
	}
	if got := p.do("SAVE"); got != "+OK" {
		t.Fatal(got)
	}
	if _, err := s.store.Compact(t.Context(), kv.CompactOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNodesOfAClientAlone: compaction does not take nodes for dead that a client writes that has the store
// alone, before their header.
func TestNodesOfAClientAlone(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	rounds := testrun.Raced(20, 3)
	addMany(p, "set", 0, 20_000)
	addScored(t, p, "sorted", 20_000, 10, true)
	p.do("EVAL", "for i = 1, 20000 do redis.call('RPUSH', KEYS[1], ('x'):rep(100) .. i) end", "1", "list")
	var mu sync.Mutex
	dead, ended := make(map[generation]bool), make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		session := s.store.NewSession()
		defer func() { _ = session.Close() }()
		for {
			select {
			case <-ended:
				return
			default:
			}
			found := make(map[generation]bool)
			for rec, err := range s.store.ScanLog(0, 0) {
				if err != nil {
					t.Error(err)
					return
				}
				if g, ok := generationOf(rec.Key); ok && Inner(rec.Key) {
					found[g] = false
				}
			}
			if err := findDead(t.Context(), session, found); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			for g, is := range found {
				dead[g] = dead[g] || is
			}
			mu.Unlock()
		}
	})
	defer looks.Wait()
	defer close(ended)
	for round := range rounds {
		got := p.do("EVAL", "redis.call('COPY', 'set', 'a', 'REPLACE') redis.call('COPY', 'sorted', 'b', 'REPLACE') redis.call('COPY', 'list', 'c', 'REPLACE') "+
			"redis.call('LTRIM', 'c', 0, 8000) redis.call('ZREMRANGEBYRANK', 'b', 0, 14000)", "0")
		if got[0] == '-' {
			t.Fatal(got)
		}
		for _, key := range []string{"a", "b", "c"} {
			value, err := s.store.Read(t.Context(), []byte(key), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, h, ok := headerIn(value)
			if !ok {
				t.Fatalf("%s is not spread", key)
			}
			mu.Lock()
			taken := dead[h.gen]
			mu.Unlock()
			if taken {
				testrun.Wrong(t, "round %d: the nodes of %s are taken for dead", round, key)
			}
		}
	}
}

// TestDamagedNode checks that a damaged node, header or owner is an error of the commands that need
// it, and of no other, and that nothing else is changed.
func TestDamagedNode(t *testing.T) {
	for _, tc := range []struct{ name, value string }{
		{"short", "abc"}, {"too long", "\xff\xff\xff\xff123"}, {"no elements", "\x03\x00\x00\x00\xff\xff\xff123"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := inMemory()
			options.PageSize = 16 << 10
			s, addr := start(t, options, Options{})
			p := dial(t, addr)
			addMany(p, "s", 0, 1000)
			addMany(p, "other", 0, 1000)
			op := kv.Op{Kind: kv.OpRead, Key: []byte("s")}
			if err := s.store.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
			_, h, ok := headerIn(op.Value)
			if !ok {
				t.Fatal("the set is not spread")
			}
			node := kv.Op{Kind: kv.OpUpsert, Key: appendNodeKey(nil, h.gen, 0), Value: []byte(tc.value)}
			if err := s.store.Run(t.Context(), &node); err != nil {
				t.Fatal(err)
			}
			const want = "-ERR a node of this collection is damaged"
			if got := p.do("SMEMBERS", "s"); got != want {
				t.Errorf("SMEMBERS: %s", got)
			}
			if got := p.do("DUMP", "s"); got != want {
				t.Errorf("DUMP: %s", got)
			}
			refused, fine := 0, 0
			for i := range 1000 {
				switch got := p.do("SADD", "s", fmt.Sprint("m", i), fmt.Sprint("n", i)); got {
				case want:
					refused++
				case ":1":
					fine++
				default:
					t.Fatalf("SADD: %s", got)
				}
			}
			if refused == 0 || fine == 0 {
				t.Errorf("%d commands refused, %d not", refused, fine)
			}
			if got := p.do("SCARD", "s"); got != ints(1000+fine) {
				t.Errorf("%s members", got)
			}
			if got := len(elementsOf(p.do("SMEMBERS", "other"))); got != 1000 {
				t.Errorf("the other set has %d members", got)
			}
			if got := p.do("DEL", "s"); got != ":1" {
				t.Errorf("DEL: %s", got)
			}
			addMany(p, "missing", 0, 1000)
			if err := s.store.Run(t.Context(), &op); err == nil {
				t.Fatal("the deleted set is there")
			}
			op.Key = []byte("missing")
			if err := s.store.Run(t.Context(), &op); err != nil {
				t.Fatal(err)
			}
			if _, h, ok = headerIn(op.Value); !ok {
				t.Fatal("the set is not spread")
			}
			for id := range nodesOf(typeSpreadSet, h) {
				if err := s.store.Delete(t.Context(), appendNodeKey(nil, h.gen, id)); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range []string{"SMEMBERS", "SPOP", "SRANDMEMBER"} {
				if got := p.do(command, "missing"); got != "-ERR elements of this collection are missing" {
					t.Errorf("%s: %s", command, got)
				}
			}
			header := kv.Op{Kind: kv.OpUpsert, Key: []byte("t"), Value: append(appendMark(nil, typeSpreadSet), "short"...)}
			if err := s.store.Run(t.Context(), &header); err != nil {
				t.Fatal(err)
			}
			if got := p.do("SADD", "t", "a"); got != "-ERR the header of this collection is damaged" {
				t.Errorf("SADD: %s", got)
			}
			freeze(t, s, p)
			if got := len(elementsOf(p.do("SMEMBERS", "other"))); got != 1000 {
				t.Errorf("the other set has %d members after compaction", got)
			}
		})
	}
}

// TestSpreadTogether moves members between large sets from several connections, while others rename
// and copy the sets and read them, and the log is compacted and committed. No member is lost or
// appears twice, and readers see whole transactions.
func TestSpreadTogether(t *testing.T) {
	options := cold()
	options.Compaction = kv.AutoCompaction{DeadShare: 0.3, Share: 1, Every: 10 * time.Millisecond}
	s, addr := start(t, options, Options{Durability: DurabilityEverySecond})
	const n, movers, rounds = 2000, 3, 150
	p := dial(t, addr)
	addMany(p, "a", 0, n)
	addMany(p, "b", 0, 1)
	p.do("SREM", "b", "m0")
	var all, others sync.WaitGroup
	stop := make(chan struct{})
	for i := range movers {
		p, rng := dial(t, addr), rand.New(rand.NewPCG(uint64(i), 0))
		all.Go(func() {
			for range rounds {
				m := fmt.Sprint("m", rng.IntN(n))
				p.send(encode("SMOVE", "a", "b", m) + encode("SMOVE", "b", "a", m) + encode("SMOVE", "a", "b", fmt.Sprint("m", rng.IntN(n))) +
					encode("MULTI") + encode("SADD", "a", "x", "y") + encode("SREM", "a", "x", "y") + encode("EXEC"))
				for range 7 {
					if got := p.reply(); got[0] == '-' {
						t.Errorf("mover: %s", got)
						return
					}
				}
			}
		})
	}
	until := func(do func(p *peer)) {
		p := dial(t, addr)
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.goOn()
					do(p)
				}
			}
		})
	}
	until(func(p *peer) {
		p.send(encode("MULTI") + encode("RENAME", "a", "c") + encode("RENAME", "b", "a") + encode("RENAME", "c", "b") + encode("EXEC"))
		for range 5 {
			p.reply()
		}
		if got := p.do("COPY", "a", "copy", "REPLACE"); got[0] == '-' {
			t.Errorf("COPY: %s", got)
		}
	})
	until(func(p *peer) {
		got := elementsOf(p.do("SUNION", "a", "b"))
		if slices.Sort(got); len(got) != n || len(slices.Compact(got)) != n {
			t.Errorf("the sets have %d members", len(got))
		}
		if got := p.do("SINTERCARD", "2", "a", "b"); got != ":0" {
			t.Errorf("%s members are in both sets", got)
		}
	})
	all.Wait()
	close(stop)
	others.Wait()
	p.goOn()
	a, b := len(elementsOf(p.do("SMEMBERS", "a"))), len(elementsOf(p.do("SMEMBERS", "b")))
	if p.do("SCARD", "a") != ints(a) || p.do("SCARD", "b") != ints(b) || a+b != n {
		t.Errorf("the sets have %d and %d members", a, b)
	}
	if err := s.store.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// FuzzNode reads damaged nodes and headers.
func FuzzNode(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x01f\x01v    "), []byte("f"), true)
	f.Add([]byte("\x02\x00\x00\x00\x01m"), []byte("n"), false)
	f.Fuzz(func(t *testing.T, value, field []byte, isHash bool) {
		family := typeSet
		if isHash {
			family = typeHash
		}
		table := hashTable{nodes: nodes{io: new(nodeIO)}, typ: family}
		if h, ok := headerOf(value); ok {
			_ = table.open(table.io, family, h)
		}
		table.typ = family
		nd := node{loaded: true}
		if !nd.take(value) {
			return
		}
		at, found := table.find(&nd, field)
		if table.io.failed != nil {
			return
		}
		before := len(nd.content)
		if found {
			table.cut(&nd, at)
		}
		table.add(&nd, field, []byte("value"))
		if at, ok := table.find(&nd, field); !found && (!ok || at.to != len(nd.content) || at.from != before) {
			t.Errorf("%q at %d of %d in %q", field, at.from, at.to, value)
		}
	})
}

// TestOwners checks the records that tell living generations from dead ones, when owners are missing
// or damaged, and headers are damaged or unknown.
func TestOwners(t *testing.T) {
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	p.do("SET", "string", "1")
	put := func(key, value []byte) {
		t.Helper()
		op := kv.Op{Kind: kv.OpUpsert, Key: key, Value: value}
		if err := s.store.Run(t.Context(), &op); err != nil {
			t.Fatal(err)
		}
	}
	header := func(g generation) []byte {
		h := header{gen: g, count: 1}
		return h.append(appendMark(nil, typeSpreadSet))
	}
	live, other := newGeneration(), newGeneration()
	put([]byte("live"), header(live))
	put([]byte("other"), header(other))
	put([]byte("damaged"), append(appendMark(nil, typeSpreadSet), 'x'))
	put([]byte("later"), append([]byte(mark), "~something"...))
	for name, tc := range map[string]struct {
		gen    generation
		owner  []byte
		orphan bool
	}{
		"alive":                     {live, (&owner{3, []byte("live")}).value(), false},
		"without owner":             {newGeneration(), nil, true},
		"damaged owner":             {newGeneration(), []byte("x"), false},
		"of a string":               {newGeneration(), (&owner{0, []byte("string")}).value(), true},
		"of no key":                 {newGeneration(), (&owner{0, []byte("none")}).value(), true},
		"of another":                {newGeneration(), (&owner{0, []byte("other")}).value(), true},
		"of a damaged header":       {newGeneration(), (&owner{0, []byte("damaged")}).value(), false},
		"of a later version's type": {newGeneration(), (&owner{0, []byte("later")}).value(), false},
	} {
		if tc.owner != nil {
			put(ownerKey(tc.gen), tc.owner)
		}
		session := s.store.NewSession()
		orphan := make([]bool, 2)
		err := Orphans(t.Context(), session, [][]byte{appendNodeKey(nil, tc.gen, 7), ownerKey(tc.gen)}, orphan)
		if err != nil || orphan[0] != tc.orphan || orphan[1] != tc.orphan {
			t.Errorf("%s: %v, %v", name, orphan, err)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSetEncodings checks OBJECT ENCODING of sets against the rules of Redis 7.2.
func TestSetEncodings(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	numbers := func(key string, from, to int) []string {
		args := []string{"SADD", key}
		for i := from; i < to; i++ {
			args = append(args, strconv.Itoa(i))
		}
		return args
	}
	words := func(key string, from, to int) []string {
		args := []string{"SADD", key}
		for i := from; i < to; i++ {
			args = append(args, fmt.Sprint("w", i))
		}
		return args
	}
	for _, tc := range []struct {
		name     string
		commands [][]string
		want     string
	}{
		{"integers", [][]string{numbers("k", 0, 512)}, "intset"},
		{"many integers at once", [][]string{numbers("k", 0, 513)}, "hashtable"},
		{"one integer too many", [][]string{numbers("k", 0, 512), numbers("k", 512, 513)}, "hashtable"},
		{"words", [][]string{words("k", 0, 128)}, "listpack"},
		{"one word too many", [][]string{words("k", 0, 128), words("k", 128, 129)}, "hashtable"},
		{"many words at once", [][]string{words("k", 0, 129)}, "hashtable"},
		{"a long word", [][]string{words("k", 0, 1), {"SADD", "k", strings.Repeat("x", 65)}}, "hashtable"},
		{"a word after integers", [][]string{numbers("k", 0, 100), words("k", 0, 1)}, "listpack"},
		{"a word after many integers", [][]string{numbers("k", 0, 200), words("k", 0, 1)}, "hashtable"},
		{"integers left", [][]string{numbers("k", 0, 9), words("k", 0, 1), {"SREM", "k", "w0"}}, "listpack"},
		{"a table remains", [][]string{words("k", 0, 200), {"SPOP", "k", "199"}}, "hashtable"},
		{"intersection", [][]string{words("a", 0, 300), numbers("a", 0, 9), words("b", 500, 600), numbers("b", 0, 9), {"SINTERSTORE", "k", "a", "b"}}, "intset"},
		{"union", [][]string{words("a", 0, 300), words("b", 0, 9), {"SUNIONSTORE", "k", "a", "b"}}, "hashtable"},
		{"difference", [][]string{words("a", 0, 300), words("b", 9, 300), {"SDIFFSTORE", "k", "a", "b"}}, "listpack"},
		{"moved", [][]string{{"SADD", "a", "x", "1"}, {"SMOVE", "a", "k", "1"}}, "intset"},
		{"copied", [][]string{words("a", 0, 2000), {"COPY", "a", "k"}}, "hashtable"},
	} {
		p.do("FLUSHALL")
		for _, command := range tc.commands {
			if got := p.do(command...); got[0] == '-' {
				t.Fatalf("%s: %.60q: %s", tc.name, command, got)
			}
		}
		if got := p.do("OBJECT", "ENCODING", "k"); got != strconv.Quote(tc.want) {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// drawn are elements that count how many were drawn.
type drawn struct {
	elements
	n int
}

func (d *drawn) len() int { return 10 }

func (d *drawn) err() string { return "" }

func (d *drawn) random() (field, value []byte) {
	d.n++
	return []byte("element"), nil
}

// TestTooManyRandomElements: no element is drawn for a reply that would be too large.
func TestTooManyRandomElements(t *testing.T) {
	c := &client{server: &Server{opts: Options{MaxReplies: 1 << 20}}}
	d := new(drawn)
	if out := c.replySample(-1<<40, false)(nil, false, d, nil); string(out) != "-"+errMemory+"\r\n" || d.n > 0 {
		t.Errorf("%.100q, %d were drawn", out, d.n)
	}
}

// TestRandomElementsStopAtTheLimit: no more different random elements are chosen than a reply may have.
func TestRandomElementsStopAtTheLimit(t *testing.T) {
	const size, most, enough = 20_000, 1 << 10, 1<<10 + 100
	c := &client{server: &Server{opts: Options{MaxReplies: most}}}
	few := &pairs{typ: typeTableSet}
	table := new(hashTable)
	table.create(new(nodeIO), typeTableSet, size*bucketBytes/100)
	var entries packedSorted
	for i := range size {
		member := fmt.Appendf(nil, "member %d", i)
		few.list = append(few.list, pair{field: member})
		entries.entries = append(entries.entries, entry{1, member})
		table.set(member, nil)
	}
	few.live = size
	for _, n := range []int64{size / 100, size / 2, size - 1, size} {
		for what, e := range map[string]elements{"packed": few, "spread": table} {
			if out := c.replySample(n, false)(nil, false, e, nil); len(out) <= most || len(out) > enough || e.err() != "" {
				t.Errorf("%d of %s elements: %d bytes, %s", n, what, len(out), e.err())
			}
		}
		k := call{most: most}
		if someEntries(&k, &entries, n, noScores); len(k.out) > enough || k.refused != errMemory {
			t.Errorf("%d entries: %d bytes, %q", n, len(k.out), k.refused)
		}
	}
}
