package tcp_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/tcp"
)

func TestConformanceTLS(t *testing.T) {
	config := fabrictest.TLS(t)
	fabrictest.Run(t, func() fabric.Provider { return tcp.Open(tcp.Options{TLS: config}) })
}

// TestTLSRefuses dials in each wrong way.
func TestTLSRefuses(t *testing.T) {
	config, other := fabrictest.TLS(t), fabrictest.TLS(t)
	nobody := config.Clone()
	nobody.Certificates = nil
	elsewhere := config.Clone()
	elsewhere.ServerName = "example.com"
	server := tcp.Open(tcp.Options{TLS: config})
	defer func() { _ = server.Close() }()
	l, err := server.Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*tls.Config{
		"no TLS": nil, "another authority": other, "no certificate": nobody, "another name": elsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			client := tcp.Open(tcp.Options{TLS: c})
			defer func() { _ = client.Close() }()
			if _, err := client.Dial(t.Context(), l.Addr(), nil, 4); err == nil {
				t.Error("connected")
			}
		})
	}
	// A host without TLS does not answer a client with TLS.
	plain := tcp.Open(tcp.Options{})
	defer func() { _ = plain.Close() }()
	l, err = plain.Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	client := tcp.Open(tcp.Options{TLS: config})
	defer func() { _ = client.Close() }()
	if _, err := client.Dial(t.Context(), l.Addr(), nil, 4); err == nil {
		t.Error("connected to a listener without TLS")
	}
}

// TestTLSHides checks that the bytes on the wire are encrypted.
func TestTLSHides(t *testing.T) {
	config := fabrictest.TLS(t)
	for name, c := range map[string]*tls.Config{"plain": nil, "TLS": config} {
		t.Run(name, func(t *testing.T) {
			const secret = "nobody but the two of us"
			tap := newTap(t)
			server, client := tcp.Open(tcp.Options{TLS: c}), tcp.Open(tcp.Options{TLS: c})
			defer func() { _ = errors.Join(client.Close(), server.Close()) }()
			l, err := server.Listen("", 4)
			if err != nil {
				t.Fatal(err)
			}
			go tap.join(l.Addr())
			go func() {
				if r, err := l.Accept(t.Context()); err == nil {
					_, _ = r.Accept(nil, fabric.ReadWrite)
				}
			}()
			q, err := client.Dial(t.Context(), tap.Addr().String(), nil, 4)
			if err != nil {
				t.Fatal(err)
			}
			region, err := server.Alloc(64)
			if err != nil {
				t.Fatal(err)
			}
			remote, err := q.Import(t.Context(), region.Token())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(q.Write([]byte(secret), remote, 0, 1), q.Submit(), q.Wait(t.Context())); err != nil {
				t.Fatal(err)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if seen := tap.saw(secret); seen == (c != nil) {
				t.Errorf("the bytes were seen: %v", seen)
			}
		})
	}
}

// tap is a listener that forwards one connection and records what the dialer sends.
type tap struct {
	net.Listener
	heard chan []byte
}

func newTap(t *testing.T) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &tap{Listener: l, heard: make(chan []byte, 1)}
}

func (p *tap) join(addr string) {
	var heard []byte
	defer func() { p.heard <- heard }()
	dialer, err := p.Accept()
	if err != nil {
		return
	}
	defer func() { _ = dialer.Close() }()
	there, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }()
	go func() { _, _ = io.Copy(dialer, there) }()
	buf := make([]byte, 4096)
	for {
		n, err := dialer.Read(buf)
		heard = append(heard, buf[:n]...)
		if _, e := there.Write(buf[:n]); err != nil || e != nil {
			return
		}
	}
}

// saw reports whether the dialer sent secret, after the connection has ended.
func (p *tap) saw(secret string) bool { return strings.Contains(string(<-p.heard), secret) }

func BenchmarkReadTLS(b *testing.B) {
	config := fabrictest.TLS(b)
	fabrictest.Benchmark(b, func() fabric.Provider { return tcp.Open(tcp.Options{TLS: config}) })
}
