package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRedis sends one command and QUIT. The reply ends with the connection.
func cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "redis ADDR REPLY-REGEXP ARG...")
	conn, err := net.Dial("tcp", args[0])
	ts.Check(err)
	ask(ts, conn, args[1], args[2:])
}

// cmdRedisTLS is cmdRedis over TLS.
func cmdRedisTLS(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 5, "rediss CA CERT ADDR REPLY-REGEXP ARG...")
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(ts.ReadFile(args[0] + ".cert"))) {
		ts.Fatalf("%s.cert: no certificate", args[0])
	}
	config := &tls.Config{RootCAs: authorities}
	if args[1] != "-" {
		own, err := tls.LoadX509KeyPair(ts.MkAbs(args[1]+".cert"), ts.MkAbs(args[1]+".key"))
		ts.Check(err)
		config.Certificates = []tls.Certificate{own}
	}
	conn, err := tls.Dial("tcp", args[2], config)
	if err != nil {
		answered(ts, err.Error(), args[3])
		return
	}
	ask(ts, conn, args[3], args[4:])
}

// ask sends a command and QUIT, and matches the reply, or the error instead of it, with an
// expression.
func ask(ts *testscript.TestScript, conn net.Conn, expression string, command []string) {
	answered(ts, reply(ts, conn, command), expression)
}

// reply sends a command and QUIT, and returns the reply, or the error instead of it.
func reply(ts *testscript.TestScript, conn net.Conn, command []string) string {
	defer func() { _ = conn.Close() }() // read to its end, or failed
	ts.Check(conn.SetDeadline(time.Now().Add(scriptTimeout)))
	w := bufio.NewWriter(conn)
	for _, command := range [][]string{command, {"QUIT"}} {
		fmt.Fprintf(w, "*%d\r\n", len(command))
		for _, arg := range command {
			fmt.Fprintf(w, "$%d\r\n%s\r\n", len(arg), arg)
		}
	}
	ts.Check(w.Flush())
	all, err := io.ReadAll(conn)
	text := strings.TrimSuffix(strings.ReplaceAll(string(all), "\r\n", "\n"), "\n+OK\n")
	if err != nil {
		text += err.Error()
	}
	return text
}

func answered(ts *testscript.TestScript, text, expression string) {
	re, err := regexp.Compile(expression)
	ts.Check(err)
	if !re.MatchString(text) {
		ts.Fatalf("reply %q, want one like %q", text, expression)
	}
}

type notifyKey struct{}

// cmdNotified acts as the service manager.
func cmdNotified(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 0, "notified [STATE]")
	if len(args) == 0 {
		// A socket's path must be short; the script's directory may be long.
		dir, err := os.MkdirTemp("", "notify")
		ts.Check(err)
		path := dir + "/socket"
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		ts.Check(err)
		ts.Defer(func() {
			_ = conn.Close()
			_ = os.RemoveAll(dir)
		})
		ts.Setenv("NOTIFY_SOCKET", path)
		ts.Value(notifyKey{}).(*notifySocket).conn = conn
		return
	}
	conn := ts.Value(notifyKey{}).(*notifySocket).conn
	ts.Check(conn.SetDeadline(time.Now().Add(scriptTimeout)))
	told := make([]byte, 1000)
	n, err := conn.Read(told)
	ts.Check(err)
	if string(told[:n]) != args[0] {
		ts.Fatalf("told %q, want %q", told[:n], args[0])
	}
}

// notifySocket is the socket of a script's service manager.
type notifySocket struct{ conn *net.UnixConn }
