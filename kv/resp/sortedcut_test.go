package resp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// addScored adds n members of a length, with scores from 0 up, or all with score 0. names are those of the
// members in their order.
func addScored(t *testing.T, p *peer, key string, n, length int, different bool) (names []string) {
	t.Helper()
	const atOnce = 500
	for from := 0; from < n; from += atOnce {
		args := []string{"ZADD", key}
		for i := from; i < min(from+atOnce, n); i++ {
			names = append(names, fmt.Sprintf("%0*d", length, i))
			score := "0"
			if different {
				score = strconv.Itoa(i)
			}
			args = append(args, score, names[i])
		}
		if got := p.do(args...); got != fmt.Sprint(":", (len(args)-2)/2) {
			t.Fatalf("ZADD: %s", got)
		}
	}
	return names
}

// checkScored checks that a key has these members.
func checkScored(t *testing.T, p *peer, key, what string, names []string, different bool) {
	t.Helper()
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		quoted = append(quoted, strconv.Quote(name))
	}
	if got := p.do("ZRANGE", key, "0", "-1"); got != "["+strings.Join(quoted, " ")+"]" {
		t.Fatalf("after %s of %d members: %.100s of %d bytes", what, len(names), got, len(got))
	}
	if got := p.do("ZCARD", key); got != fmt.Sprint(":", len(names)) {
		t.Fatalf("after %s ZCARD is %s, want %d", what, got, len(names))
	}
	for i := 0; i < len(names); i += 1 + len(names)/50 {
		score := 0
		if different {
			score, _ = strconv.Atoi(names[i])
		}
		if got := p.do("ZSCORE", key, names[i]) + p.do("ZRANK", key, names[i]); got != fmt.Sprintf(`"%d":%d`, score, i) {
			t.Fatalf("after %s member %d is %s", what, i, got)
		}
	}
}

