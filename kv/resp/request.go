package resp

import (
	"bytes"
	"fmt"
	"strings"
)

// Limits of a request's framing, as in Redis.
const (
	maxLine = 64 << 10 // bytes of an inline command or of a length
	maxArgs = 1 << 20  // arguments of one command

	// Limits for a client that has not authenticated.
	unauthenticatedArgs = 10
	unauthenticatedBulk = 16 << 10 // bytes of one argument
)

// protocolError describes a violation of the protocol. It ends the connection.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// span is an argument's position, relative to the start of its command.
type span struct{ start, end int32 }

// request is one command with its arguments. It points into the connection's buffer and is
// valid until the next fill.
type request struct {
	data []byte
	args []span
}

func (r request) len() int { return len(r.args) }

// arg returns the i-th argument. The 0th is the command's name.
func (r request) arg(i int) []byte { return r.data[r.args[i].start:r.args[i].end:r.args[i].end] }

// largest returns the length of the longest argument.
func (r request) largest() (n int) {
	for _, a := range r.args {
		n = max(n, int(a.end-a.start))
	}
	return n
}

// parser splits a stream of bytes into commands. It keeps its position in an incomplete
// command, so that every byte is parsed once.
type parser struct {
	maxBulk, maxRequest int
	// unauthenticated is set until the client has authenticated. It limits the size of commands.
	unauthenticated bool

	at      int    // offset in the current command up to which it is parsed
	missing int    // arguments still to be parsed; 0: the first line is next
	args    []span // arguments parsed so far
}

// next continues to parse the command at the start of data. Between calls for one command,
// data may only grow. size is the command's length, or 0 if it is incomplete. A command
// without arguments is to be ignored. After an error the stream cannot be parsed further.
func (p *parser) next(data []byte) (size int, err error) {
	if p.missing == 0 {
		p.args = p.args[:0]
		if len(data) == 0 {
			return 0, nil
		}
		if data[0] != '*' {
			return p.inline(data)
		}
		n, after, err := length(data, 1, countLine, maxArgs)
		if n <= 0 || err != nil {
			return after, err
		}
		if p.unauthenticated && n > unauthenticatedArgs {
			return 0, protocolError("unauthenticated multibulk length")
		}
		p.missing, p.at = int(n), after
	}
	for p.missing > 0 {
		if p.at == len(data) {
			return 0, nil
		}
		if c := data[p.at]; c != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got '%s'", []byte{c}))
		}
		n, after, err := length(data, p.at+1, sizeLine, int64(p.maxBulk))
		switch {
		case err != nil || after == 0:
			return 0, err
		case n < 0:
			return 0, protocolError(sizeLine.invalid)
		case p.unauthenticated && n > unauthenticatedBulk:
			return 0, protocolError("unauthenticated bulk length")
		}
		end := after + int(n)
		if end+len("\r\n") > p.maxRequest {
			return 0, protocolError("too big request")
		}
		if end+len("\r\n") > len(data) {
			return 0, nil
		}
		p.args = append(p.args, span{int32(after), int32(end)})
		p.at = end + len("\r\n")
		p.missing--
	}
	return p.at, nil
}

// lengthLine holds Redis's error texts for a line with a number.
type lengthLine struct{ invalid, tooLong string }

var (
	countLine = lengthLine{"invalid multibulk length", "too big mbulk count string"}
	sizeLine  = lengthLine{"invalid bulk length", "too big bulk count string"}
)

// length parses the number between from and the end of its line. after is the offset of the
// next line, or 0 if the line is incomplete.
func length(data []byte, from int, what lengthLine, most int64) (n int64, after int, err error) {
	line := data[from:min(len(data), from+maxLine)]
	end := bytes.IndexByte(line, '\r')
	switch {
	case end < 0 && len(line) == maxLine:
		return 0, 0, protocolError(what.tooLong)
	case end < 0 || from+end+1 == len(data):
		return 0, 0, nil
	}
	n, ok := parseInt(line[:end])
	if !ok || n > most {
		return 0, 0, protocolError(what.invalid)
	}
	return n, from + end + len("\r\n"), nil
}

// oneLine removes line breaks from an error reply, which consists of one line.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// inline parses a command that was typed as a line: words separated by blanks, and quoted if
// they contain blanks. Quotes and escapes are resolved in place, which never makes a word
// longer.
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
		if p.unauthenticated && len(p.args) == unauthenticatedArgs {
			return 0, protocolError("unauthenticated multibulk length")
		}
		p.args = append(p.args, span{int32(start), int32(end)})
		at = after
	}
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// unquote resolves the word at start in place. The result is line[start:end]; the rest of the
// line begins at after.
func unquote(line []byte, start int) (end, after int, ok bool) {
	end = start
	put := func(c byte) {
		line[end] = c
		end++
	}
	var quote byte // the open quote
	for at := start; at < len(line); at++ {
		c := line[at]
		switch {
		case quote == 0 && (isBlank(c) || c == 0):
			return end, at + 1, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote && quote != 0:
			// A closing quote must be followed by a blank.
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
