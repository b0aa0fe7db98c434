package lua

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	glua "github.com/yuin/gopher-lua"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// run runs a script in a new interpreter and returns what it prints as: its result, or its error.
func run(t testing.TB, source string) string {
	t.Helper()
	s, err := Compile(source)
	if err != nil {
		return err.Error()
	}
	st := New(nil, nil)
	v, _, raised := st.Run(s, st.NewTable(0, 0), st.NewTable(0, 0), func() error { return nil })
	if raised != nil {
		return raised.Error()
	}
	return display(v)
}

// Each script returns true.
func TestLanguage(t *testing.T) {
	for _, source := range []string{
		"return ('x'):rep(3) == 'xxx' and ('abc'):upper() == 'ABC'",
		"return 1 .. 2 == '12' and 'a' .. 'b' .. 'c' == 'abc' and 1.5 .. '' == '1.5'",
		"local function two() return 'a', 'b' end return 'x' .. two() == 'xa'",
		"local t = setmetatable({}, {__concat = function(a, b) return 'm' end}) return t .. 'x' == 'm' and 'x' .. t == 'm' and 'a' .. t .. 'b' == 'am'",
		"return '010' + 1 == 11 and 010 == 10 and '0x10' * 1 == 16 and -'2' == -2 and '10' / '2' == 5 and 2 ^ '3' == 8 and 7 % '4' == 3",
		"return not pcall(function() return nil + 1 end) and not pcall(function() return {} .. 'x' end)",
		"local t = setmetatable({}, {__add = function(a, b) return 7 end}) return t + 1 == 7 and 1 + t == 7 and nil == nil and '1' + t == 7",
		"local s = '' for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do s = s .. k .. v end return s == 'a1b2'",
		"local n = 0 for w in ('one two  three'):gmatch('%a+') do n = n + 1 end return n == 3",
		"return ('x'):rep(1000):gsub('x', {x = 'y'}) == ('y'):rep(1000)",
		"local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end) return co(1) == 2 and co(5) == 10",
		"local co = coroutine.create(function() error('x') end) local ok, e = coroutine.resume(co) return not ok and e == 'user_script:1: x'",
		"local ok, e = pcall(error, {err = 'text'}) return not ok and e == 'text'",
		"local t = {5, 2, 8} table.sort(t, function(a, b) return a > b end) return table.concat(t, ',') == '8,5,2'",
		"local t = {1, 2, 3} table.insert(t, 2, 9) return table.remove(t, 1) == 1 and t[1] == 9 and #t == 3",
		"return select('#', unpack({1, nil, 3}, 1, 3)) == 3 and #{n = 1} == 0",
		"return loadstring('return 1 + 1')() == 2 and loadstring('x x') == nil",
		"local n = 0 for k in pairs(redis) do n = n + 1 end return n == 0 and type(_G.string) == 'table'",
		"return not pcall(function() string.x = 1 end) and not pcall(rawset, _G, 'x', 1) and not pcall(function() KEYS = {} end)",
		"for k in pairs(_G) do if k:sub(1, 1) == '(' then return false end end return true",
		"return os == nil", "return getfenv == nil",
	} {
		got := run(t, source)
		if strings.HasSuffix(source, "== nil") && strings.Contains(source, "return os") || strings.Contains(source, "getfenv") {
			if !strings.Contains(got, "nonexistent global variable") {
				t.Errorf("%s: %s", source, got)
			}
		} else if got != "true" {
			t.Errorf("%s: %s", source, got)
		}
	}
}

