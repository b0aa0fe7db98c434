package resp

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	glua "github.com/yuin/gopher-lua"

	"github.com/redykv/redykv/kv/resp/internal/lua"
)

// Replies become values of Lua, and values become replies, as in Redis:
//
//	status, error   {ok=text}, {err=text}
//	integer         number
//	bulk string     string; null: false, or nil in RESP3
//	array           table
//	of RESP3        boolean, {double=n}, {map=t}, {set=t}, {big_number=s}, {verbatim_string={format=,string=}}

// maxReplyDepth is the most levels of a table that becomes a reply.
const maxReplyDepth = 1000

// fromReply returns the value of the reply at the beginning of b, and the bytes behind it. The
// server has written the reply, so it is well formed.
func (in *interpreter) fromReply(b []byte, depth int) (v glua.LValue, rest []byte) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 || depth > maxReplyDepth {
		return glua.LNil, nil
	}
	line, rest := b[1:end], b[end+2:]
	switch b[0] {
	case '+':
		return in.field("ok", glua.LString(line)), rest
	case '-':
		return in.errorTable(string(line)), rest
	case '_':
		return glua.LNil, rest
	case '#':
		return glua.LBool(string(line) == "t"), rest
	case ',':
		f, err := strconv.ParseFloat(string(line), 64)
		if err != nil {
			f = math.NaN()
		}
		return in.field("double", glua.LNumber(f)), rest
	case '(':
		return in.field("big_number", glua.LString(line)), rest
	}
	n, _ := parseInt(line)
	switch b[0] {
	case ':':
		return glua.LNumber(n), rest
	case '$', '=':
		if n < 0 {
			return glua.LFalse, rest
		}
		data := rest[:n]
		if rest = rest[n+2:]; b[0] == '$' {
			return glua.LString(data), rest
		}
		t := in.state.NewTable(0, 2)
		format, text, _ := strings.Cut(string(data), ":")
		t.RawSetString("format", glua.LString(format))
		t.RawSetString("string", glua.LString(text))
		return in.field("verbatim_string", t), rest
	case '%':
		t := in.state.NewTable(0, int(n))
		for range n {
			var key, value glua.LValue
			key, rest = in.fromReply(rest, depth+1)
			value, rest = in.fromReply(rest, depth+1)
			if key != glua.LNil {
				t.RawSet(key, value)
			}
		}
		return in.field("map", t), rest
	case '~':
		t := in.state.NewTable(0, int(n))
		for range n {
			var key glua.LValue
			if key, rest = in.fromReply(rest, depth+1); key != glua.LNil {
				t.RawSet(key, glua.LTrue)
			}
		}
		return in.field("set", t), rest
	}
	if n < 0 {
		return glua.LFalse, rest
	}
	t := in.state.NewTable(int(n), 0)
	for i := range int(n) {
		var value glua.LValue
		value, rest = in.fromReply(rest, depth+1)
		t.RawSetInt(i+1, value)
	}
	return t, rest
}

func (in *interpreter) field(name string, v glua.LValue) *glua.LTable {
	t := in.state.NewTable(0, 1)
	t.RawSetString(name, v)
	return t
}

// answer replies with the result of a script. resp3 is the protocol that the script has chosen.
func (in *interpreter) answer(c *client, v glua.LValue, resp3 bool) {
	at := len(c.out)
	w := scriptWriter{out: c.out, most: at + int(min(c.server.opts.MaxReplies, math.MaxInt32)), client3: c.resp3, script3: resp3}
	w.value(v, 0)
	c.out = w.out
	if w.refused != "" {
		c.out = c.out[:at]
		c.error(w.refused)
	}
}

// scriptWriter appends a value as a reply.
type scriptWriter struct {
	out              []byte
	most             int  // most bytes of out
	client3, script3 bool // the client, and the script, use RESP3
	refused          string
}

