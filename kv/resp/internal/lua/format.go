package lua

import (
	"fmt"
	"math"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// directive is a directive of string.format, such as %-5.2f.
type directive struct {
	flags            string
	width, precision string // digits; precision with its point
	verb             byte
}

// parseDirective parses the directive behind a % and returns the rest.
func parseDirective(l *glua.LState, s string) (d directive, rest string) {
	part := func(in string, most int) string {
		n := 0
		for n < len(s) && n < most && strings.IndexByte(in, s[n]) >= 0 {
			n++
		}
		taken := s[:n]
		s = s[n:]
		return taken
	}
	const digits = "0123456789"
	d.flags = part("-+ #0", math.MaxInt)
	if len(d.flags) > 5 {
		l.RaiseError("invalid format (repeated flags)")
	}
	d.width = part(digits, 2)
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		d.precision = "." + part(digits, 2)
	}
	if s != "" && strings.IndexByte(digits, s[0]) >= 0 {
		l.RaiseError("invalid format (width or precision too long)")
	}
	if s != "" {
		d.verb, s = s[0], s[1:]
	}
	return d, s
}

// with returns the directive for package fmt with another verb.
func (d directive) with(verb string) string { return "%" + d.flags + d.width + d.precision + verb }

func (st *State) stringFormat(l *glua.LState) int {
	format := checkString(l, 1)
	var out []byte
	arg := 1
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			out = append(out, format...)
			break
		}
		out, format = append(out, format[:i]...), format[i+1:]
		if strings.HasPrefix(format, "%") {
			out, format = append(out, '%'), format[1:]
			continue
		}
		var d directive
		d, format = parseDirective(l, format)
		arg++
		if arg > l.GetTop() {
			badArgument(l, arg, "no value")
		}
		out = d.append(l, out, arg)
		if len(out) > MaxString {
			l.RaiseError("%s", errString.Error())
		}
	}
	st.meter.Charge(l, len(out))
	l.Push(glua.LString(out))
	return 1
}

// append appends an argument.
func (d directive) append(l *glua.LState, out []byte, arg int) []byte {
	switch d.verb {
	case 'c':
		return fmt.Appendf(out, d.with("s"), []byte{byte(checkInt(l, arg))})
	case 'd', 'i':
		return d.integer(out, toInt(checkNumber(l, arg)))
	case 'u':
		return d.unsigned(out, 'd', asUnsigned(checkNumber(l, arg)))
	case 'o', 'x', 'X':
		return d.unsigned(out, d.verb, asUnsigned(checkNumber(l, arg)))
	case 'e', 'E', 'f', 'g', 'G':
		return d.float(out, checkNumber(l, arg))
	case 'q':
		return appendQuoted(out, checkString(l, arg))
	case 's':
		s := checkString(l, arg)
		if d.precision == "" && len(s) >= 100 {
			return append(out, s...) // as Lua, whatever the width
		}
		return d.text(out, s)
	}
	text := ""
	if d.verb != 0 {
		text = string(d.verb)
	}
	l.RaiseError("invalid option '%s' to 'format'", d.with(text))
	return nil
}

func asUnsigned(f float64) uint64 {
	if f < 0 {
		return uint64(toInt(f))
	}
	if f >= 1<<64 {
		return 0
	}
	return uint64(f)
}

// zeroless returns the directive without the flag 0, which C ignores where a precision is given.
func (d directive) zeroless() directive {
	if d.precision != "" {
		d.flags = strings.ReplaceAll(d.flags, "0", "")
	}
	return d
}

func (d directive) integer(out []byte, n int64) []byte {
	d.flags = strings.ReplaceAll(d.flags, "#", "")
	return fmt.Appendf(out, d.zeroless().with("d"), n)
}

func (d directive) unsigned(out []byte, verb byte, n uint64) []byte {
	d.flags = strings.NewReplacer("+", "", " ", "").Replace(d.flags)
	if n == 0 {
		d.flags = strings.ReplaceAll(d.flags, "#", "")
	}
	return fmt.Appendf(out, d.zeroless().with(string(verb)), n)
}

func (d directive) float(out []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.precision = ""
		d.flags = strings.ReplaceAll(d.flags, "0", "")
		text := string(AppendNumber(nil, f, shownDigits))
		if strings.Contains(d.flags, "+") && text[0] != '-' {
			text = "+" + text
		}
		if d.verb < 'a' {
			text = strings.ToUpper(text)
		}
		return d.text(out, text)
	}
	if d.precision == "" && (d.verb == 'g' || d.verb == 'G') {
		d.precision = ".6" // package fmt takes the shortest
	}
	return fmt.Appendf(out, d.with(string(d.verb)), f)
}

// text appends bytes with width and precision. Package fmt counts runes.
func (d directive) text(out []byte, s string) []byte {
	if d.precision != "" {
		most := 0
		for _, c := range d.precision[1:] {
			most = most*10 + int(c-'0')
		}
		s = s[:min(len(s), most)]
	}
	width := 0
	for _, c := range d.width {
		width = width*10 + int(c-'0')
	}
	pad := strings.Repeat(" ", max(width-len(s), 0))
	if strings.Contains(d.flags, "-") {
		return append(append(out, s...), pad...)
	}
	return append(append(out, pad...), s...)
}

// appendQuoted appends a string as Lua reads it.
func appendQuoted(out []byte, s string) []byte {
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			out = append(out, '\\', c)
		case '\r':
			out = append(out, `\r`...)
		case 0:
			out = append(out, `\000`...)
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
