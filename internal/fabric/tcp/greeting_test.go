package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// FuzzGreeting connects and sends anything. Without a valid hello the connection is closed,
// otherwise it is offered to Accept. The listener continues.
func FuzzGreeting(f *testing.F) {
	p := Open(Options{})
	l, err := p.Listen("", 4)
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			_ = r.Reject("not today")
		}
	}()
	f.Cleanup(func() {
		_ = p.Close()
		<-served
	})
	f.Add([]byte(magic + "\x05hello"))
	f.Add([]byte(magic + "\xff"))
	f.Add([]byte("redytcp9\x00"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Write(b) // the connection may be closed before the end
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		if _, err := p.Dial(context.Background(), l.Addr(), nil, 1); !errors.Is(err, fabric.ErrRejected) {
			t.Fatalf("the listener does not answer: %v", err)
		}
	})
}
