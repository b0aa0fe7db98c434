package resp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestLargeListAsRedis compares a list of many nodes with one of Redis.
func TestLargeListAsRedis(t *testing.T) {
	largeAsRedis(t, 1, commander.onLargeList, func(*testing.T, *peer) {})
}

// largeAsRedis sends random commands on large collections to this server and to Redis, whose replies
// must be equal. check looks at the server at the end.
func largeAsRedis(t *testing.T, stream uint64, command func(commander) []string, check func(*testing.T, *peer)) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			redis, _ := startRedis(t)
			_, addr := start(t, options(), Options{})
			ours := dial(t, addr)
			c := newCommander(t, stream)
			rounds := testrun.Scale(100, 600, 10000)
			rounds = testrun.Raced(rounds, rounds/10) // there is one client
			for round := range rounds {
				commands := make([][]string, 1+c.IntN(8))
				var pipeline strings.Builder
				for i := range commands {
					commands[i] = command(c)
					pipeline.WriteString(encode(commands[i]...))
				}
				for _, p := range []*peer{redis, ours} {
					p.goOn()
					p.send(pipeline.String())
				}
				for _, command := range commands {
					if want, got := redis.reply(), ours.reply(); got != want {
						testrun.Wrong(t, "round %d: %.200q\n  got %.300s\nRedis %.300s", round, command, got, want)
					}
				}
			}
			check(t, ours)
		})
	}
}

// TestLongElements: an element of any collection may be nearly as long as a page, and the elements of a
// list in any order.
func TestLongElements(t *testing.T) {
	_, addr := start(t, cold(), Options{})
	p := dial(t, addr)
	long := strings.Repeat("long", 4000)
	for _, tc := range []struct{ command, want string }{
		{"HSET h f " + long, ":1"},
		{"SADD s " + long, ":1"},
		{"ZADD z 1 " + long, ":1"},
		{"RPUSH l " + long, ":1"},
		{"LPUSH l first", ":2"},
	} {
		if got := p.do(strings.Fields(tc.command)...); got != tc.want {
			t.Errorf("%.10s: %s, want %s", tc.command, got, tc.want)
		}
	}
	want := []string{"first", long}
	for i, n := range []int{9000, 7000, 200, 16_000, 5000, 16_000, 12_000, 1, 8000} {
		element := strings.Repeat(strconv.Itoa(i), n)
		at := 1 + i*5%len(want)
		if at == len(want) {
			at--
		}
		if got := p.do("LINSERT", "l", "BEFORE", want[at], element); got != fmt.Sprint(":", len(want)+1) {
			t.Fatalf("LINSERT of %d bytes: %s", n, got)
		}
		want = slices.Insert(want, at, element)
	}
	for i, n := range []int{16_000, 15_000, 14_000} {
		at := 2 + 3*i
		want[at] = strings.Repeat("s", n)
		if got := p.do("LSET", "l", strconv.Itoa(at), want[at]); got != "+OK" {
			t.Fatalf("LSET of %d bytes: %s", n, got)
		}
	}
	for i, e := range want {
		if got := p.do("LINDEX", "l", strconv.Itoa(i)); got != strconv.Quote(e) {
			t.Errorf("element %d is %.20s of %d bytes, want %.20s of %d", i, got, len(got)-2, e, len(e))
		}
	}
}

