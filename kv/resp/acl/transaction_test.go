package acl

import (
	"bufio"
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestTransactionsAsRedis: a transaction whose user, or whose user's rules, change in it is judged
// command by command, with Redis's replies and log.
func TestTransactionsAsRedis(t *testing.T) {
	them, us := dial(t, "unix", startRedis(t).Options().Addr), dial(t, "tcp", startOurs(t, New()))
	for _, c := range []string{
		"SET x 1; AUTH r r; SET y 1; GET x",
		"SET x 1; AUTH keys r; SET k1 1; SET y 1; GET x; MGET k1 k2; MSET k1 2 x 2",
		"PUBLISH c m; AUTH r r; PUBLISH c m; GET x",
		`SET x 1; AUTH r r; EVAL "return(redis.call('set','y',1))" 0; GET x`,
		"SET x 1; AUTH r wrong; SET y 1",
		"SET x 1; ACL SETUSER default -set; SET y 1; ACL SETUSER default +set; SET z 1",
		"SET x 1; AUTH r r; AUTH default x; SET y 1",
	} {
		commands := append([]string{"FLUSHALL", "ACL LOG RESET", "ACL SETUSER r reset on >r ~* +@all -set", "ACL SETUSER keys reset on >r ~k* &* +@all", "MULTI"},
			strings.Split(c, "; ")...)
		commands = append(commands, "EXEC", "AUTH default x", "MGET x y z k1")
		if want, got := them.replies(commands...), us.replies(commands...); got != want {
			t.Errorf("%s\n  got %q\nRedis %q", c, got, want)
		}
		if want, got := denials(them.replies("ACL LOG")), denials(us.replies("ACL LOG")); got != want {
			t.Errorf("%s\n  the log has %q\nRedis's %q", c, got, want)
		}
	}
}

// peer is a connection without a client library.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, network, addr string) *peer {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testrun.Patience(time.Minute))); err != nil {
		t.Fatal(err)
	}
	return &peer{t, conn, bufio.NewReader(conn)}
}

// replies sends commands as typed, and returns the bytes of all replies.
func (p *peer) replies(commands ...string) string {
	p.t.Helper()
	const end = "this is the end"
	if _, err := io.WriteString(p.conn, strings.Join(commands, "\r\n")+"\r\nECHO \""+end+"\"\r\n"); err != nil {
		p.t.Fatal(err)
	}
	var all strings.Builder
	for {
		line, err := p.in.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%v after %q", err, all.String())
		}
		if line == end+"\r\n" {
			return all.String()
		}
		all.WriteString(line)
	}
}

// expect reads a line.
func (p *peer) expect(want string) {
	p.t.Helper()
	if line, err := p.in.ReadString('\n'); err != nil || line != want+"\r\n" {
		p.t.Fatalf("%q, %v, want %q", line, err, want)
	}
}

// denials returns the fields of ACL LOG that are not times, numbers or addresses.
func denials(log string) string {
	return strings.Join(deniedField.FindAllString(log, -1), " ")
}

var deniedField = regexp.MustCompile(`(count\r\n:\d+|(reason|context|object|username)\r\n\$\d+\r\n[^\r]*)`)

// TestRulesChangeInAPause: a command that waited while clients were paused is judged by the rules of the
// time when it runs.
func TestRulesChangeInAPause(t *testing.T) {
	us := New()
	if err := us.Add("a on nopass ~* +@all"); err != nil {
		t.Fatal(err)
	}
	addr := startOurs(t, us)
	admin := dialOurs(t, addr, "", "")
	p := dial(t, "tcp", addr)
	does := func(line string) {
		t.Helper()
		if err := admin.Do(context.Background(), words(line)...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	does("CLIENT PAUSE 1000000 WRITE")
	if _, err := io.WriteString(p.conn, "AUTH a x\r\nGET k\r\nSET k v\r\n"); err != nil {
		t.Fatal(err)
	}
	p.expect("+OK")
	p.expect("$-1") // sent once SET waits
	does("ACL SETUSER a -set")
	does("CLIENT UNPAUSE")
	p.expect("-NOPERM this user has no permissions to run the 'set' command")
	if n, err := admin.Exists(context.Background(), "k").Result(); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}
