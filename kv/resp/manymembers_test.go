package resp

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestManyMembers: a command with very many arguments ends, as its work grows with their number and not
// with its square; what it did is right.
func TestManyMembers(t *testing.T) {
	many := testrun.Raced(200_000, 10_000)
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	add := []string{"ZADD", "z"}
	set := []string{"HSET", "h"}
	for i := range many {
		add = append(add, strconv.Itoa(many-i), fmt.Sprint("member ", i))
		set = append(set, fmt.Sprint("field ", i), strconv.Itoa(i))
	}
	p.do("ZADD", "z", "0", "first")
	p.do("HSET", "h", "first", string(make([]byte, 2*packedMost)))
	if got := p.do(add...); got != fmt.Sprintf(":%d", many) {
		t.Errorf("ZADD: %.100s", got)
	}
	if got := p.do("ZRANGE", "z", "0", "2"); got != fmt.Sprintf(`["first" "member %d" "member %d"]`, many-1, many-2) {
		t.Errorf("the first members are %.200s", got)
	}
	if got := p.do("ZRANK", "z", "member 0"); got != fmt.Sprintf(":%d", many) {
		t.Errorf("the rank of the last member is %.100s", got)
	}
	if got := p.do(set...); got != fmt.Sprintf(":%d", many) {
		t.Errorf("HSET: %.100s", got)
	}
	if got := p.do("HMGET", "h", "field 0", fmt.Sprint("field ", many-1)); got != fmt.Sprintf(`["0" "%d"]`, many-1) {
		t.Errorf("fields are %.100s", got)
	}
	remove := []string{"ZREM", "z"}
	for i := range many {
		remove = append(remove, fmt.Sprint("member ", i))
	}
	if got := p.do(remove...) + p.do("ZRANGE", "z", "0", "-1") + p.do("OBJECT", "ENCODING", "z"); got != fmt.Sprintf(`:%d["first"]"skiplist"`, many) {
		t.Errorf("ZREM: %.100s", got)
	}
}

// TestManyKeys: so do commands of very many keys.
func TestManyKeys(t *testing.T) {
	many := testrun.Raced(200_000, 10_000)
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	var keys []string
	for i := range many {
		keys = append(keys, strconv.Itoa(i))
	}
	number := strconv.Itoa(many)
	last := keys[many-1]
	for _, x := range []struct {
		kind, want string
		command    []string
	}{
		{"none", "[]", append([]string{"SUNION"}, keys...)},
		{"none", ":0", append([]string{"SUNIONSTORE", "to"}, keys...)},
		{"none", "nil[]", append(append([]string{"LMPOP", number}, keys...), "LEFT")},
		{"none", "[]", append([]string{"ZUNION", number}, keys...)},
		{"set", `["x"]`, append([]string{"SUNION"}, keys...)},
		{"set", ":1", append([]string{"SUNIONSTORE", "to"}, keys...)},
		{"set", "[]", append([]string{"SDIFF"}, keys...)},
		{"set", ":0", append([]string{"SINTERCARD", number}, keys...)},
	} {
		if x.kind == "set" {
			p.do("SADD", last, "x")
		}
		if got := p.do(x.command...); got != x.want {
			t.Errorf("%s of %d keys: %.200s, want %s", x.command[0], many, got, x.want)
		}
	}
	// Small sets.
	for i := range 2000 {
		p.do("SADD", keys[i], "x", strconv.Itoa(i%100))
	}
	if got := p.do(append([]string{"SUNIONSTORE", "to"}, keys...)...); got != ":101" {
		t.Errorf("SUNIONSTORE of 2000 sets: %.200s", got)
	}
	if got := p.do("SDIFF", "to", keys[0]) + p.do("SINTERCARD", "2", "to", keys[7]); !strings.HasSuffix(got, "]:2") {
		t.Errorf("the union of 2000 sets: %.200s", got)
	}
}

// TestLongMembers: a sorted set of members that are longer than a node of its tree, with or without a common
// beginning, is as any other.
func TestLongMembers(t *testing.T) {
	const size = 20 << 10
	many := testrun.Raced(300, 80) // the detector copies them word by word
	for name, member := range map[string]func(i int) string{
		"different": func(i int) string { return fmt.Sprintf("%03d", i) + strings.Repeat("m", size) },
		"alike":     func(i int) string { return strings.Repeat("m", size) + fmt.Sprintf("%03d", i) },
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, inMemory(), Options{})
			p := dial(t, addr)
			order := rand.New(rand.NewPCG(1, 1)).Perm(many)
			for _, i := range order {
				if got := p.do("ZADD", "z", strconv.Itoa(i/100), member(i)); got != ":1" {
					t.Fatalf("ZADD of member %d: %.100s", i, got)
				}
			}
			check := func(left func(i int) bool) {
				t.Helper()
				rank := 0
				for i := range many {
					want := "nil"
					if left(i) {
						want = fmt.Sprintf(":%d", rank)
						rank++
					}
					if got := p.do("ZRANK", "z", member(i)); got != want {
						t.Fatalf("member %d has rank %.100s, want %s", i, got, want)
					}
				}
				if got := p.do("ZCOUNT", "z", "-inf", "+inf"); got != fmt.Sprintf(":%d", rank) {
					t.Errorf("%s members, want %d", got, rank)
				}
			}
			check(func(int) bool { return true })
			for _, i := range order {
				if i%3 != 0 {
					p.do("ZREM", "z", member(i))
				}
			}
			check(func(i int) bool { return i%3 == 0 })
		})
	}
}