// onLargeList returns a command on one of two lists of thousands of elements.
func (c commander) onLargeList() []string {
	key := c.one("k", "k", "k", "l")
	index := func() string { return strconv.Itoa(c.IntN(8000) - 4000) }
	element := func() string {
		if c.IntN(50) == 0 {
			return strings.Repeat("x", c.IntN(9000))
		}
		return fmt.Sprint("element ", c.IntN(300))
	}
	switch c.IntN(20) {
	case 0, 1, 2:
		args := []string{c.one("LPUSH", "RPUSH"), key}
		for range c.IntN(400) + 1 {
			args = append(args, element())
		}
		return args
	case 3:
		return []string{c.one("LPOP", "RPOP"), key, strconv.Itoa(c.IntN(300))}
	case 4, 5:
		return []string{"LRANGE", key, index(), index()}
	case 6:
		return []string{"LINDEX", key, index()}
	case 7:
		return []string{"LSET", key, index(), element()}
	case 8, 9:
		return []string{"LINSERT", key, c.one("BEFORE", "AFTER"), element(), element()}
	case 10:
		return []string{"LREM", key, c.one("1", "-2", "0"), element()}
	case 11:
		if c.IntN(4) == 0 {
			return []string{"LTRIM", key, index(), index()}
		}
		return []string{"LTRIM", key, "3", "-4"}
	case 12:
		return []string{"LPOS", key, element(), "RANK", c.one("1", "-1", "3"), "COUNT", c.one("0", "2")}
	case 13:
		return []string{"LMOVE", key, c.one("k", "l"), c.one("LEFT", "RIGHT"), c.one("LEFT", "RIGHT")}
	case 14:
		return []string{c.one("COPY", "COPY", "RENAME"), "k", c.one("l", "k")}
	case 15:
		return []string{"LMPOP", "2", "l", "k", c.one("LEFT", "RIGHT"), "COUNT", strconv.Itoa(1 + c.IntN(100))}
	case 16:
		return []string{c.one("LPOP", "RPOP"), key}
	case 17:
		return []string{c.one("TYPE", "LLEN"), key}
	case 18:
		if c.IntN(8) == 0 {
			return []string{"DEL", key}
		}
		return []string{"LLEN", key}
	}
	return []string{"LRANGE", key, "0", "-1"}
}

