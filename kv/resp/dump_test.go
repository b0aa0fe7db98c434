package resp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// What DUMP gives, the other server restores, and what comes of it is the same.
func TestDumpAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	commands := map[string][]string{}
	for i, value := range []string{
		"", "0", "-1", "127", "128", "-129", "32768", "2147483647", "-2147483648", "2147483648", "text", "\x00\xff", mark + "h\x01a\x01b",
		strings.Repeat("a", 30), strings.Repeat("long ", 100), strings.Repeat("x", 70_000), strings.Repeat("0123456789abcdef", 2000),
	} {
		commands[fmt.Sprint("s", i)] = []string{"SET", fmt.Sprint("s", i), value}
		commands[fmt.Sprint("h", i)] = []string{"HSET", fmt.Sprint("h", i), "f", value, "12", "-4000", value, "1", "x", "9000000000", "y", "8000000", "z", strings.Repeat("v", 50)}
	}
	many := []string{"HSET", "many"}
	for i := range 1000 {
		many = append(many, fmt.Sprint("field", i), strconv.Itoa(i*i*i-1000))
	}
	commands["many"] = many
	few := []string{"HSET", "few"}
	for i := range 200 {
		few = append(few, fmt.Sprint(i), strconv.Itoa(i*i*i*50-1000))
	}
	commands["few"] = few
	for key, command := range commands {
		for _, way := range []struct{ from, to *peer }{{redis, ours}, {ours, redis}} {
			way.from.do("DEL", key)
			way.to.do("DEL", key)
			way.from.do(command...)
			dumped, err := strconv.Unquote(way.from.do("DUMP", key))
			if err != nil {
				t.Fatal(err)
			}
			if got := way.to.do("RESTORE", key, "0", dumped); got != "+OK" {
				t.Fatalf("%s: %s", key, got)
			}
			get := []string{"GET", key}
			if command[0] == "HSET" {
				get[0] = "HGETALL"
			}
			if got, want := way.to.do(get...), way.from.do(get...); got != want && sorted(got) != sorted(want) {
				t.Errorf("%s is restored as %.200s, want %.200s", key, got, want)
			}
			// Damaged anywhere, it is refused.
			for i := 0; i < len(dumped); i += 1 + len(dumped)/7 {
				damaged := dumped[:i] + string(dumped[i]^1) + dumped[i+1:]
				if got := ours.do("RESTORE", "bad", "0", damaged); got != "-"+errBadDump {
					t.Errorf("%s, damaged at %d: %s", key, i, got)
				}
			}
		}
	}
	for _, p := range []*peer{redis, ours} {
		dumped, err := strconv.Unquote(p.do("DUMP", "s10"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			args []string
			want string
		}{
			{[]string{"s10", "0", dumped}, "-" + errBusyKey},
			{[]string{"s10", "x", dumped, "REPLACE"}, "-" + errNotInteger},
			{[]string{"s10", "-1", dumped, "REPLACE"}, "-ERR Invalid TTL value, must be >= 0"},
			{[]string{"s10", "0", "nonsense", "REPLACE"}, "-" + errBadDump},
			{[]string{"s10", "0", dumped, "NONSENSE"}, "-" + errSyntax},
			{[]string{"s10", "99999999999999", dumped, "REPLACE", "ABSTTL"}, "+OK"},
			{[]string{"new", "1", dumped, "ABSTTL"}, "+OK"},
		} {
			if got := p.do(append([]string{"RESTORE"}, tc.args...)...); got != tc.want {
				t.Errorf("%q: %s, want %s", tc.args, got, tc.want)
			}
		}
		if got := p.do("PEXPIRETIME", "s10") + p.do("EXISTS", "new"); got != ":99999999999999:0" {
			t.Error(got)
		}
	}
}

// FuzzUndump gives RESTORE whatever there is, with a checksum that is right.
func FuzzUndump(f *testing.F) {
	for _, body := range []string{"\x00\x03abc", "\x00\xc0\x05", "\x04\x01\x01f\x01v", "\x10\x0b\x0b\x00\x00\x00\x02\x00\x81f\x02\x01\x01\xff", "\x00\xc3\x03\x04\x00a\x20\x00"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const most = 1 << 16
		sealed := append(append([]byte{}, body...), dumpVersion, 0)
		sum := checksum(sealed)
		for range 8 {
			sealed = append(sealed, byte(sum))
			sum >>= 8
		}
		value, err := undump(sealed, most)
		if err != "" {
			return
		}
		kind, content := typed(value)
		h := hash{rest: content}
		if n := h.count(); kind.isHash() && (h.damaged || n == 0) {
			t.Errorf("a hash of %d fields, damaged %t, comes of %q", n, h.damaged, body)
		}
	})
}

// FuzzHash takes damaged hashes apart.
func FuzzHash(f *testing.F) {
	f.Add([]byte("\x01f\x01v"), []byte("f"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01f"), []byte(""))
	f.Fuzz(func(t *testing.T, content, field []byte) {
		var p pairs
		if !p.load(content, 2) {
			return
		}
		want := p.live
		if p.set(field, []byte("value")) {
			want++
		}
		_, again := typed(p.appendTo(nil, false))
		h := hash{rest: again}
		all := h
		if value, ok := h.get(field); !ok || string(value) != "value" || all.count() != want {
			t.Errorf("%q with %q", content, field)
		}
	})
}
