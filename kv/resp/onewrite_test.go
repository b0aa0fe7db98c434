package resp

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// counted counts the reads and writes of the server's connections.
type counted struct {
	net.Listener
	reads, writes *atomic.Int64
}

type countedConn struct {
	net.Conn
	of counted
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn, c}, nil
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.of.reads.Add(1)
	}
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	c.of.writes.Add(1)
	return c.Conn.Write(b)
}

// TestOneWriteForABatch: commands that arrive together are answered with one write.
func TestOneWriteForABatch(t *testing.T) {
	const depth, rounds = 64, 50
	of := counted{listen(t), new(atomic.Int64), new(atomic.Int64)}
	startOn(t, of, Options{})
	p := dial(t, of.Addr().String())
	commands := []string{
		encode("SET", "a", "1"), encode("GET", "a"), encode("GET", "none"), encode("INCR", "n"), encode("MGET", "a", "n"),
		encode("HSET", "h", "f", "1"), encode("PING"), encode("NONSENSE"), encode("DEL", "n", "h"),
	}
	var pipeline strings.Builder
	for i := range depth {
		pipeline.WriteString(commands[i%len(commands)])
	}
	for range rounds {
		p.send(pipeline.String())
		for range depth {
			p.reply()
		}
	}
	reads, writes := of.reads.Load(), of.writes.Load()
	t.Logf("%d commands came with %d reads", depth*rounds, reads)
	if writes > reads {
		t.Errorf("%d writes for what came with %d reads", writes, reads)
	}
}