// TestCutsOfLargeSortedSets removes ranges of large sorted sets, also of most of the entries and of all, and
// beside a command that fails. What is left is right.
func TestCutsOfLargeSortedSets(t *testing.T) {
	testrun.SkipRaced(t, "one client with megabytes, which the detector copies word by word")
	options := cold()
	options.Memory, options.PageSize = 1<<20, 64<<10
	_, addr := start(t, options, Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	for i := range 1000 {
		p.do("HSET", "h", strconv.Itoa(i), strings.Repeat("v", leastReplies/800))
	}
	random := rand.New(rand.NewPCG(testrun.Seed(t, 52), 0))
	for round := range testrun.Scale(8, 16, 100) {
		n, length, different := 200+random.IntN(testrun.Scale(8000, 12000, 20000)), 5+random.IntN(60), round%2 == 0
		if round%4 < 2 { // more nodes than are kept in memory
			n, length = 5000, 900
		}
		p.goOn()
		names := addScored(t, p, "z", n, length, different)
		for len(names) > 0 {
			from := random.IntN(len(names))
			to := from + 1 + random.IntN(len(names)-from)
			switch random.IntN(6) {
			case 0:
				from, to = 0, len(names)
			case 1:
				to = len(names)
			case 2:
				from = 0
			}
			var command []string
			switch kind := random.IntN(3); {
			case kind == 0:
				command = []string{"ZREMRANGEBYRANK", "z", strconv.Itoa(from), strconv.Itoa(to - 1)}
			case kind == 1 && !different:
				command = []string{"ZREMRANGEBYLEX", "z", "[" + names[from], "[" + names[to-1]}
			case kind == 1:
				command = []string{"ZREMRANGEBYSCORE", "z", names[from], names[to-1]}
			default:
				command = []string{"ZPOPMIN", "z", strconv.Itoa(to)}
				from = 0
			}
			what := fmt.Sprint("round ", round, " ", command)
			if random.IntN(3) == 0 { // the group fails, and each command is carried out by itself
				p.send(encode(command...) + encode("HGETALL", "h"))
				if got := p.reply(); got[0] == '-' {
					t.Fatalf("%s: %s", what, got)
				}
				if got := p.reply(); got[0] != '-' {
					t.Fatalf("HGETALL of too much: %.100s", got)
				}
			} else if got := p.do(command...); got[0] == '-' {
				t.Fatalf("%s: %s", what, got)
			}
			names = slices.Delete(names, from, to)
			checkScored(t, p, "z", what, names, different)
			if len(names) > 0 && random.IntN(4) == 0 { // it can be changed further
				last := names[len(names)-1]
				if got := p.do("ZADD", "z", "-1", "new") + p.do("ZREM", "z", "new", last); got != ":1:2" {
					t.Fatalf("after %s: ZADD and ZREM: %s", what, got)
				}
				names = names[:len(names)-1]
				checkScored(t, p, "z", "ZREM after "+what, names, different)
			}
		}
		if got := p.do("EXISTS", "z"); got != ":0" {
			t.Fatalf("a set without members: EXISTS %s", got)
		}
	}
}

// TestCutsTakeNoNodes: to remove all entries of a sorted set, no node is read or written; to remove most of
// them, those of the rest are written and none is deleted; to remove others, each leaf is written once.
func TestCutsTakeNoNodes(t *testing.T) {
	testrun.SkipRaced(t, "one client with megabytes, which the detector copies word by word")
	const n = 20_000
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	for _, x := range []struct {
		command, reply         string
		reads, writes, deletes uint64 // at most
		allocated              uint64
	}{
		{"ZREMRANGEBYRANK z 0 -1", fmt.Sprint(":", n), 5, 5, 1, 1 << 20},
		{"ZREMRANGEBYSCORE z -inf +inf", fmt.Sprint(":", n), 20, 5, 1, 1 << 20},
		{"ZREMRANGEBYRANK z 1000 -1", fmt.Sprint(":", n-1000), 1000, 100, 0, 16 << 20},
		{"ZREMRANGEBYRANK z 1000 8999", ":8000", 1000, 1000, 200, 32 << 20},
	} {
		p.goOn()
		p.do("DEL", "z")
		addScored(t, p, "z", n, 10, true)
		before := s.store.Metrics().Operations
		var memory [2]runtime.MemStats
		runtime.ReadMemStats(&memory[0])
		if got := p.do(strings.Fields(x.command)...); got != x.reply {
			t.Fatalf("%s: %s", x.command, got)
		}
		runtime.ReadMemStats(&memory[1])
		after := s.store.Metrics().Operations
		reads, deletes := after.Reads-before.Reads, after.Deletes-before.Deletes
		writes, allocated := after.Upserts+after.RMWs-before.Upserts-before.RMWs, memory[1].TotalAlloc-memory[0].TotalAlloc
		t.Logf("%s: %d reads, %d writes, %d deletes, %d bytes", x.command, reads, writes, deletes, allocated)
		if reads > x.reads || writes > x.writes || deletes > x.deletes || allocated > x.allocated {
			t.Errorf("%s: %d reads, %d writes, %d deletes, %d bytes, want at most %+v", x.command, reads, writes, deletes, allocated, x)
		}
	}
}

// TestLargeCutsLeaveLoops: a loop gives away commands that may remove many entries of a sorted set, and keeps
// those on small ones.
func TestLargeCutsLeaveLoops(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Loops: 1})
	p := dial(t, addr)
	addScored(t, p, "large", manyRemoved+500, 10, true)
	addScored(t, p, "small", 1000, 10, true)
	p.do("SET", "string", "x")
	p.do("SELECT", "1")
	addScored(t, p, "other", manyRemoved+500, 10, true)
	c := only(t, s)
	db := "0"
	for _, x := range []struct {
		command, reply string
		leaves         bool
	}{
		{"ZREMRANGEBYSCORE none -inf +inf", ":0", false},
		{"ZREMRANGEBYSCORE string -inf +inf", "-" + errWrongType, false},
		{"ZREMRANGEBYRANK small 0 499", ":500", false},
		{"ZPOPMIN large 1", `["0000000000" "0"]`, false},
		{"ZREMRANGEBYSCORE large 1 1", ":1", true},
		{"ZREMRANGEBYRANK large 0 9", ":10", true},
		{"ZREMRANGEBYLEX large [x [y", ":0", true},
		{"ZPOPMAX small 10000", "[", false},
		{"ZPOPMAX large 10000", "[", true},
		{"ZREMRANGEBYRANK large 0 -1", ":0", false},
		{"ZREMRANGEBYRANK other 0 -1", ":0", false},
		{"SELECT 1", "+OK", false},
		{"ZREMRANGEBYRANK other 0 -1", fmt.Sprint(":", manyRemoved+500), true},
	} {
		testrun.Until(t, "a loop has the connection", func() bool {
			if got := p.do("SELECT", db); got != "+OK" {
				t.Fatal(got)
			}
			return c.looped.Owned() == nil
		})
		if got := p.do(strings.Fields(x.command)...); !strings.HasPrefix(got, x.reply) {
			t.Errorf("%s: %.100s, want %s", x.command, got, x.reply)
		}
		if left := c.looped.Owned() != nil; left != x.leaves {
			t.Errorf("%s: left the loop: %t", x.command, left)
		}
		if x.command == "SELECT 1" {
			db = "1"
		}
	}
}

