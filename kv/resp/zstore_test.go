package resp

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestCombinedSortedSetsAsRedis compares what is made of sorted sets and sets with Redis: of packed and spread
// ones, of the same size, named several times, with scores whose sums depend on their order.
func TestCombinedSortedSetsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	c := newCommander(t, 3)
	both := func(args ...string) {
		t.Helper()
		for _, p := range []*peer{redis, ours} {
			p.goOn()
			p.send(encode(args...))
		}
		unsigned := func(reply string) string { // small sets of Redis do not keep the sign of 0
			return strings.ReplaceAll(reply, `"-0"`, `"0"`)
		}
		if want, got := redis.reply(), ours.reply(); unsigned(got) != unsigned(want) {
			testrun.Wrong(t, "%.300q\n  got %.600s\nRedis %.600s", args, got, want)
		}
	}
	sizes := map[string]int{"a": 40, "b": 40, "c": 40, "d": 90, "large": 2000, "huge": 2000, "s": 40, "i": 40, "spread": 2000}
	keys := []string{"none"}
	for key := range sizes {
		keys = append(keys, key)
	}
	scores := func() string { return c.one("0", "0.1", "0.2", "-0.3", "1e16", "-1e16", "3", "inf", "-inf") }
	rounds := testrun.Scale(600, 3000, 20_000)
	rounds = testrun.Raced(rounds, rounds/10) // there is one client
	for round := range rounds {
		if round%200 == 0 {
			both("FLUSHALL")
			for key, size := range sizes {
				args := []string{"ZADD", key}
				if key == "s" || key == "i" || key == "spread" {
					args[0] = "SADD"
				}
				for _, n := range c.Perm(size * 3 / 2)[:size] {
					if args[0] == "ZADD" {
						args = append(args, scores())
					}
					member := fmt.Sprint("member ", n)
					if key == "i" || n%5 == 0 {
						member = strconv.Itoa(n)
					}
					args = append(args, member)
				}
				both(args...)
			}
		}
		command := c.word("ZUNION ZINTER ZDIFF ZINTERCARD ZUNIONSTORE ZINTERSTORE ZDIFFSTORE")
		args := []string{command}
		to := c.one("to", "to", "a", "large")
		stores := strings.HasSuffix(command, "STORE")
		if stores {
			args = append(args, to)
		}
		of := []string{c.one(keys...), c.one(keys...), c.one(keys[1:]...)} // mostly the same ones
		n := 1 + c.IntN(7)
		args = append(args, strconv.Itoa(n))
		for range n {
			args = append(args, c.one(of...))
		}
		if c.IntN(2) == 0 && !strings.HasPrefix(command, "ZDIFF") && command != "ZINTERCARD" {
			args = append(args, "WEIGHTS")
			for range n {
				args = append(args, c.one("1", "0.1", "-0.7", "0", "3", "inf", "-inf"))
			}
		}
		if c.IntN(3) > 0 && !strings.HasPrefix(command, "ZDIFF") && command != "ZINTERCARD" {
			args = append(args, "AGGREGATE", c.word("SUM MIN MAX"))
		}
		switch {
		case command == "ZINTERCARD" && c.IntN(2) == 0:
			args = append(args, "LIMIT", c.word("0 1 7 30 300 5000"))
		case command != "ZINTERCARD" && !stores:
			args = append(args, "WITHSCORES")
		}
		both(args...)
		if stores {
			both("ZRANGE", to, "0", "-1", "WITHSCORES")
		}
	}
}

// TestRepeatedInputs: the members of a sorted set whose key is named very often are not copied for each time.
func TestRepeatedInputs(t *testing.T) {
	const members, times, most = 1000, 20_000, 64 << 20
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	add := []string{"ZADD", "z"}
	for i := range members {
		add = append(add, "1", fmt.Sprint("member ", i))
	}
	if got := p.do(add...); got != fmt.Sprint(":", members) {
		t.Fatal(got)
	}
	for _, key := range []string{"a", "b"} { // of the same size, and each in one record
		for i := range 200 {
			p.do("ZADD", key, "1", fmt.Sprint("member ", i))
		}
	}
	for _, tc := range []struct{ head, keys, tail, want string }{
		{"ZINTERCARD", "z", encode("LIMIT", "1"), ":1"},
		{"ZINTERCARD", "z", "", ":1000"},
		{"ZINTER", "z", "", `["member 0" "member 1"`},
		{"ZUNION", "z", "", `["member 0" "member 1"`},
		{"ZDIFF", "z", "", "[]"},
		{"ZINTER", "a b", "", `["member 0" "member 1"`},
		{"ZUNION", "a b", "", `["member 0" "member 1"`},
	} {
		keys := strings.Fields(tc.keys)
		repeated := strings.Repeat(encode(keys...)[len("*1\r\n"):], times/len(keys))
		words := 2 + times
		if tc.tail != "" {
			words += 2
			tc.tail = tc.tail[len("*2\r\n"):]
		}
		request := fmt.Sprintf("*%d\r\n", words) + encode(tc.head, strconv.Itoa(times))[len("*2\r\n"):] + repeated + tc.tail
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.send(request)
		if got := p.reply(); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s of %s: %.100s, want %s", tc.head, tc.keys, got, tc.want)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > most {
			t.Errorf("%s of %s has allocated %d bytes", tc.head, tc.keys, grown)
		}
	}
}

// TestCombinedMembersAreLimited: no more members of a result are kept than a reply may have.
func TestCombinedMembersAreLimited(t *testing.T) {
	some := &collection{typ: typeSorted}
	for i := range 1000 {
		some.sorted.entries = append(some.sorted.entries, entry{1, fmt.Appendf(nil, "member %03d", i)})
	}
	const each = leastBulk + len("member 000")
	for _, what := range []combination{union, intersection, difference} {
		o := combining{what: what, weights: []float64{1}}
		entries, refusal := o.combine([]*collection{some}, 10*int64(each))
		if len(entries) != 10 || refusal != errMemory {
			t.Errorf("combination %d: %d members are kept: %q", what, len(entries), refusal)
		}
		entries, refusal = o.combine([]*collection{some}, 1000*int64(each))
		if len(entries) != 1000 || refusal != "" {
			t.Errorf("combination %d: %d members: %q", what, len(entries), refusal)
		}
	}
}
