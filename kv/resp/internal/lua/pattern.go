package lua

import (
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// Lua's patterns. The matcher backtracks; each step is counted by the meter, so a pattern that
// takes forever can be ended.

const (
	maxCaptures = 32
	maxDepth    = 5000 // nested calls of match; each single character or capture may nest one

	unfinished = -1 // length of a capture that is still open
	position   = -2 // length of a capture of a position
)

type capture struct{ start, length int }

// matcher matches a pattern at places of a string.
type matcher struct {
	l        *glua.LState
	meter    *Meter
	src, pat string
	depth    int
	captures []capture
	buf      [4]capture // of captures, for most patterns
}

func (m *matcher) init(l *glua.LState, meter *Meter, src, pat string) {
	m.l, m.meter, m.src, m.pat = l, meter, src, pat
	m.captures = m.buf[:0]
}

// at matches the pattern from offset p at offset s. It returns the end of the match, or -1.
func (m *matcher) at(s, p int) int {
	m.captures, m.depth = m.captures[:0], 0
	return m.match(s, p)
}

func (m *matcher) fail(text string) { m.l.RaiseError("%s", text) }

func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxDepth {
		m.fail("pattern too complex")
	}
	defer func() { m.depth-- }()
	for {
		m.meter.work(m.l, 1)
		if p == len(m.pat) {
			return s
		}
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.open(s, p+2, position)
			}
			return m.open(s, p+1, unfinished)
		case ')':
			return m.close(s, p+1)
		case '$':
			if p+1 == len(m.pat) {
				if s == len(m.src) {
					return s
				}
				return -1
			}
		case '%':
			if p+1 < len(m.pat) {
				switch c := m.pat[p+1]; {
				case c == 'b':
					if s = m.balanced(s, p+2); s < 0 {
						return -1
					}
					p += 4
					continue
				case c == 'f':
					end := m.frontier(s, p+2)
					if end < 0 {
						return -1
					}
					p = end
					continue
				case c >= '0' && c <= '9':
					if s = m.again(s, c); s < 0 {
						return -1
					}
					p += 2
					continue
				}
			}
		}
		end := m.classEnd(p)
		var suffix byte
		if end < len(m.pat) {
			suffix = m.pat[end]
		}
		switch suffix {
		case '?':
			if m.single(s, p, end) {
				if r := m.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			p = end + 1
		case '*':
			return m.longest(s, p, end)
		case '+':
			if !m.single(s, p, end) {
				return -1
			}
			return m.longest(s+1, p, end)
		case '-':
			return m.shortest(s, p, end)
		default:
			if !m.single(s, p, end) {
				return -1
			}
			s, p = s+1, end
		}
	}
}

// classEnd returns the end of the single-character class at p.
func (m *matcher) classEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p == len(m.pat) {
			m.fail("malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; ; first = false {
			if p >= len(m.pat) {
				m.fail("malformed pattern (missing ']')")
			}
			c := m.pat[p]
			if c == ']' && !first {
				return p + 1
			}
			if p++; c == '%' {
				p++ // an escaped ] too
			}
		}
	}
	return p
}

// single reports whether the character at s is in the class at p.
func (m *matcher) single(s, p, end int) bool {
	m.meter.work(m.l, 1)
	if s >= len(m.src) {
		return false
	}
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return c == m.pat[p]
}

// inSet reports whether c is in the set from p, the [, to end, the ].
func (m *matcher) inSet(c byte, p, end int) bool {
	in := true
	if p++; m.pat[p] == '^' {
		in = false
		p++
	}
	for ; p < end; p++ {
		switch {
		case m.pat[p] == '%' && p+1 < end:
			if p++; inClass(c, m.pat[p]) {
				return in
			}
		case p+2 < end && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return in
			}
			p += 2
		case m.pat[p] == c:
			return in
		}
	}
	return !in
}

