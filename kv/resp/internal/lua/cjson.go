package lua

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	glua "github.com/yuin/gopher-lua"
)

// The library cjson, version 2.1, as Redis has it. Settings that a script makes end with it.

type jsonSettings struct {
	convert              bool // tables that are too sparse for arrays become objects
	ratio, safe          int  // a table is too sparse if its last index is above safe, and above ratio for each element
	encodeDepth          int
	decodeDepth          int
	precision            int
	keepBuffer           bool
	encodeBad, decodeBad badNumbers
}

// badNumbers says what happens to NaN and infinite numbers.
type badNumbers uint8

const (
	badRefused badNumbers = iota
	badTaken
	badNull
)

var badNames = []string{"off", "on", "null"}

var jsonDefaults = jsonSettings{ratio: 2, safe: 10, encodeDepth: 1000, decodeDepth: 1000, precision: 14, keepBuffer: true, decodeBad: badTaken}

// deepest is the deepest nesting, whatever a script sets: encoder and decoder recurse.
const deepest = 5000

func (st *State) openJSON() {
	st.null = &glua.LUserData{Metatable: glua.LNil}
	j := &st.json
	var shown *glua.LTable
	shown = st.open("cjson", functions{
		"encode": st.jsonEncode, "decode": st.jsonDecode,
		"encode_sparse_array":     st.jsonSparse,
		"encode_max_depth":        st.jsonNumber(&j.encodeDepth, 1, math.MaxInt32),
		"decode_max_depth":        st.jsonNumber(&j.decodeDepth, 1, math.MaxInt32),
		"encode_number_precision": st.jsonNumber(&j.precision, 1, 14),
		"encode_keep_buffer": func(l *glua.LState) int {
			if l.GetTop() > 0 {
				j.keepBuffer = l.ToBool(1)
			}
			l.Push(glua.LBool(j.keepBuffer))
			return 1
		},
		"encode_invalid_numbers": st.jsonBadNumbers(&j.encodeBad, badNull),
		"decode_invalid_numbers": st.jsonBadNumbers(&j.decodeBad, badTaken),
		"new": func(l *glua.LState) int {
			l.Push(shown)
			return 1
		},
	}, map[string]glua.LValue{"null": st.null, "_NAME": glua.LString("cjson"), "_VERSION": glua.LString("2.1.0")})
}

func (st *State) jsonNumber(setting *int, least, most int) glua.LGFunction {
	return func(l *glua.LState) int {
		if l.GetTop() > 1 {
			badArgument(l, 2, "found too many arguments")
		}
		if l.Get(1) != glua.LNil {
			n := checkInt(l, 1)
			if n < least || n > most {
				badArgument(l, 1, fmt.Sprintf("expected integer between %d and %d", least, most))
			}
			*setting = n
		}
		l.Push(glua.LNumber(*setting))
		return 1
	}
}

func (st *State) jsonBadNumbers(setting *badNumbers, most badNumbers) glua.LGFunction {
	return func(l *glua.LState) int {
		switch v := l.Get(1).(type) {
		case *glua.LNilType:
		case glua.LBool:
			*setting = badRefused
			if v {
				*setting = badTaken
			}
		default:
			i := slices.Index(badNames, checkString(l, 1))
			if i < 0 || badNumbers(i) > most {
				badArgument(l, 1, "invalid option '"+checkString(l, 1)+"'")
			}
			*setting = badNumbers(i)
		}
		if *setting == badNull {
			l.Push(glua.LString("null"))
		} else {
			l.Push(glua.LBool(*setting == badTaken))
		}
		return 1
	}
}

func (st *State) jsonSparse(l *glua.LState) int {
	j := &st.json
	if l.Get(1) != glua.LNil {
		j.convert = l.ToBool(1)
	}
	for i, setting := range []*int{&j.ratio, &j.safe} {
		if l.Get(2+i) != glua.LNil {
			n := checkInt(l, 2+i)
			if n < 0 || n > math.MaxInt32 {
				badArgument(l, 2+i, "expected integer between 0 and 2147483647")
			}
			*setting = n
		}
	}
	l.Push(glua.LBool(j.convert))
	l.Push(glua.LNumber(j.ratio))
	l.Push(glua.LNumber(j.safe))
	return 3
}

