package resp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestListDumpsAsRedis restores dumps of lists and sorted sets of each server on the other, and
// compares the values.
func TestListDumpsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	values := []string{
		"", "0", "-1", "127", "128", "-129", "4095", "-4096", "32768", "8388607", "2147483648", "9223372036854775807", "text",
		"\x00\xff", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("long ", 1000), strings.Repeat("x", 70_000),
	}
	few, many := append([]string{"RPUSH", "few"}, values...), []string{"RPUSH", "many"}
	small, large, long := []string{"ZADD", "small"}, []string{"ZADD", "large"}, []string{"ZADD", "long"}
	for i := range 3000 {
		many = append(many, strconv.Itoa(i*i), fmt.Sprint("element ", i))
		large = append(large, strconv.Itoa(i%100), fmt.Sprint("member ", i))
	}
	for i, score := range []string{"0", "-0.5", "1e300", "3.1", "inf", "-inf", "123456789012", "1e-7"} {
		small = append(small, score, fmt.Sprint(i*1000))
		long = append(long, score, strings.Repeat("m", 60+i))
	}
	for _, tc := range []struct{ command, get []string }{
		{few, []string{"LRANGE", "few", "0", "-1"}},
		{many, []string{"LRANGE", "many", "0", "-1"}},
		{small, []string{"ZRANGE", "small", "0", "-1", "WITHSCORES"}},
		{large, []string{"ZRANGE", "large", "0", "-1", "WITHSCORES"}},
		{long, []string{"ZRANGE", "long", "0", "-1", "WITHSCORES"}},
	} {
		key := tc.command[1]
		for _, way := range []struct{ from, to *peer }{{redis, ours}, {ours, redis}, {ours, ours}} {
			way.from.do("DEL", key)
			way.from.do(tc.command...)
			dumped, err := strconv.Unquote(way.from.do("DUMP", key))
			if err != nil {
				t.Fatal(err)
			}
			want, encoding := way.from.do(tc.get...), way.from.do("OBJECT", "ENCODING", key)
			way.to.do("SET", key, "replaced")
			if got := way.to.do("RESTORE", key, "0", dumped, "REPLACE"); got != "+OK" {
				t.Fatalf("%s: %s", key, got)
			}
			if got := way.to.do(tc.get...); got != want {
				t.Errorf("%s is restored as %.200s, want %.200s", key, got, want)
			}
			if got := way.to.do("OBJECT", "ENCODING", key); got != encoding {
				t.Errorf("%s is restored as %s, want %s", key, got, encoding)
			}
		}
	}
}

// TestOldDumps restores forms that earlier versions of Redis wrote.
func TestOldDumps(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	const zip = "\x11\x00\x00\x00\x0e\x00\x00\x00\x02\x00\x00\x02ab\x04\xf3\xff" // the ziplist of ab and 2
	for _, tc := range []struct{ body, get, want string }{
		{"\x0a\x11" + zip, "LRANGE a 0 -1", `["ab" "2"]`},
		{"\x0e\x02\x11" + zip + "\x11" + zip, "LRANGE a 0 -1", `["ab" "2" "ab" "2"]`},
		{"\x0c\x11" + zip, "ZRANGE a 0 -1 WITHSCORES", `["ab" "2"]`},
		{"\x03\x03\x01x\x031.5\x01y\xfe\x01z\xff", "ZRANGE a 0 -1 WITHSCORES", `["z" "-inf" "x" "1.5" "y" "inf"]`},
		{"\x12\x01\x01\x05plain", "LRANGE a 0 -1", `["plain"]`},
	} {
		if got := p.do("RESTORE", "a", "0", sealDump(tc.body, 9), "REPLACE"); got != "+OK" {
			t.Errorf("%q: %s", tc.body, got)
		}
		if got := p.do(strings.Fields(tc.get)...); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.body, got, tc.want)
		}
	}
	for _, body := range []string{
		"\x01\x00", "\x01\x02\x01x", "\x12\x01\x03\x01x", "\x05\x00", "\x05\x01\x01x\x00\x00\x00\x00\x00\x00\xf8\x7f",
		"\x03\x01\x01x\xfd", "\x03\x02\x01x\x011\x01x\x012", "\x0c\x05\x00\x00\x00\x00\x00", "\x11\x00",
	} {
		if got := p.do("RESTORE", "refused", "0", sealDump(body, dumpVersion)); got != "-"+errBadFormat {
			t.Errorf("%q: %s", body, got)
		}
	}
}

// FuzzUndumpLists passes arbitrary payloads of lists and sorted sets to RESTORE.
func FuzzUndumpLists(f *testing.F) {
	for _, body := range []string{"\x01\x01\x01x", "\x12\x01\x02\x09\x09\x00\x00\x00\x01\x00\x01\x01\xff", "\x05\x01\x01x\x00\x00\x00\x00\x00\x00\xf8\x3f",
		"\x03\x01\x01x\x011", "\x0a\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x00\x00\xff", "\x11\x07\x07\x00\x00\x00\x00\x00\xff"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var p pairs
		value, err := undump([]byte(sealDump(string(body), dumpVersion)), &p, 1<<16)
		if err != "" {
			return
		}
		switch kind, content := typed(value); kind.family() {
		case typeList:
			var l packedList
			if l.open(content); l.expand() && l.n > 0 {
				return
			}
			t.Errorf("a damaged list comes of %q", body)
		case typeSorted:
			var s packedSorted
			if s.open(kind, content); s.damaged || s.count() == 0 {
				t.Errorf("a damaged sorted set comes of %q", body)
			}
		}
	})
}