// inClass reports whether c is in the class of a letter, such as 'd'. Upper case is the opposite.
func inClass(c, class byte) bool {
	letter := class | 0x20
	var in bool
	switch lower := c | 0x20; letter {
	case 'a':
		in = lower >= 'a' && lower <= 'z'
	case 'c':
		in = c < ' ' || c == 0x7f
	case 'd':
		in = c >= '0' && c <= '9'
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = isPunctuation(c)
	case 's':
		in = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = c >= '0' && c <= '9' || lower >= 'a' && lower <= 'z'
	case 'x':
		in = c >= '0' && c <= '9' || lower >= 'a' && lower <= 'f'
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	if class < 'A' || class > 'z' || class > 'Z' && class < 'a' {
		return class == c
	}
	return in == (class >= 'a')
}

func isPunctuation(c byte) bool {
	return c > ' ' && c < 0x7f && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
}

// longest matches as many characters of the class at p as the rest allows.
func (m *matcher) longest(s, p, end int) int {
	n := 0
	for m.single(s+n, p, end) {
		n++
	}
	for ; n >= 0; n-- {
		if r := m.match(s+n, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

// shortest matches as few characters of the class at p as the rest allows.
func (m *matcher) shortest(s, p, end int) int {
	for {
		if r := m.match(s, end+1); r >= 0 {
			return r
		}
		if !m.single(s, p, end) {
			return -1
		}
		s++
	}
}

// open begins a capture; p is behind it.
func (m *matcher) open(s, p, length int) int {
	if len(m.captures) == maxCaptures {
		m.fail("too many captures")
	}
	n := len(m.captures)
	m.captures = append(m.captures, capture{s, length})
	r := m.match(s, p)
	if r < 0 {
		m.captures = m.captures[:n]
	}
	return r
}

// close ends the capture that was opened last.
func (m *matcher) close(s, p int) int {
	for i := len(m.captures) - 1; i >= 0; i-- {
		if m.captures[i].length != unfinished {
			continue
		}
		m.captures[i].length = s - m.captures[i].start
		r := m.match(s, p)
		if r < 0 {
			m.captures[i].length = unfinished
		}
		return r
	}
	m.fail("invalid pattern capture")
	return -1
}

// balanced matches %b with the characters at p.
func (m *matcher) balanced(s, p int) int {
	if p+1 >= len(m.pat) {
		m.fail("unbalanced pattern")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	begins, ends, open := m.pat[p], m.pat[p+1], 1
	for s++; s < len(m.src); s++ {
		m.meter.work(m.l, 1)
		switch m.src[s] {
		case ends:
			if open--; open == 0 {
				return s + 1
			}
		case begins:
			open++
		}
	}
	return -1
}

// frontier matches %f with the set at p, and returns the end of the set.
func (m *matcher) frontier(s, p int) int {
	if p >= len(m.pat) || m.pat[p] != '[' {
		m.fail("missing '[' after '%f' in pattern")
	}
	end := m.classEnd(p)
	var before, here byte
	if s > 0 {
		before = m.src[s-1]
	}
	if s < len(m.src) {
		here = m.src[s]
	}
	if m.inSet(before, p, end-1) || !m.inSet(here, p, end-1) {
		return -1
	}
	return end
}

// again matches what an earlier capture matched.
func (m *matcher) again(s int, digit byte) int {
	i := int(digit) - '1'
	if i < 0 || i >= len(m.captures) || m.captures[i].length == unfinished {
		m.fail("invalid capture index")
	}
	c := m.captures[i]
	if c.length < 0 {
		return -1
	}
	m.meter.work(m.l, uint(c.length))
	if n := c.length; len(m.src)-s >= n && m.src[c.start:c.start+n] == m.src[s:s+n] {
		return s + n
	}
	return -1
}

// captured returns the i-th capture of a match from s to e. Without captures, the whole match is
// the first.
func (m *matcher) captured(i, s, e int) glua.LValue {
	if i >= len(m.captures) {
		if i != 0 {
			m.fail("invalid capture index")
		}
		return glua.LString(m.src[s:e])
	}
	switch c := m.captures[i]; c.length {
	case position:
		return glua.LNumber(c.start + 1)
	case unfinished:
		m.fail("unfinished capture")
		return glua.LNil
	default:
		return glua.LString(m.src[c.start : c.start+c.length])
	}
}

// push pushes all captures of a match, or the whole match if there are none and whole is true.
func (m *matcher) push(s, e int, whole bool) int {
	n := len(m.captures)
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.l.Push(m.captured(i, s, e))
	}
	return n
}

// find implements string.find and string.match.
func (st *State) find(l *glua.LState, returnsPlace bool) int {
	src, pat := checkString(l, 1), checkString(l, 2)
	from := optInt(l, 3, 1)
	if from < 0 {
		from = max(from+len(src)+1, 1)
	}
	from = min(max(from-1, 0), len(src))
	if returnsPlace && (l.ToBool(4) || !isPattern(pat)) {
		st.meter.work(l, uint(len(src)-from))
		i := strings.Index(src[from:], pat)
		if i < 0 {
			l.Push(glua.LNil)
			return 1
		}
		l.Push(glua.LNumber(from + i + 1))
		l.Push(glua.LNumber(from + i + len(pat)))
		return 2
	}
	var m matcher
	m.init(l, &st.meter, src, pat)
	p := 0
	anchored := pat != "" && pat[0] == '^'
	if anchored {
		p = 1
	}
	for s := from; s <= len(src); s++ {
		if e := m.at(s, p); e >= 0 {
			if !returnsPlace {
				return m.push(s, e, true)
			}
			l.Push(glua.LNumber(s + 1))
			l.Push(glua.LNumber(e))
			return 2 + m.push(s, e, false)
		}
		if anchored {
			break
		}
	}
	l.Push(glua.LNil)
	return 1
}

func isPattern(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '^', '$', '*', '+', '?', '.', '(', '[', '%', '-':
			return true
		}
	}
	return false
}

func (st *State) stringFind(l *glua.LState) int  { return st.find(l, true) }
func (st *State) stringMatch(l *glua.LState) int { return st.find(l, false) }

func (st *State) stringGmatch(l *glua.LState) int {
	src, pat := checkString(l, 1), checkString(l, 2)
	at := 0
	l.Push(l.NewFunction(func(l *glua.LState) int {
		var m matcher
		m.init(l, &st.meter, src, pat)
		for s := at; s <= len(src); s++ {
			if e := m.at(s, 0); e >= 0 {
				if at = e; e == s {
					at++ // an empty match
				}
				return m.push(s, e, true)
			}
		}
		at = len(src) + 1
		l.Push(glua.LNil)
		return 1
	}))
	return 1
}

func (st *State) stringGsub(l *glua.LState) int {
	src, pat := checkString(l, 1), checkString(l, 2)
	by := l.Get(3)
	switch by.(type) {
	case glua.LString, glua.LNumber, *glua.LTable, *glua.LFunction:
	default:
		badArgument(l, 3, "string/function/table expected")
	}
	most := optInt(l, 4, len(src)+1)
	var m matcher
	m.init(l, &st.meter, src, pat)
	p := 0
	anchored := pat != "" && pat[0] == '^'
	if anchored {
		p = 1
	}
	var out []byte
	s, n := 0, 0
	for n < most {
		e := m.at(s, p)
		if e >= 0 {
			n++
			out = m.substitute(out, by, s, e)
		}
		switch {
		case e > s:
			s = e
		case s < len(src):
			out = append(out, src[s])
			s++
		default:
			anchored = true
		}
		if anchored {
			break
		}
	}
	if s < len(src) {
		out = append(out, src[s:]...)
	}
	st.meter.Charge(l, len(out))
	l.Push(glua.LString(out))
	l.Push(glua.LNumber(n))
	return 2
}

// substitute appends what replaces the match from s to e.
func (m *matcher) substitute(out []byte, by glua.LValue, s, e int) []byte {
	var v glua.LValue
	switch by := by.(type) {
	case *glua.LTable:
		v = m.l.GetTable(by, m.captured(0, s, e))
	case *glua.LFunction:
		m.l.Push(by)
		m.l.Call(m.push(s, e, true), 1)
		v = m.l.Get(-1)
		m.l.Pop(1)
	default:
		text, _ := str(by)
		return m.expand(out, text, s, e)
	}
	if v == glua.LNil || v == glua.LFalse {
		return m.grow(out, m.src[s:e])
	}
	text, ok := str(v)
	if !ok {
		m.fail("invalid replacement value (a " + v.Type().String() + ")")
	}
	return m.grow(out, text)
}

// expand appends the replacement text, in which %1 is the first capture and %0 the match.
func (m *matcher) expand(out []byte, text string, s, e int) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' {
			out = append(out, c)
			continue
		}
		if i++; i == len(text) {
			return append(out, 0) // as Lua's C strings end
		}
		switch c := text[i]; {
		case c == '0':
			out = m.grow(out, m.src[s:e])
		case c > '0' && c <= '9':
			captured, _ := str(m.captured(int(c-'1'), s, e))
			out = m.grow(out, captured)
		default:
			out = append(out, c)
		}
	}
	return m.grow(out, "")
}

// grow appends to a result, whose size is limited.
func (m *matcher) grow(out []byte, text string) []byte {
	if len(out)+len(text) > MaxString {
		m.fail(errString.Error())
	}
	return append(out, text...)
}
