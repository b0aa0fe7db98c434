package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// patience bounds every wait of a test; it is not a measurement.
var patience = testrun.Patience(time.Minute)

// inMemory returns options of a store that rarely needs its device, cold those of a store with
// little memory.
func inMemory() kv.Options {
	return kv.Options{Device: device.NewMemory(), Memory: 64 << 20, Records: 1 << 16, CountKeys: true, KeyClass: KeyClass, Inner: Inner, Orphans: Orphans}
}

func cold() kv.Options {
	return kv.Options{Device: device.NewMemory(), Memory: 64 << 10, PageSize: 16 << 10, Records: 1 << 10, QueueDepth: 16, CountKeys: true, KeyClass: KeyClass, Inner: Inner, Orphans: Orphans}
}

var quietly = slog.New(slog.DiscardHandler)

// start serves a store until the test ends.
func start(t testing.TB, store kv.Options, opts Options) (*Server, string) {
	t.Helper()
	store.Logger, opts.Logger = quietly, quietly
	st, err := kv.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(st, opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		shutDown(t, s, served)
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, ln.Addr().String()
}

// shutDown ends a server, and receives what its Serve returns.
func shutDown(t testing.TB, s *Server, served <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := testrun.Receive(t, "Serve ends", served); err != nil {
		t.Error(err)
	}
}

// peer is the client's end of a connection. It reads replies without a client library.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return dialed(t, conn)
}

// dialed returns the peer of a connection, which is closed when the test ends.
func dialed(t testing.TB, conn net.Conn) *peer {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t, conn, bufio.NewReader(conn)}
	p.goOn()
	return p
}

// goOn renews the peer's deadline.
func (p *peer) goOn() {
	p.t.Helper()
	if err := p.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
}

// encode returns a command as an array of bulk strings.
func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (p *peer) send(raw string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, raw); err != nil {
		p.t.Fatal(err)
	}
}

// do sends one command and returns its reply.
func (p *peer) do(args ...string) string {
	p.t.Helper()
	p.send(encode(args...))
	return p.reply()
}

// reply reads one reply and formats it: +OK, -ERR text, :1, ,1.5, "bulk", nil, null (of RESP3),
// nil[], [an array], {a map}, text"verbatim", push[a message].
func (p *peer) reply() string {
	p.t.Helper()
	text, err := readReply(p.in)
	if err != nil {
		p.t.Fatalf("reading a reply: %v", err)
	}
	return text
}

var errBadReply = errors.New("this is no reply")

func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return "", fmt.Errorf("%w: line %q", errBadReply, line)
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ':', '#', ',', '(':
		return string(kind) + line, nil
	case '_':
		return "null", nil
	}
	n, err := strconv.Atoi(line)
	if err != nil {
		return "", fmt.Errorf("%w: length: %w", errBadReply, err)
	}
	switch kind {
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return "", err
		}
		text := strconv.Quote(string(b[:n]))
		if kind == '=' {
			text = "text" + text
		}
		return text, nil
	case '*', '%', '~', '>':
		if n < 0 {
			return "nil[]", nil
		}
		brackets := "[]"
		if kind == '%' {
			n, brackets = 2*n, "{}"
		}
		elements := make([]string, n)
		for i := range elements {
			if elements[i], err = readReply(in); err != nil {
				return "", err
			}
		}
		text := brackets[:1] + strings.Join(elements, " ") + brackets[1:]
		if kind == '>' {
			text = "push" + text
		}
		return text, nil
	}
	return "", fmt.Errorf("%w: %q", errBadReply, line)
}

// expectEnd checks that the server has closed the connection.
func (p *peer) expectEnd() {
	p.t.Helper()
	if b, err := p.in.ReadByte(); err == nil {
		p.t.Errorf("the connection goes on with %q", b)
	} else if isTimeout(err) {
		p.t.Error("the connection is still open")
	}
}
