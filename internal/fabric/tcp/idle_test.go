package tcp_test

import (
	"crypto/tls"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/testrun"
)

// Connections that have moved much data and are idle keep no large buffers.
func TestIdleConnections(t *testing.T) {
	testrun.SkipRaced(t, "the race detector's own memory is counted")
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": fabrictest.TLS(t)} {
		t.Run(name, func(t *testing.T) {
			const pairs, most = 50, 192 << 10
			before := heap()
			open := func() fabric.Provider { return tcp.Open(tcp.Options{TLS: config, Silence: 15 * time.Second}) }
			server, client := open(), open()
			defer func() {
				if err := errors.Join(client.Close(), server.Close()); err != nil {
					t.Error(err)
				}
			}()
			region, err := server.Alloc(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			l, err := server.Listen("", 8)
			if err != nil {
				t.Fatal(err)
			}
			all := make([]fabric.QueuePair, 0, 2*pairs)
			for range pairs {
				go func() {
					if r, err := l.Accept(t.Context()); err == nil {
						_, _ = r.Accept(nil, fabric.ReadWrite) // Dial reports a failure
					}
				}()
				q, err := client.Dial(t.Context(), l.Addr(), nil, 8)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, q)
				exchange(t, q, region)
			}
			for deadline := time.Now().Add(testrun.Patience(time.Minute)); ; time.Sleep(10 * time.Millisecond) {
				each := (heap() - before) / pairs
				if each < most {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d bytes for both ends of an idle connection, want less than %d", each, most)
				}
			}
			runtime.KeepAlive(all)
		})
	}
}

// heap returns the bytes in use after a garbage collection that empties pools as well.
func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// exchange writes and reads a mebibyte.
func exchange(t *testing.T, q fabric.QueuePair, region fabric.Region) {
	t.Helper()
	r, err := q.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256<<10)
	for i := range uint64(8) {
		if i%2 == 0 {
			err = q.Write(buf, r, 0, i)
		} else {
			err = q.Read(buf, r, 0, i)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	var done [8]fabric.Completion
	for n := 0; n < 8; {
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		n += q.Poll(done[:])
	}
}
