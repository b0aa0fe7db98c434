package resp

import "bytes"

// inline reads a command that was typed as a line: words between blanks, in
// quotes where they have blanks themselves. Quotes and escapes are taken away
// in place, for what is left is never longer.
func (p *parser) inline(data []byte) (size int, err error) {
	newline := bytes.IndexByte(data[:min(len(data), maxLine)], '\n')
	if newline < 0 {
		if len(data) >= maxLine {
			return 0, protocolError("too big inline request")
		}
		return 0, nil
	}
	line := data[:newline]
	for at := 0; ; {
		for at < len(line) && isBlank(line[at]) {
			at++
		}
		if at == len(line) {
			return newline + 1, nil
		}
		start := at
		end, after, ok := unquote(line, start)
		if !ok {
			return 0, protocolError("unbalanced quotes in request")
		}
		p.args = append(p.args, span{int32(start), int32(end)})
		at = after
	}
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// unquote writes the word that begins at start over itself, up to end. after is
// where the line goes on.
func unquote(line []byte, start int) (end, after int, ok bool) {
	end = start
	put := func(c byte) {
		line[end] = c
		end++
	}
	var quote byte // the one that is open
	for at := start; at < len(line); at++ {
		c := line[at]
		switch {
		case quote == 0 && (isBlank(c) || c == 0):
			return end, at + 1, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote && quote != 0:
			// Nothing but a blank may follow.
			if at+1 < len(line) && !isBlank(line[at+1]) {
				return 0, 0, false
			}
			return end, at + 1, true
		case quote == '\'' && c == '\\' && at+1 < len(line) && line[at+1] == '\'':
			put('\'')
			at++
		case quote == '"' && c == '\\' && at+3 < len(line) && line[at+1] == 'x' && isHex(line[at+2]) && isHex(line[at+3]):
			put(unhex(line[at+2])<<4 | unhex(line[at+3]))
			at += 3
		case quote == '"' && c == '\\' && at+1 < len(line):
			at++
			put(unescape(line[at]))
		default:
			put(c)
		}
	}
	return end, len(line), quote == 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}