// TestDamagedCollections: what a damaged record or node holds is refused with a clear error, and not
// changed.
func TestDamagedCollections(t *testing.T) {
	list := func(n int, elements ...string) (content []byte) {
		content = binary.AppendUvarint(nil, uint64(n))
		for _, e := range elements {
			content = appendListElement(content, []byte(e))
		}
		return content
	}
	entry := func(score float64, member string) []byte {
		return appendPart(binary.LittleEndian.AppendUint64(nil, math.Float64bits(score)), []byte(member))
	}
	for _, tc := range []struct {
		name     string
		mark     string
		content  []byte
		commands string
		want     string
	}{
		{"a list of none", "l", list(0), "LRANGE a 0 -1|RPUSH a x|LPOP a", errDamagedList},
		{"a list of too few", "l", list(3, "x", "y"), "LRANGE a 0 -1|LSET a 0 z|LPOS a z|LPOP a 3|DUMP a", errDamagedList},
		{"a list with an element that is cut", "l", list(2, "x", "long")[:6], "LRANGE a 0 -1|RPOP a|LMOVE a b RIGHT LEFT|BRPOP a 0", errDamagedList},
		{"a list with other lengths", "l", append(list(1), 1, 'x', 2), "LRANGE a 0 -1|LPOP a|RPOP a|LMPOP 1 a LEFT", errDamagedList},
		{"a sorted set of none", "z", []byte{0}, "ZRANGE a 0 -1|ZADD a 1 x|ZPOPMIN a", errDamagedSorted},
		{"a sorted set of too few", "z", append([]byte{2}, entry(1, "x")...), "ZRANGE a 0 -1|ZADD a 1 x|BZPOPMIN a 0|DUMP a", errDamagedSorted},
		{"a sorted set out of order", "z", bytes.Join([][]byte{{2}, entry(2, "x"), entry(1, "y")}, nil), "ZSCORE a x|ZUNION 1 a|ZRANGESTORE b a 0 -1|ZINTERCARD 1 a", errDamagedSorted},
		{"a sorted set with no number", "Z", append([]byte{1}, entry(math.NaN(), "x")...), "ZSCORE a x|ZINCRBY a 1 x|ZREM a x", errDamagedSorted},
		{"a header that is cut", "q", []byte("short"), "LLEN a|RPUSH a x|LPOP a|DUMP a", "ERR the header of this collection is damaged"},
		{"a header of no nodes", "q", (&header{gen: newGeneration(), count: 5, rest: make([]byte, quickListHeader)}).append(nil), "LRANGE a 0 -1|RPUSH a x", "ERR the header of this collection is damaged"},
		{"a header without its nodes", "q", (&quickList{n: 5, weight: 5000, last: 2, nodes: nodes{gen: newGeneration()}}).headerBytes(), "LRANGE a 0 -1|LPOP a|LINDEX a 2|LREM a 0 x|LINSERT a BEFORE x y", "ERR a node of this collection is damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, addr := start(t, inMemory(), Options{})
			session := s.store.NewSession()
			value := append([]byte(mark+tc.mark), tc.content...)
			if err := session.Upsert([]byte("a"), value); err != nil {
				t.Fatal(err)
			}
			p := dial(t, addr)
			for command := range strings.SplitSeq(tc.commands, "|") {
				if got := p.do(strings.Fields(command)...); got != "-"+tc.want {
					t.Errorf("%s: %s, want %s", command, got, tc.want)
				}
			}
			got, err := session.Read([]byte("a"), nil)
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("the record is %q, %v, want %q", got, err, value)
			}
			if got := p.do("EXISTS", "b"); got != ":0" {
				t.Error(got)
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (q *quickList) headerBytes() []byte {
	h := q.header()
	return h.append(nil)
}

// TestPackedList compares a packed list with a slice.
func TestPackedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
	var l packedList
	l.open(nil)
	var want []string
	for range 20_000 {
		e := strings.Repeat("e", rng.IntN(300))
		i, j := rng.IntN(len(want)+1), rng.IntN(len(want)+1)
		switch n := len(want); rng.IntN(8) {
		case 0:
			l.push(true, []byte(e))
			want = append([]string{e}, want...)
		case 1:
			l.push(false, []byte(e))
			want = append(want, e)
		case 2, 3:
			if front := rng.IntN(2) == 0; n > 0 && front {
				l.pop(true)
				want = want[1:]
			} else if n > 0 {
				l.pop(false)
				want = want[:n-1]
			}
		case 4:
			l.insert(i, []byte(e))
			want = append(want[:i:i], append([]string{e}, want[i:]...)...)
		case 5:
			if i < n {
				l.set(i, []byte(e))
				want[i] = e
			}
		case 6:
			if rng.IntN(10) == 0 {
				l.cut(min(i, j), max(i, j))
				want = append(want[:min(i, j):min(i, j)], want[max(i, j):]...)
			}
		case 7:
			if l.n == 0 {
				continue
			}
			again := l.appendTo(nil)
			if len(again)-markSize > l.size() {
				t.Fatalf("%d bytes, expected at most %d", len(again)-markSize, l.size())
			}
			l.open(again[markSize:])
		}
		got := []string{}
		if l.count() > 0 {
			l.each(l.count()-1, true, func(e []byte) bool { got = append(got, string(e)); return true })
		}
		if l.fault() != "" || len(got) != len(want) {
			t.Fatalf("%d elements, %q, want %d", len(got), l.fault(), len(want))
		}
		for i := range got {
			if got[len(got)-1-i] != want[i] {
				t.Fatalf("element %d is %q, want %q", i, got[len(got)-1-i], want[i])
			}
		}
	}
}

// FuzzPackedList reads and changes damaged lists.
func FuzzPackedList(f *testing.F) {
	f.Add([]byte("\x02\x01a\x01\x01b\x01"), 1)
	f.Add([]byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"), 0)
	f.Fuzz(func(t *testing.T, content []byte, at int) {
		for _, reverse := range []bool{false, true} {
			var l packedList
			l.open(content)
			n := l.count()
			if n == 0 {
				return
			}
			i, seen := int(uint(at)%uint(n)), 0
			l.each(i, reverse, func([]byte) bool { seen++; return true })
			if l.fault() == "" && (!reverse && seen != n-i || reverse && seen != i+1) {
				t.Errorf("%d elements from %d of %d, reverse %t, in %q", seen, i, n, reverse, content)
			}
			l.insert(i, []byte("x"))
			l.pop(reverse)
		}
	})
}

// FuzzPackedSorted reads damaged sorted sets.
func FuzzPackedSorted(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01a"), "b")
	f.Fuzz(func(t *testing.T, content []byte, member string) {
		var s packedSorted
		s.open(typeSorted, content)
		s.put([]byte(member), 1)
		if s.fault() != "" {
			return
		}
		again, rest := typed(s.appendTo(nil))
		n := s.count()
		var o packedSorted
		o.open(again, rest)
		if score, ok := o.score([]byte(member)); o.fault() != "" || o.count() != n || !ok || score != 1 {
			t.Errorf("%q with %q: %d entries, %q, want %d", content, member, o.count(), o.fault(), n)
		}
	})
}

// TestLongLists: commands that change more nodes of a list than are kept in memory do what they should, and
// change nothing if they fail, or if one that they are carried out with does.
func TestLongLists(t *testing.T) {
	testrun.SkipRaced(t, "one client with a hundred megabytes, which the detector copies word by word")
	_, addr := start(t, inMemory(), Options{MaxReplies: leastReplies})
	p := dial(t, addr)
	// Some 3,300 nodes.
	var want []string
	fill := func() {
		t.Helper()
		p.do("DEL", "l")
		want = want[:0]
		for i := range 66 {
			args := []string{"RPUSH", "l"}
			for k := range 100 {
				e := fmt.Sprintf("%d %s", 100*i+k, strings.Repeat("e", 2000))
				if k%3 == 0 {
					e = "x" + strings.Repeat("e", 2000)
				}
				args = append(args, e)
			}
			p.do(args...)
			want = append(want, args[2:]...)
		}
	}
	check := func(what string) {
		t.Helper()
		if got := p.do("LLEN", "l"); got != fmt.Sprintf(":%d", len(want)) {
			t.Errorf("after %s the list has %s elements, want %d", what, got, len(want))
		}
		for from := 0; from < len(want); from += 1000 {
			to := min(from+1000, len(want))
			quoted := make([]string, 0, 1000)
			for _, e := range want[from:to] {
				quoted = append(quoted, strconv.Quote(e))
			}
			if got := p.do("LRANGE", "l", strconv.Itoa(from), strconv.Itoa(to-1)); got != "["+strings.Join(quoted, " ")+"]" {
				t.Fatalf("after %s the elements from %d on are %.80s of %d bytes", what, from, got, len(got))
			}
		}
	}
	fill()
	check("RPUSH")
	for _, command := range [][]string{
		{"LSET", "l", "3300", hugeValue},
		{"LINSERT", "l", "BEFORE", want[3301], hugeValue},
	} {
		if got := p.do(command...); !strings.Contains(got, "does not fit in pages") {
			t.Errorf("%s of a value that is too large: %.200s", command[0], got)
		}
		check(command[0] + " that fails")
	}

	long := strings.Repeat("long", 6000)
	p.do("LSET", "l", "3300", long)
	want[3300] = long
	check("LSET")
	p.do("LINSERT", "l", "AFTER", want[2201], long)
	want = slices.Insert(want, 2202, long)
	check("LINSERT")
	p.do("LTRIM", "l", "0", "4399")
	want = want[:4400]
	check("LTRIM")
	p.do("LREM", "l", "0", want[0])
	x := want[0]
	want = slices.DeleteFunc(want, func(e string) bool { return e == x })
	check("LREM")

	fill()
	for i := range 200 {
		p.do("HSET", "h", strconv.Itoa(i), strings.Repeat("v", leastReplies/150))
	}
	for _, change := range [][]string{{"LTRIM", "l", "0", "4399"}, {"LREM", "l", "0", x}} {
		p.send(encode(change...) + encode("HGETALL", "h"))
		for i := range 2 {
			got := p.reply()
			if isError := strings.HasPrefix(got, "-"); isError != (i == 1) {
				t.Fatalf("%v and HGETALL of too much: reply %d is %.100s", change, i, got)
			}
		}
		if change[0] == "LTRIM" {
			want = want[:4400]
		} else {
			want = slices.DeleteFunc(want, func(e string) bool { return e == x })
		}
		check(change[0] + " beside HGETALL")
	}
	p.do("LTRIM", "l", "1", "0")
	if got := p.do("EXISTS", "l"); got != ":0" {
		t.Errorf("a list without elements: EXISTS %s", got)
	}
}

// TestPositionsStopAtTheLimit: LPOS finds no more positions than a reply may have.
func TestPositionsStopAtTheLimit(t *testing.T) {
	l := new(packedList)
	for range 1000 {
		l.push(false, []byte("x"))
	}
	for _, o := range []positions{{rank: 1, several: true}, {rank: 1, several: true, count: 900, backward: true}} {
		k := call{most: 100}
		if found := o.find(&k, l, []byte("x")); found > 100 || len(k.out) > 110 || k.refused != errMemory {
			t.Errorf("%+v: %d positions, %d bytes, %q", o, found, len(k.out), k.refused)
		}
	}
}
