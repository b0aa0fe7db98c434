package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRedis sends one command and QUIT, so that the reply ends with the
// connection.
func cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "redis ADDR REPLY-REGEXP ARG...")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	conn, err := net.Dial("tcp", args[0])
	ts.Check(err)
	defer func() { _ = conn.Close() }() // read to its end, or given up
	ts.Check(conn.SetDeadline(time.Now().Add(scriptTimeout)))
	w := bufio.NewWriter(conn)
	fmt.Fprintf(w, "*%d\r\n", len(args)-2)
	for _, arg := range args[2:] {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(arg), arg)
	}
	fmt.Fprint(w, "QUIT\r\n")
	ts.Check(w.Flush())
	reply, err := io.ReadAll(conn)
	ts.Check(err)
	text := strings.TrimSuffix(strings.ReplaceAll(string(reply), "\r\n", "\n"), "\n+OK\n")
	if !re.MatchString(text) {
		ts.Fatalf("reply %q, want one like %q", text, args[1])
	}
}
