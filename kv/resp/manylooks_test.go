package resp

import (
	"fmt"
	"math"
	"testing"
)

// TestManyLooksKeepFewNodes: commands that look up very many fields of a large hash, set or sorted set keep few
// of its nodes in memory, and read few together. Their replies are right.
func TestManyLooksKeepFewNodes(t *testing.T) {
	const members, looks, most = 20_000, 100_000, manyNodes + chunk
	s, addr := start(t, inMemory(), Options{})
	c := &client{server: s, worker: newWorker(s.pool)}
	defer func() {
		if err := c.worker.session.Close(); err != nil {
			t.Error(err)
		}
	}()
	io := c.beginNodes(false)
	var sorted spreadSorted
	sorted.create(io, []byte("key"), nil, 5*manyNodes*bucketBytes)
	table := &sorted.members
	name := func(i int) []byte { return fmt.Appendf(nil, "member%d", i*7919%looks) }
	args := make([][]byte, looks)
	for i := range args {
		args[i] = name(i)
	}
	for i := range members {
		if member := fmt.Appendf(nil, "member%d", i); i%2 == 0 {
			table.set(member, scoreBytes(float64(i)))
		}
	}
	table.store()
	if err := io.flush(); err != nil {
		t.Fatal(err)
	}
	if table.buckets < 4*manyNodes {
		t.Fatalf("%d buckets", table.buckets)
	}
	table.releaseAll()
	has := func(i int) bool { n := i * 7919 % looks; return n < members && n%2 == 0 }
	var scores, values, which []byte
	scores, values, which = appendArray(scores, looks), appendArray(values, looks), appendArray(which, looks)
	for i := range looks {
		if n := i * 7919 % looks; has(i) {
			scores, values, which = appendDouble(scores, false, float64(n)), appendBulk(values, scoreBytes(float64(n))), appendInt(which, 1)
		} else {
			scores, values, which = appendNull(scores, false), appendNull(values, false), appendInt(which, 0)
		}
	}
	for _, x := range []struct {
		name, want string
		reply      func() []byte
	}{
		{"HMGET", string(values), func() []byte { return replyFields(math.MaxInt64)(nil, false, table, args) }},
		{"SMISMEMBER", string(which), func() []byte { return replyWhichHas(nil, false, table, args) }},
		{"ZMSCORE", string(scores), func() []byte {
			k := call{args: args}
			zmscore(&k, &sorted)
			return k.out
		}},
	} {
		got := x.reply()
		if n := len(table.all); n > most {
			t.Errorf("%s keeps %d nodes", x.name, n)
		}
		if string(got) != x.want || io.failed != nil {
			t.Errorf("%s: %.100q, want %.100q, %v", x.name, got, x.want, io.failed)
		}
		table.releaseAll()
	}
	// A group of commands is prepared together.
	col := &collection{spread: true, typ: typeSpreadSet}
	col.table = *table
	for range 10 {
		(&reply{args: args, looks: looks}).prefetch(col)
	}
	if n := len(io.wanted); n > most {
		t.Errorf("%d nodes are read together", n)
	}
	io.fetch()

	p := dial(t, addr)
	add, ask := []string{"SADD", "s"}, []string{"SMISMEMBER", "s"}
	for i := range looks {
		if ask = append(ask, string(args[i])); has(i) {
			add = append(add, string(args[i]))
		}
	}
	p.do(add...)
	got := elementsOf(p.do(ask...))
	if len(got) != looks {
		t.Fatalf("SMISMEMBER of %d members has %d replies", looks, len(got))
	}
	for i := range looks {
		if want := map[bool]string{true: ":1", false: ":0"}[has(i)]; got[i] != want {
			t.Fatalf("SMISMEMBER: %s for member %d, want %s", got[i], i, want)
		}
	}
}
