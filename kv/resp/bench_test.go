package resp

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// pipeline returns a batch of n commands, and the length of its replies.
func pipeline(command string, n, valueSize int) (requests []byte, replies int) {
	value := strings.Repeat("v", valueSize)
	var b strings.Builder
	for i := range n {
		key := fmt.Sprintf("key:%012d", i)
		switch command {
		case "SET":
			b.WriteString(encode("SET", key, value))
			replies += len("+OK\r\n")
		case "GET":
			b.WriteString(encode("GET", key))
			replies += len(fmt.Sprintf("$%d\r\n%s\r\n", valueSize, value))
		case "SETNX":
			b.WriteString(encode("SETNX", key, value))
			replies += len(":0\r\n")
		}
	}
	return []byte(b.String()), replies
}

// exchange sends a batch and reads its replies into buf.
func (p *peer) exchange(requests, buf []byte) {
	if _, err := p.conn.Write(requests); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(p.conn, buf); err != nil {
		p.t.Fatal(err)
	}
}

// BenchmarkServer measures one connection over loopback. An operation is a command.
func BenchmarkServer(b *testing.B) {
	for _, valueSize := range []int{8, 1024} {
		for _, depth := range []int{1, 64} {
			for _, command := range []string{"SET", "GET", "SETNX"} {
				b.Run(fmt.Sprintf("op=%s/value=%d/pipeline=%d", command, valueSize, depth), func(b *testing.B) {
					_, addr := start(b, inMemory(), Options{})
					p := dial(b, addr)
					load, n := pipeline("SET", depth, valueSize)
					p.exchange(load, make([]byte, n))
					requests, n := pipeline(command, depth, valueSize)
					buf := make([]byte, n)
					b.ReportAllocs()
					b.ResetTimer()
					for i := 0; i < b.N; i += depth {
						p.exchange(requests, buf)
					}
				})
			}
		}
	}
}

// BenchmarkParser measures the parser. An operation is a command.
func BenchmarkParser(b *testing.B) {
	const depth = 64
	data, _ := pipeline("SET", depth, 8)
	p := parser{maxBulk: DefaultMaxBulk, maxRequest: maxRequest}
	b.ReportAllocs()
	for i := 0; i < b.N; i += depth {
		for rest := data; len(rest) > 0; {
			size, err := p.next(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[size:]
		}
	}
}

// TestNoAllocations: in the steady state a command allocates nothing, on either side, in any
// database.
func TestNoAllocations(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	for _, db := range []string{"0", "1"} {
		t.Run(db, func(t *testing.T) {
			p := dial(t, addr)
			p.last("+OK", "SELECT "+db)
			p.allocateNothing()
		})
	}
}

func (p *peer) allocateNothing() {
	t := p.t
	const depth = 64
	for _, command := range []string{"SET", "GET", "SETNX"} {
		for _, valueSize := range []int{8, 1024} {
			load, n := pipeline("SET", depth, valueSize)
			p.exchange(load, make([]byte, n))
			requests, n := pipeline(command, depth, valueSize)
			buf := make([]byte, n)
			for range 100 { // until all buffers have reached their size
				p.exchange(requests, buf)
			}
			const most = depth / 8 // allows for the network, the store and the runtime
			perBatch := float64(depth)
			for tries := 0; perBatch >= most && tries < 10; tries++ { // a busy machine splits batches
				perBatch = min(perBatch, testing.AllocsPerRun(100, func() { p.exchange(requests, buf) }))
			}
			if perBatch >= most {
				t.Errorf("%s of %d bytes: %v allocations in a batch of %d", command, valueSize, perBatch, depth)
			}
		}
	}
}
