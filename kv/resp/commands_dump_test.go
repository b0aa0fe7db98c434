package resp

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// TestDumpAsRedis restores dumps of each server on the other, and compares the values.
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
			// A damaged dump is refused.
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

// sealDump returns a dump of a type and a value, of the given version of the format.
func sealDump(body string, version uint16) string {
	b := binary.LittleEndian.AppendUint16([]byte(body), version)
	return string(binary.LittleEndian.AppendUint64(b, checksum(b)))
}

// listpack returns a listpack of short strings and integers.
func listpack(entries ...any) string {
	var b []byte
	for _, e := range entries {
		switch e := e.(type) {
		case int:
			b = append(b, byte(e), 1)
		case int64: // as 8 bytes
			b = append(binary.LittleEndian.AppendUint64(append(b, 0xf4), uint64(e)), 9)
		case string:
			b = append(append(append(b, 0x80|byte(len(e))), e...), byte(len(e)+1))
		}
	}
	b = append(b, 0xff)
	head := binary.LittleEndian.AppendUint32(nil, uint32(6+len(b)))
	return string(append(binary.LittleEndian.AppendUint16(head, uint16(len(entries))), b...))
}

// TestRestoreOfLaterVersions restores dumps of strings and hashes by Redis 7.2 and later, and
// checks the error for fields that expire.
func TestRestoreOfLaterVersions(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	bodies := map[string]string{}
	for key, command := range map[string][]string{
		"string": {"SET", "string", "text"}, "number": {"SET", "number", "12345"}, "long": {"SET", "long", strings.Repeat("abc", 100)},
		"small": {"HSET", "small", "f", "v", "g", "7"}, "large": {"HSET", "large", "f", strings.Repeat("v", 100), "g", "7"},
	} {
		redis.do(command...)
		dumped, err := strconv.Unquote(redis.do("DUMP", key))
		if err != nil {
			t.Fatal(err)
		}
		bodies[key] = dumped[:len(dumped)-dumpFooter]
	}
	str := func(s string) string { return string(appendDumpString(nil, []byte(s))) }
	never := strings.Repeat("\x00", 7) + "\x80"
	bodies["timed"] = "\x18" + never + "\x02\x00" + str("f") + str("v") + "\x00" + str("g") + str("7")
	bodies["times"] = "\x19" + never + str(listpack("f", "v", 0, "g", 7, 0))
	refused := map[string]string{
		"\x18" + never + "\x02\x00" + str("f") + str("v") + "\x05" + str("g") + str("7"): errFieldExpires,
		"\x19" + never + str(listpack("f", "v", 0, "g", 7, int64(1)<<41)):                errFieldExpires,
		"\x16\x01" + str("f") + str("v") + "\x05":                                        errFieldExpires,
		"\x17" + str(listpack("f", "v", 5)):                                              errFieldExpires,
		"\x18" + never[1:] + "\x01\x05" + str("f"):                                       errBadFormat,
		"\x19" + never + str(listpack("f", "v")):                                         errBadFormat,
		"\x19\x00":                                                                       errBadFormat,
		"\x1f" + str("of another kind"):                                                  errBadFormat,
		"\x12\x01" + str(listpack("a")):                                                  errBadFormat,
		"\x10" + str(listpack("f")):                                                      errBadFormat,
		"\x18" + never + "\x00":                                                          errBadFormat,
		"\x19" + never + str(listpack()):                                                 errBadFormat,
	}
	for _, version := range []uint16{1, 10, 11, 12, 13, 80, math.MaxUint16} {
		for key, body := range bodies {
			if got := ours.do("RESTORE", key, "0", sealDump(body, version), "REPLACE"); got != "+OK" {
				t.Errorf("%s of version %d: %s", key, version, got)
			}
			get := map[bool]string{false: "GET", true: "HGETALL"}[body[0] != dumpString]
			from := key
			if key == "timed" || key == "times" {
				from = "small"
			}
			if got, want := ours.do(get, key), redis.do(get, from); sorted(got) != sorted(want) {
				t.Errorf("%s of version %d is %s, want %s", key, version, got, want)
			}
			if got := ours.do("RESTORE", "bad", "0", sealDump(body, version)[:len(body)]+sealDump(body, version^1)[len(body):len(body)+2]+sealDump(body, version)[len(body)+2:]); got != "-"+errBadDump {
				t.Errorf("%s with another version than the checksum is of: %s", key, got)
			}
		}
		for body, want := range refused {
			if got := ours.do("RESTORE", "refused", "0", sealDump(body, version)); got != "-"+want {
				t.Errorf("%q of version %d: %s, want %s", body, version, got, want)
			}
		}
	}
	if got := ours.do("EXISTS", "refused", "bad"); got != ":0" {
		t.Error(got)
	}
}

// FuzzUndump passes arbitrary payloads with correct checksums to RESTORE.
func FuzzUndump(f *testing.F) {
	for _, body := range []string{"\x00\x03abc", "\x00\xc0\x05", "\x04\x01\x01f\x01v", "\x10\x0b\x0b\x00\x00\x00\x02\x00\x81f\x02\x01\x01\xff", "\x00\xc3\x03\x04\x00a\x20\x00",
		"\x18\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x01f\x01v", "\x18\x00\x00\x00\x00\x00\x00\x00\x80\x01\x05\x01f\x01v",
		"\x19\x00\x00\x00\x00\x00\x00\x00\x80\x0d\x0d\x00\x00\x00\x03\x00\x81f\x02\x01\x01\x00\x01\xff", "\x16\x01\x01f\x01v", "\x17\x00"} {
		f.Add([]byte(body), uint16(dumpVersion))
		f.Add([]byte(body), uint16(12))
	}
	f.Fuzz(func(t *testing.T, body []byte, version uint16) {
		const most = 1 << 16
		var p pairs
		if _, err := undump([]byte(sealDump(string(body), version)), &p, most); err != "" || body[0] == dumpString {
			return
		}
		kind, content := typed(p.appendTo(nil))
		all := packed{rest: content, family: kind.family()}
		if n := all.len(); !kind.isElements() || all.damaged || n == 0 || n != p.live {
			t.Errorf("%d elements, damaged %t, come of %q", n, all.damaged, body)
		}
	})
}

// FuzzPacked reads damaged hashes and sets.
func FuzzPacked(f *testing.F) {
	f.Add([]byte("\x01f\x01v"), []byte("f"), uint8(typeHash))
	f.Add([]byte("\x011\x022x"), []byte("2"), uint8(typeIntSet))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01f"), []byte(""), uint8(typeSet))
	f.Fuzz(func(t *testing.T, content, field []byte, of uint8) {
		kind := typeHash + valueType(of)%(typeTableSet-typeHash+1)
		var p pairs
		if !p.load(content, kind) {
			return
		}
		want := p.live
		if p.set(field, []byte("value")) {
			want++
		}
		again, rest := typed(p.appendTo(nil))
		all := packed{rest: rest, family: again.family()}
		value, ok := all.get(field)
		if !ok || again.family() == typeHash && string(value) != "value" || all.len() != want || all.err() != "" {
			t.Errorf("%q with %q", content, field)
		}
		if p.remove(field); p.live != want-1 {
			t.Errorf("%q without %q", content, field)
		}
	})
}
