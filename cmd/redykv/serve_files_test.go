package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCrowd has idle clients take all places of a server that commits each write.
func cmdCrowd(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "crowd ADDR N ADMITTED")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	most, err := strconv.Atoi(args[2])
	ts.Check(err)
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", args[0])
		ts.Check(err)
		ts.Defer(func() { _ = conn.Close() })
		ts.Check(conn.SetDeadline(time.Now().Add(scriptTimeout)))
		return conn
	}
	// ping returns the reply to PING, or to the connection.
	ping := func(conn net.Conn) string {
		_, _ = fmt.Fprint(conn, "PING\r\n") // the server may have closed the connection
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return strings.TrimSpace(line)
	}
	writer, admitted := connect(), 1
	if got := ping(writer); got != "+PONG" {
		ts.Fatalf("the writer: %s", got)
	}
	for range n {
		if ping(connect()) == "+PONG" {
			admitted++
		}
	}
	if admitted != most {
		ts.Fatalf("%d clients were admitted, want %d", admitted, most)
	}
	if told, err := io.ReadAll(connect()); string(told) != "-ERR max number of clients reached\r\n" {
		ts.Fatalf("one more client: %q, %v", told, err)
	}
	replies := bufio.NewReader(writer)
	for i := range 100 {
		_, err := fmt.Fprintf(writer, "SET key%d %d\r\n", i, i)
		ts.Check(err)
		if line, err := replies.ReadString('\n'); line != "+OK\r\n" {
			ts.Fatalf("the writer: %q, %v", line, err)
		}
	}
}

// TestClientsWithin: clients leave the store's descriptors free.
func TestClientsWithin(t *testing.T) {
	for _, tc := range []struct {
		wanted int
		limit  uint64
		stored int
		want   int // 0: an error
	}{
		{10_000, 1 << 20, 5000, 10_000},
		{10_000, 1 << 63, 0, 10_000},
		{10_000, 1024, 0, 600},
		{10_000, 1024, 100, 525},
		{10_000, 96, 0, 12},
		{8, 96, 0, 8},
		{10_000, 65, 0, 1},
		{10_000, 64, 0, 0},
		{1, 0, 0, 0},
		{10_000, 1024, 800, 0},
	} {
		if n, err := clientsWithin(tc.limit, tc.wanted, tc.stored); n != tc.want || (err != nil) != (tc.want == 0) {
			t.Errorf("%+v: %d, %v", tc, n, err)
		}
	}
}