// TestCopyOfChurn: COPY of a sorted set reads the nodes that it has, and not those that it had before. The copy
// is the same, and apart from it.
func TestCopyOfChurn(t *testing.T) {
	testrun.SkipRaced(t, "one client with megabytes, which the detector copies word by word")
	s, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	const n, rounds, length = 500, 40, 900
	names := addScored(t, p, "z", n, length, true)
	for round := 1; round < rounds; round++ {
		add := []string{"ZADD", "z"}
		for i := range n {
			at := round*n + i
			names = append(names, fmt.Sprintf("%0*d", length, at))
			add = append(add, strconv.Itoa(at), names[at])
		}
		p.do(add...)
		for from := 0; from < n; from += n / 5 {
			if got := p.do("ZREMRANGEBYRANK", "z", "0", strconv.Itoa(n/5-1)); got != fmt.Sprint(":", n/5) {
				t.Fatal(got)
			}
		}
	}
	names = names[(rounds-1)*n:]
	value, err := s.store.Read(t.Context(), []byte("z"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, h, _ := headerIn(value)
	var sorted spreadSorted
	if !sorted.open(new(nodeIO), nil, h) {
		t.Fatal("the set is not spread")
	}
	before := s.store.Metrics().Operations.Reads
	if got := p.do("COPY", "z", "copy"); got != ":1" {
		t.Fatalf("COPY: %s", got)
	}
	reads := s.store.Metrics().Operations.Reads - before
	t.Logf("%d reads of a set whose tree has made %d nodes", reads, sorted.tree.made)
	if most := sorted.members.buckets + n; reads > most || sorted.tree.made < 3*most {
		t.Errorf("COPY of a set of %d members whose tree has made %d nodes reads %d records, want at most %d", n, sorted.tree.made, reads, most)
	}
	p.do("ZREMRANGEBYRANK", "z", "0", "99")
	checkScored(t, p, "copy", "COPY", names, true)
	checkScored(t, p, "z", "ZREMRANGEBYRANK", names[100:], true)
}

// TestMuchOfASortedSet: a set is built anew if much of it is removed and there is room for that.
func TestMuchOfASortedSet(t *testing.T) {
	s, _ := start(t, inMemory(), Options{})
	for name, tc := range map[string]struct {
		of, n   int
		buckets uint64
		want    bool
	}{
		"all":                     {of: 100, n: 100, buckets: 2, want: true},
		"most":                    {of: 100, n: 51, buckets: 2, want: true},
		"half":                    {of: 100, n: 50, buckets: 2},
		"some of many nodes":      {of: 1_000_000, n: 130_000, buckets: 20_000, want: true},
		"few of many nodes":       {of: 1_000_000, n: 100_000, buckets: 20_000},
		"some of very many nodes": {of: 10_000_000, n: 200_000, buckets: 200_000, want: true},
		"few of very many nodes":  {of: 100_000_000, n: 40_000, buckets: 2_000_000},
	} {
		set := spreadSorted{tree: scoreTree{n: tc.of}}
		set.tree.io, set.members.buckets = &nodeIO{store: s.store}, tc.buckets
		if got := set.isMuch(tc.n); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
