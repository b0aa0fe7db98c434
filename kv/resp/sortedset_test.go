package resp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestLargeSortedSetAsRedis compares a sorted set of many nodes with one of Redis.
func TestLargeSortedSetAsRedis(t *testing.T) {
	largeAsRedis(t, 2, commander.onLargeSortedSet, checkScan)
}

// checkScan checks that ZSCAN returns all members once.
func checkScan(t *testing.T, p *peer) {
	t.Helper()
	seen := map[string]bool{}
	for cursor := "0"; ; {
		got := elementsOf(p.do("ZSCAN", "k", cursor, "COUNT", "50"))
		for i, e := range elementsOf(got[1]) {
			if i%2 == 0 && seen[e] {
				t.Fatalf("%s is returned twice", e)
			} else if i%2 == 0 && e != "" {
				seen[e] = true
			}
		}
		if cursor, _ = strconv.Unquote(got[0]); cursor == "0" {
			break
		}
	}
	if got, want := fmt.Sprint(":", len(seen)), p.do("ZCARD", "k"); strings.ReplaceAll(got, " ", "") != want {
		t.Errorf("ZSCAN returns %s members, ZCARD %s", got, want)
	}
}

// TestDrawnNodesAreForgotten: random entries of a sorted set of many nodes do not keep the nodes in memory.
func TestDrawnNodesAreForgotten(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine draws")
	const members = 250_000
	s, _ := start(t, inMemory(), Options{})
	c := &client{server: s, worker: newWorker(s.pool)}
	defer func() {
		if err := c.worker.session.Close(); err != nil {
			t.Error(err)
		}
	}()
	var set spreadSorted
	set.create(c.beginNodes(false), []byte("key"), nil, 0)
	b := treeBuilder{t: &set.tree}
	b.begin()
	for i := range members {
		b.add(entry{float64(i), fmt.Append(nil, "member ", i)})
	}
	b.finish()
	set.store()
	if err := set.tree.io.flush(); err != nil {
		t.Fatal(err)
	}
	if set.releaseAll(); set.tree.made < manyNodes+100 {
		t.Fatalf("the set has %d nodes", set.tree.made)
	}
	for _, n := range []int64{-10_000, members / fewOfMany / 2} { // the same ones, and different ones
		k := call{most: 1 << 20}
		someEntries(&k, &set, n, noScores)
		if got := strings.Count(string(k.out), "member "); int64(got) != max(n, -n) || k.refused != "" || set.fault() != "" {
			t.Errorf("%d entries: %d, %s%s", n, got, k.refused, set.fault())
		}
		if kept := len(set.tree.all); kept > manyNodes+10 {
			t.Errorf("%d entries: %d nodes are kept", n, kept)
		}
	}
}

// onLargeSortedSet returns a command on one of two sorted sets of thousands of members.
func (c commander) onLargeSortedSet() []string {
	key := c.one("k", "k", "k", "l")
	index := func() string { return strconv.Itoa(c.IntN(6000) - 3000) }
	score := func() string { return strconv.Itoa(c.IntN(500)) }
	member := func() string {
		if c.IntN(50) == 0 {
			return strings.Repeat("x", c.IntN(800)) // the long ones of a node must fit a page of 16 KiB
		}
		return fmt.Sprint("member ", c.IntN(5000))
	}
	switch c.IntN(20) {
	case 0, 1, 2:
		args := []string{"ZADD", key}
		for range c.IntN(300) + 1 {
			args = append(args, score(), member())
		}
		return args
	case 3:
		return []string{c.one("ZPOPMIN", "ZPOPMAX"), key, strconv.Itoa(c.IntN(200))}
	case 4:
		return []string{c.one("ZRANGE", "ZREVRANGE"), key, index(), index(), "WITHSCORES"}
	case 5:
		return []string{"ZRANGE", key, score(), score(), "BYSCORE", "LIMIT", "3", "50"}
	case 6:
		return []string{"ZREVRANGEBYSCORE", key, "(" + score(), score(), "LIMIT", "1", "-1"}
	case 7:
		return []string{c.one("ZRANK", "ZREVRANK", "ZSCORE"), key, member()}
	case 8:
		return []string{"ZINCRBY", key, c.one("1", "-1", "1000"), member()}
	case 9:
		args := []string{"ZREM", key}
		for range c.IntN(100) + 1 {
			args = append(args, member())
		}
		return args
	case 10:
		return []string{"ZREMRANGEBYSCORE", key, score(), score()}
	case 11:
		if c.IntN(4) == 0 {
			return []string{"ZREMRANGEBYRANK", key, index(), index()}
		}
		return []string{"ZREMRANGEBYRANK", key, "5", "40"}
	case 12:
		return []string{"ZCOUNT", key, score(), "(" + score()}
	case 13:
		return []string{c.one("ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"), "m", "2", "k", "l"}
	case 14:
		return []string{"ZRANGESTORE", "l", "k", index(), index()}
	case 15:
		return []string{"COPY", "k", "l", "REPLACE"}
	case 16:
		return []string{"ZADD", key, c.one("GT", "LT", "NX", "XX"), "CH", score(), member()}
	case 17:
		return []string{"ZMPOP", "2", "l", "k", c.one("MIN", "MAX"), "COUNT", strconv.Itoa(1 + c.IntN(50))}
	case 18:
		if c.IntN(10) == 0 {
			return []string{"DEL", key}
		}
		return []string{"ZCARD", key}
	}
	return []string{"ZRANGE", key, "0", "-1", "WITHSCORES"}
}