// jsonEncoder encodes one value.
type jsonEncoder struct {
	st  *State
	l   *glua.LState
	out []byte
}

func (st *State) jsonEncode(l *glua.LState) int {
	if l.GetTop() != 1 {
		badArgument(l, 1, "expected 1 argument")
	}
	e := jsonEncoder{st: st, l: l}
	e.value(l.Get(1), 0)
	st.meter.Charge(l, len(e.out))
	l.Push(glua.LString(e.out))
	return 1
}

func (e *jsonEncoder) refuse(v glua.LValue, why string) {
	e.l.RaiseError("Cannot serialise %s: %s", v.Type().String(), why)
}

func (e *jsonEncoder) value(v glua.LValue, depth int) {
	e.st.meter.work(e.l, 1)
	if len(e.out) > MaxString {
		e.l.RaiseError("%s", errString.Error())
	}
	switch v := v.(type) {
	case glua.LString:
		e.string(string(v))
	case glua.LNumber:
		e.number(v)
	case glua.LBool:
		e.out = strconv.AppendBool(e.out, bool(v))
	case *glua.LNilType:
		e.out = append(e.out, "null"...)
	case *glua.LTable:
		if depth++; depth > min(e.st.json.encodeDepth, deepest) {
			e.l.RaiseError("Cannot serialise, excessive nesting (%d)", depth)
		}
		if n := e.arrayLength(v); n > 0 {
			e.array(v, n, depth)
		} else {
			e.object(v, depth)
		}
	default:
		if v == e.st.null {
			e.out = append(e.out, "null"...)
			return
		}
		e.refuse(v, "type not supported")
	}
}

func (e *jsonEncoder) number(n glua.LNumber) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		switch e.st.json.encodeBad {
		case badRefused:
			e.refuse(n, "must not be NaN or Inf")
		case badNull:
			e.out = append(e.out, "null"...)
			return
		case badTaken:
			if math.IsNaN(f) {
				e.out = append(e.out, "nan"...)
				return
			}
		}
	}
	e.out = AppendNumber(e.out, f, e.st.json.precision)
}

// arrayLength returns the last index of a table that becomes an array, or 0 for an object.
func (e *jsonEncoder) arrayLength(t *glua.LTable) int {
	last, n := 0.0, 0
	for k, v := t.Next(glua.LNil); k != glua.LNil; k, v = t.Next(k) {
		i, ok := k.(glua.LNumber)
		if !ok || i < 1 || float64(i) != math.Floor(float64(i)) || v == glua.LNil {
			return 0
		}
		last = max(last, float64(i))
		n++
		e.st.meter.work(e.l, 1)
	}
	j := &e.st.json
	if j.ratio > 0 && last > float64(n*j.ratio) && last > float64(j.safe) {
		if !j.convert {
			e.refuse(t, "excessively sparse array")
		}
		return 0
	}
	return int(min(last, MaxString)) // more elements make a string that is too long
}

func (e *jsonEncoder) array(t *glua.LTable, n, depth int) {
	e.out = append(e.out, '[')
	for i := 1; i <= n; i++ {
		if i > 1 {
			e.out = append(e.out, ',')
		}
		e.value(t.RawGetInt(i), depth)
	}
	e.out = append(e.out, ']')
}

func (e *jsonEncoder) object(t *glua.LTable, depth int) {
	e.out = append(e.out, '{')
	comma := false
	for k, v := t.Next(glua.LNil); k != glua.LNil; k, v = t.Next(k) {
		if comma {
			e.out = append(e.out, ',')
		}
		comma = true
		switch k := k.(type) {
		case glua.LString:
			e.string(string(k))
		case glua.LNumber:
			e.out = append(e.out, '"')
			e.number(k)
			e.out = append(e.out, '"')
		default:
			e.refuse(k, "table key must be a number or string")
		}
		e.out = append(e.out, ':')
		e.value(v, depth)
	}
	e.out = append(e.out, '}')
}

