package resp

import (
	"strings"
	"testing"

	"github.com/redykv/redykv/kv"
)

// hugeValue is a value that does not fit a page of inMemory.
var hugeValue = strings.Repeat("v", 3_000_000)

// sized returns the words of a command, with LONG and HUGE replaced.
func sized(command string) (args []string) {
	for word := range strings.FieldsSeq(command) {
		switch word {
		case "LONG":
			word = longKey
		case "HUGE":
			word = hugeValue
		}
		args = append(args, word)
	}
	return args
}

// TestSizesAreCheckedFirst: a command of several keys, fields or members that would write a key that is
// too long, or a value that is too large, changes nothing. Its error names the limit.
func TestSizesAreCheckedFirst(t *testing.T) {
	const long, huge = "key of 70000 bytes, at most 65535", "does not fit in pages of 2097152"
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	keys := []string{"a", "b", "h", "s", "l", "z", "p", "q"}
	state := func() (all string) {
		for _, key := range keys {
			all += p.do("DUMP", key)
		}
		return all + p.do("DBSIZE")
	}
	for _, command := range []string{
		"SET a 1", "SET b 1", "HSET h f 1", "SADD s x y", "RPUSH l 1 2", "ZADD z 1 m",
	} {
		p.do(sized(command)...)
	}
	before := state()
	for _, command := range []string{
		"MSET p 1 q HUGE", "MSETNX p 1 q HUGE", "MSET a 2 LONG 1", "MSETNX p 1 LONG 1", "MSET p HUGE q 1",
		"DEL a LONG b", "UNLINK a LONG b", "RENAME a LONG", "RENAMENX a LONG", "RENAME LONG a", "COPY a LONG", "MOVE LONG 1",
		"SMOVE s LONG x", "SINTERSTORE LONG s", "SUNIONSTORE LONG s", "SDIFFSTORE LONG s",
		"LMOVE l LONG LEFT LEFT", "RPOPLPUSH l LONG", "BLMOVE l LONG LEFT LEFT 0", "LMPOP 2 l LONG LEFT", "BLPOP l LONG 0",
		"ZUNIONSTORE LONG 1 z", "ZINTERSTORE LONG 1 z", "ZDIFFSTORE LONG 1 z", "ZRANGESTORE LONG z 0 -1", "ZMPOP 2 z LONG MIN", "BZPOPMIN z LONG 0",
		"SORT l STORE LONG", "BITOP NOT LONG a",
		"SET LONG 1", "SET LONG 1 NX", "APPEND LONG x", "INCR LONG", "GETDEL LONG", "EXPIRE LONG 10", "HSET LONG f 1", "SADD LONG x", "LPUSH LONG x", "ZADD LONG 1 x",
		"HSET h f 2 g HUGE", "HMSET h HUGE 1 f 2", "SADD s z HUGE", "LPUSH l 3 HUGE", "RPUSH l HUGE 3", "ZADD z 2 m 3 HUGE", "LINSERT l BEFORE 2 HUGE", "LSET l 0 HUGE",
		"SET a HUGE", "GETSET a HUGE", "SETRANGE a 3000000 x",
	} {
		want := long
		if strings.Contains(command, "HUGE") || strings.Contains(command, "3000000") {
			want = huge
		}
		if got := p.do(sized(command)...); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, want) {
			t.Errorf("%s: %.200s", command, got)
		}
		if state() != before {
			t.Fatalf("%s has changed something", command)
		}
	}
	const script = `redis.pcall("MSET", "p", 1, "q", ARGV[1]); return redis.pcall("DEL", "a", ARGV[2], "b")`
	if got := p.do("EVAL", script, "0", hugeValue, longKey); !strings.Contains(got, long) || state() != before {
		t.Errorf("in a script: %.200s", got)
	}
	got := p.do("MULTI") + p.do("SET", "a", "2") + p.do("DEL", "b", longKey) + p.do("EXEC")
	if !strings.Contains(got, long) || !strings.HasSuffix(got, "-"+errExecAborted) || state() != before {
		t.Errorf("in a transaction: %.200s", got)
	}
	// In another database a key takes more.
	got = p.do("MULTI") + p.do("SELECT", "1") + p.do("MSET", "p", "1", longKey[:65_530], "1") + p.do("EXISTS", "p") + p.do("EXEC")
	if !strings.HasPrefix(got, "+OK+QUEUED+QUEUED+QUEUED[+OK -ERR ") || !strings.HasSuffix(got, "at most 65535 :0]") {
		t.Errorf("in a transaction in another database: %.200s", got)
	}
}

// TestSizesOfFixedRecords: commands of several keys on a store of records of one size are carried out
// whole or not at all.
func TestSizesOfFixedRecords(t *testing.T) {
	options := inMemory()
	options.KeySize, options.ValueSize, options.Inner, options.Orphans = 8, 8, nil, nil
	_, addr := start(t, options, Options{})
	p := dial(t, addr)
	for _, c := range [][2]string{
		{"MSET key00001 value001 key00002 value002", "+OK"},
		{"MSET key00001 other001 key2 other002", "-"},
		{"MSETNX key00003 other001 key00004 other", "-"},
		{"DEL key00001 key2 key00002", "-"},
		{"MGET key00001 key2 key00002 key00003", `["value001" nil "value002" nil]`},
		{"DEL key00001 key00002", ":2"},
	} {
		if got := p.do(strings.Fields(c[0])...); got != c[1] && (c[1] != "-" || !strings.Contains(got, kv.ErrBadSize.Error())) {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}
