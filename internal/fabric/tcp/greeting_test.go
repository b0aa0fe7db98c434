package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// FuzzGreeting connects and says anything. Who does not say hello is closed, who
// does is asked for, and the listener goes on.
func FuzzGreeting(f *testing.F) {
	p := Open()
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
		_, _ = c.Write(b) // it may be closed in the middle
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		if _, err := p.Dial(context.Background(), l.Addr(), nil, 1); !errors.Is(err, fabric.ErrRejected) {
			t.Fatalf("the listener does not answer: %v", err)
		}
	})
}