func (e *jsonEncoder) string(s string) {
	e.st.meter.Charge(e.l, len(s))
	e.out = append(e.out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '/':
			e.out = append(e.out, '\\', c)
		case c >= ' ' && c != 0x7f:
			e.out = append(e.out, c)
		case c >= '\b' && c <= '\r' && c != '\v':
			e.out = append(e.out, '\\', "btn_fr"[c-'\b'])
		default:
			e.out = fmt.Appendf(e.out, `\u%04x`, c)
		}
	}
	e.out = append(e.out, '"')
}

// jsonDecoder decodes one value. at is the offset of the next token.
type jsonDecoder struct {
	st *State
	l  *glua.LState
	s  string
	at int
}

func (st *State) jsonDecode(l *glua.LState) int {
	if l.GetTop() != 1 {
		badArgument(l, 1, "expected 1 argument")
	}
	d := jsonDecoder{st: st, l: l, s: checkString(l, 1)}
	v := d.value(d.next(), 0)
	if t := d.next(); t.kind != "T_END" {
		d.expected("the end", t)
	}
	l.Push(v)
	return 1
}

// jsonToken is a token. Its kind is as errors name it.
type jsonToken struct {
	kind  string
	at    int // its offset
	value glua.LValue
}

func (d *jsonDecoder) expected(what string, t jsonToken) {
	d.l.RaiseError("Expected %s but found %s at character %d", what, t.kind, t.at+1)
}

var jsonSigns = map[byte]string{'{': "T_OBJ_BEGIN", '}': "T_OBJ_END", '[': "T_ARR_BEGIN", ']': "T_ARR_END", ',': "T_COMMA", ':': "T_COLON"}

func (d *jsonDecoder) next() jsonToken {
	d.st.meter.work(d.l, 1)
	for d.at < len(d.s) && strings.IndexByte(" \t\n\r", d.s[d.at]) >= 0 {
		d.at++
	}
	t := jsonToken{at: d.at}
	if d.at == len(d.s) {
		t.kind = "T_END"
		return t
	}
	c := d.s[d.at]
	if sign, ok := jsonSigns[c]; ok {
		d.at++
		t.kind = sign
		return t
	}
	if c == '"' {
		return d.string()
	}
	switch rest := d.s[d.at:]; {
	case strings.HasPrefix(rest, "true"):
		d.at += len("true")
		return jsonToken{"T_BOOLEAN", t.at, glua.LTrue}
	case strings.HasPrefix(rest, "false"):
		d.at += len("false")
		return jsonToken{"T_BOOLEAN", t.at, glua.LFalse}
	case strings.HasPrefix(rest, "null"):
		d.at += len("null")
		return jsonToken{"T_NULL", t.at, d.st.null}
	}
	end := d.at
	for end < len(d.s) && strings.IndexByte("+-.0123456789abcdefxABCDEFXnitypNITYP", d.s[end]) >= 0 {
		end++
	}
	text := d.s[d.at:end]
	for text != "" { // the longest number that it begins with, as C's strtod takes it
		if n, ok := parseNumber(text); ok && (d.st.json.decodeBad == badTaken || isPlainNumber(text)) {
			d.at += len(text)
			return jsonToken{"T_NUMBER", t.at, glua.LNumber(n)}
		}
		if text = text[:len(text)-1]; len(text) > 64 {
			text = text[:64]
		}
	}
	t.kind = "invalid token"
	return t
}

// isPlainNumber reports whether a number has no form that JSON lacks.
func isPlainNumber(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return false
	}
	return !strings.ContainsAny(s, "xXnN+ ") || strings.ContainsAny(s, "eE")
}

var jsonEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (d *jsonDecoder) string() jsonToken {
	start := d.at
	d.at++
	rest := strings.IndexAny(d.s[d.at:], `"\`)
	if rest >= 0 && d.s[d.at+rest] == '"' { // without escapes
		v := glua.LString(d.s[d.at : d.at+rest])
		d.at += rest + 1
		d.st.meter.work(d.l, uint(rest))
		return jsonToken{"T_STRING", start, v}
	}
	var out []byte
	for d.at < len(d.s) {
		c := d.s[d.at]
		switch {
		case c == '"':
			d.at++
			d.st.meter.Charge(d.l, len(out))
			return jsonToken{"T_STRING", start, glua.LString(out)}
		case c != '\\':
			out = append(out, c)
			d.at++
		case d.at+1 < len(d.s) && d.s[d.at+1] == 'u':
			r, n := d.codepoint()
			if n == 0 {
				return jsonToken{kind: "invalid unicode escape code", at: d.at}
			}
			out = utf8.AppendRune(out, r)
			d.at += n
		default:
			var escaped byte
			if d.at+1 < len(d.s) {
				escaped = jsonEscapes[d.s[d.at+1]]
			}
			if escaped == 0 {
				return jsonToken{kind: "invalid escape code", at: d.at}
			}
			out = append(out, escaped)
			d.at += 2
		}
	}
	return jsonToken{kind: "unexpected end of string", at: d.at}
}

// codepoint returns the character of the escape at d.at, or of two that are surrogates, and the
// length of the escapes; 0 if they are not valid.
func (d *jsonDecoder) codepoint() (r rune, n int) {
	unit := func(at int) (rune, bool) {
		if at+6 > len(d.s) || d.s[at:at+2] != `\u` {
			return 0, false
		}
		u, err := strconv.ParseUint(d.s[at+2:at+6], 16, 16)
		return rune(u), err == nil
	}
	r, ok := unit(d.at)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	low, ok := unit(d.at + 6)
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func (d *jsonDecoder) value(t jsonToken, depth int) glua.LValue {
	switch t.kind {
	case "T_STRING", "T_NUMBER", "T_BOOLEAN", "T_NULL":
		return t.value
	case "T_OBJ_BEGIN", "T_ARR_BEGIN":
		if depth++; depth > min(d.st.json.decodeDepth, deepest) {
			d.l.RaiseError("Found too many nested data structures (%d)", depth)
		}
		d.st.meter.Charge(d.l, stepBytes)
		if t.kind == "T_ARR_BEGIN" {
			return d.array(depth)
		}
		return d.object(depth)
	}
	d.expected("value", t)
	return nil
}

func (d *jsonDecoder) array(depth int) glua.LValue {
	out := d.st.NewTable(0, 0)
	t := d.next()
	if t.kind == "T_ARR_END" {
		return out
	}
	for n := 1; ; n++ {
		out.RawSetInt(n, d.value(t, depth))
		d.st.meter.spend(stepBytes)
		switch t = d.next(); t.kind {
		case "T_ARR_END":
			return out
		case "T_COMMA":
		default:
			d.expected("comma or array end", t)
		}
		t = d.next()
	}
}

func (d *jsonDecoder) object(depth int) glua.LValue {
	out := d.st.NewTable(0, 0)
	t := d.next()
	if t.kind == "T_OBJ_END" {
		return out
	}
	for {
		if t.kind != "T_STRING" {
			d.expected("object key string", t)
		}
		key := string(t.value.(glua.LString))
		if t = d.next(); t.kind != "T_COLON" {
			d.expected("colon", t)
		}
		out.RawSetString(key, d.value(d.next(), depth))
		d.st.meter.spend(2 * stepBytes)
		switch t = d.next(); t.kind {
		case "T_OBJ_END":
			return out
		case "T_COMMA":
		default:
			d.expected("comma or object end", t)
		}
		t = d.next()
	}
}