// TestStatesAreClean: a script finds an interpreter as the one before found it.
func TestStatesAreClean(t *testing.T) {
	st := New(nil, nil)
	run := func(source string) string {
		s, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		keys := st.NewTable(0, 0)
		keys.RawSetInt(1, glua.LString("k"))
		v, reusable, raised := st.Run(s, keys, st.NewTable(0, 0), func() error { return nil })
		if raised != nil {
			return raised.Error()
		}
		if !reusable {
			t.Errorf("%s: the interpreter cannot be used again", source)
		}
		return display(v)
	}
	first := run("return math.random(1000000)")
	for _, source := range []string{
		"math.randomseed(7) return math.random()", "cjson.encode_max_depth(1) return 1", "KEYS[1] = 'x' return KEYS[1]", "error('x')", "local t = nil; return t.x",
		"return pcall(function() _G.x = 1 end)", "return pcall(function() getmetatable('').__index = nil end)",
	} {
		run(source)
	}
	for source, want := range map[string]string{
		"return math.random(1000000)": first, "return cjson.encode({{1}})": "[[1]]", "return KEYS[1]": "k", "return ('x'):rep(2)": "xx",
	} {
		if got := run(source); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

var errTooLong = errors.New("too long")

// TestEnds: no script goes on after its poll has returned an error, in whatever it is.
func TestEnds(t *testing.T) {
	for _, source := range []string{
		"while true do end", "while true do pcall(function() while true do end end) end", "local co = coroutine.wrap(function() while true do end end) co()",
		"local s = ('a'):rep(1e5) return s:find(('a-'):rep(30) .. 'b')", "local s = ('a'):rep(30000) return s:find('.-.-.-.-b')",
		"return xpcall(function() while true do end end, function() while true do end end)",
		"local t = {} for i = 1, 100 do t[i] = i end table.sort(t, function() while true do end end)",
		"return ('x'):gsub('x', function() while true do end end)", "return setmetatable({}, {__index = function() while true do end end}).x",
		"table.insert({}, -2000000000, 1)", "return load(function() return ' ' end)", "for i = 1, math.huge do local x = cjson.decode('[' .. i .. ']') end",
	} {
		s, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		st := New(nil, nil)
		polls := 0
		_, _, raised := st.Run(s, st.NewTable(0, 0), st.NewTable(0, 0), func() error {
			if polls++; polls > 20 {
				return errTooLong
			}
			return nil
		})
		if raised == nil && strings.Contains(source, "load(") { // too large, which it returns
			continue
		}
		if raised == nil || !errors.Is(raised.Ended, errTooLong) {
			t.Errorf("%s: %v", source, raised)
		}
	}
}

// FuzzScript: no source harms the interpreter: each ends by itself or by its poll.
func FuzzScript(f *testing.F) {
	data, err := os.ReadFile("../../testdata/scripts.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if _, rest, ok := strings.Cut(line, " "); ok && line[0] != '#' {
			if quoted, err := strconv.QuotedPrefix(rest); err == nil {
				source, err := strconv.Unquote(quoted)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(source)
			}
		}
	}
	f.Fuzz(func(_ *testing.T, source string) {
		s, err := Compile(source)
		if err != nil {
			return
		}
		st := New(nil, nil)
		polls := 0
		_, _, _ = st.Run(s, st.NewTable(0, 0), st.NewTable(0, 0), func() error {
			if polls++; polls > 50 {
				return errTooLong
			}
			return nil
		})
	})
}

// FuzzDecoders: no bytes harm the decoders, and what they decode can be encoded and decoded again.
func FuzzDecoders(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,null,"\u00e9\ud83d\ude00"]}`, "\x93\x01\xa1x\x81\xa1a\xcb\x00\x00\x00\x00\x00\x00\x00\x00", "\xdf\xff\xff\xff\xff", "[[[[", "\xc1"} {
		f.Add(seed, "i4>I2c0s")
	}
	s, err := Compile(`
local text, format = ARGV[1], ARGV[2]
for name, lib in pairs({cjson = {cjson.decode, cjson.encode}, cmsgpack = {cmsgpack.unpack_one, cmsgpack.pack}}) do
	local ok, v, w = pcall(lib[1], text)
	if name == 'cmsgpack' then v = w end
	if ok then
		local ok, again = pcall(lib[2], v)
		if ok then assert(pcall(lib[1], again), name) end
	end
end
pcall(struct.unpack, format, text)
pcall(struct.pack, format, 1, 2, text, 3)
pcall(struct.size, format)
pcall(string.find, text, format)
pcall(string.gsub, text, format, text)
pcall(string.format, format, 1, text, 2)
return 1`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, format string) {
		st := New(nil, nil)
		args := st.NewTable(2, 0)
		args.RawSetInt(1, glua.LString(text))
		args.RawSetInt(2, glua.LString(format))
		polls := 0
		_, _, raised := st.Run(s, st.NewTable(0, 0), args, func() error {
			if polls++; polls > 50 {
				return errTooLong
			}
			return nil
		})
		if raised != nil && raised.Ended == nil {
			t.Errorf("%q, %q: %v", text, format, raised)
		}
	})
}