func (w *scriptWriter) value(v glua.LValue, depth int) {
	switch {
	case depth > maxReplyDepth:
		w.refused = "ERR reached lua stack limit"
	case len(w.out) > w.most:
		w.refused = errTooLargeReply
	}
	if w.refused != "" {
		return
	}
	switch v := v.(type) {
	case glua.LString:
		w.out = appendBulk(w.out, string(v))
	case glua.LNumber:
		w.out = appendInt(w.out, truncated(float64(v)))
	case glua.LBool:
		w.boolean(bool(v))
	case *glua.LTable:
		w.table(v, depth)
	default:
		w.out = appendNull(w.out, w.client3)
	}
}

// truncated converts as C does.
func truncated(f float64) int64 {
	if !(f >= -1<<63 && f < 1<<63) {
		return math.MinInt64
	}
	return int64(f)
}

func (w *scriptWriter) boolean(b bool) {
	switch {
	case w.script3 && w.client3 && b:
		w.out = append(w.out, "#t\r\n"...)
	case w.script3 && w.client3:
		w.out = append(w.out, "#f\r\n"...)
	case b:
		w.out = appendInt(w.out, 1)
	case w.script3:
		w.out = appendInt(w.out, 0)
	default:
		w.out = appendNull(w.out, w.client3)
	}
}

func (w *scriptWriter) table(t *glua.LTable, depth int) {
	if s, ok := t.RawGetString("err").(glua.LString); ok {
		w.out = appendError(w.out, string(s))
		return
	}
	if s, ok := t.RawGetString("ok").(glua.LString); ok {
		w.out = appendSimple(w.out, oneLine.Replace(string(s)))
		return
	}
	if n, ok := t.RawGetString("double").(glua.LNumber); ok {
		text := lua.AppendNumber(nil, float64(n), 17)
		if w.client3 {
			w.out = append(append(append(w.out, ','), text...), "\r\n"...)
		} else {
			w.out = appendBulk(w.out, text)
		}
		return
	}
	if m, ok := t.RawGetString("map").(*glua.LTable); ok {
		w.out = appendMap(w.out, w.client3, entries(m))
		for k, v := m.Next(glua.LNil); k != glua.LNil; k, v = m.Next(k) {
			w.value(k, depth+1)
			w.value(v, depth+1)
		}
		return
	}
	if s, ok := t.RawGetString("set").(*glua.LTable); ok {
		w.out = appendSet(w.out, w.client3, entries(s))
		for k, _ := s.Next(glua.LNil); k != glua.LNil; k, _ = s.Next(k) {
			w.value(k, depth+1)
		}
		return
	}
	if s, ok := t.RawGetString("big_number").(glua.LString); ok {
		if w.client3 {
			w.out = append(append(append(w.out, '('), oneLine.Replace(string(s))...), "\r\n"...)
		} else {
			w.out = appendBulk(w.out, string(s))
		}
		return
	}
	if v, ok := t.RawGetString("verbatim_string").(*glua.LTable); ok {
		format, isFormat := v.RawGetString("format").(glua.LString)
		text, isText := v.RawGetString("string").(glua.LString)
		if isFormat && isText {
			w.verbatim(string(format), string(text))
			return
		}
	}
	w.array(t, depth)
}

// verbatim appends text with its format, which has three letters.
func (w *scriptWriter) verbatim(format, text string) {
	if !w.client3 {
		w.out = appendBulk(w.out, text)
		return
	}
	format = (format + "   ")[:3]
	w.out = appendHead(w.out, '=', int64(len(format)+1+len(text)))
	w.out = append(append(append(append(w.out, format...), ':'), text...), "\r\n"...)
}

// array appends the elements up to the first nil.
func (w *scriptWriter) array(t *glua.LTable, depth int) {
	n := 0
	for t.RawGetInt(n+1) != glua.LNil {
		n++
	}
	w.out = appendArray(w.out, n)
	for i := 1; i <= n; i++ {
		w.value(t.RawGetInt(i), depth+1)
	}
}

func entries(t *glua.LTable) (n int) {
	for k, _ := t.Next(glua.LNil); k != glua.LNil; k, _ = t.Next(k) {
		n++
	}
	return n
}
