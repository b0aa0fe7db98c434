package blackbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Kinds of replies. Null is a missing value or a missing array.
const (
	Simple  = '+'
	Error   = '-'
	Integer = ':'
	Bulk    = '$'
	Array   = '*'
	Null    = '_'
)

// Reply is a reply of the Redis protocol, version 2.
type Reply struct {
	Kind  byte
	Text  string  // of all kinds but Array and Null
	Items []Reply // of Array
}

var (
	ok     = Reply{Kind: Simple, Text: "OK"}
	queued = Reply{Kind: Simple, Text: "QUEUED"}
	null   = Reply{Kind: Null}
)

func integer(n int64) Reply { return Reply{Kind: Integer, Text: strconv.FormatInt(n, 10)} }
func bulk(s string) Reply   { return Reply{Kind: Bulk, Text: s} }

// Equal compares replies.
func (r Reply) Equal(other Reply) bool {
	return r.Kind == other.Kind && r.Text == other.Text && slices.EqualFunc(r.Items, other.Items, Reply.Equal)
}

// String formats the reply; long texts are shortened.
func (r Reply) String() string {
	switch r.Kind {
	case Null:
		return "null"
	case Array:
		items := make([]string, len(r.Items))
		for i, item := range r.Items {
			items[i] = item.String()
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return string(r.Kind) + short(r.Text)
}

// short quotes s, or its beginning and its length.
func short(s string) string {
	const most = 48
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q... of %d bytes", s[:most], len(s))
}

// Conn is a client connection.
type Conn struct {
	net.Conn
	in *bufio.Reader
}

// NewConn returns a client connection over conn.
func NewConn(conn net.Conn) *Conn { return &Conn{conn, bufio.NewReader(conn)} }

// AppendCommand appends a command in the protocol's encoding.
func AppendCommand(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// Do sends a command and reads its reply.
func (c *Conn) Do(args ...string) (Reply, error) {
	if _, err := c.Write(AppendCommand(nil, args...)); err != nil {
		return Reply{}, err
	}
	return c.ReadReply()
}

// ReadReply reads the next reply. If the input is not a valid reply, the error is a
// *ProtocolError.
func (c *Conn) ReadReply() (Reply, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return Reply{}, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return Reply{}, &ProtocolError{line}
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case Simple, Error:
		return Reply{Kind: kind, Text: text}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return Reply{}, &ProtocolError{line}
	case kind == Integer:
		return Reply{Kind: kind, Text: text}, nil
	case n == -1 && (kind == Bulk || kind == Array):
		return null, nil
	case kind == Bulk && n >= 0 && n <= 1<<30:
		value := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, value); err != nil {
			return Reply{}, err
		}
		if string(value[n:]) != "\r\n" {
			return Reply{}, &ProtocolError{line + string(value)}
		}
		return Reply{Kind: kind, Text: string(value[:n])}, nil
	case kind == Array && n >= 0 && n <= 1<<20:
		r := Reply{Kind: kind, Items: make([]Reply, n)}
		for i := range r.Items {
			if r.Items[i], err = c.ReadReply(); err != nil {
				return Reply{}, err
			}
		}
		return r, nil
	}
	return Reply{}, &ProtocolError{line}
}

// ProtocolError reports input that is not a valid reply.
type ProtocolError struct{ Got string }

func (e *ProtocolError) Error() string { return "not a reply of the protocol: " + short(e.Got) }
