package tcp

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// FuzzDecode checks that decoding does not read outside its input, and that encoding a decoded
// frame returns the input.
func FuzzDecode(f *testing.F) {
	f.Add(append(appendReply(nil, statusOK, 5), "bytes"...))
	f.Add(appendHeader(nil, &frame{kind: kindRead, handle: 1, offset: 1 << 40, length: 8}))
	f.Add(append(appendHeader(nil, &frame{kind: kindWriteImm, flags: flagMore, length: 3, imm: 9}), "abc"...))
	f.Add(append(appendHeader(nil, &frame{kind: kindImport, length: tokenSize}), make([]byte, tokenSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d frame
		n, err := decode(b, &d)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if n == 0 {
			return
		}
		if n > len(b) || n > maxFrame || len(d.body) > n {
			t.Fatalf("%d bytes of %d, body of %d", n, len(b), len(d.body))
		}
		again := append(appendHeader(nil, &d), d.body...)
		if d.kind == kindReply {
			again = append(appendReply(nil, d.flags, len(d.body)), d.body...)
		}
		same := bytes.Clone(b[:n])
		same[2], same[3] = 0, 0 // unused bytes
		if !bytes.Equal(again, same) {
			t.Fatalf("%x decodes and encodes as %x", same, again)
		}
	})
}

// FuzzPeer sends anything after a valid greeting. The peer is answered or disconnected. The
// region does not change, unless the peer names a lent handle, which it cannot without the
// token.
func FuzzPeer(f *testing.F) {
	p := Open(Options{})
	f.Cleanup(func() { _ = p.Close() })
	l, err := p.Listen("", 4)
	if err != nil {
		f.Fatal(err)
	}
	r, err := p.Alloc(4096)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendHeader(nil, &frame{kind: kindRead, offset: -1, length: maxFragment}))
	f.Add(append(appendHeader(nil, &frame{kind: kindWrite, length: 3}), "abc"...))
	f.Add(appendReply(nil, statusOK, 0))
	f.Add(appendHeader(nil, &frame{kind: kindCredit, length: 1 << 31}))
	f.Add(appendHeader(nil, &frame{kind: kindLent, offset: -5, imm: 1}))
	f.Add(appendHeader(nil, &frame{kind: kindData, offset: -5, imm: 1}))
	f.Add(appendHeader(nil, &frame{kind: kindFound, offset: 1, length: 1 << 31, imm: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write(append([]byte(magic), 0)); err != nil {
			t.Fatal(err)
		}
		request, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q, err := request.Accept(nil, fabric.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(b) // the connection may be closed before the end
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		if err := q.Wait(t.Context()); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.Bytes(), make([]byte, 4096)) {
			t.Fatal("a stranger wrote to a region")
		}
	})
}

// A peer's answer lies behind the question and in the region, and is not empty there but at its end.
func TestSpanCheck(t *testing.T) {
	const offset, size = 10, 100
	for s, ok := range map[span]bool{
		{10, 11}: true, {50, 100}: true, {100, 100}: true, {50, 50}: true,
		{9, 20}: false, {50, 101}: false, {10, 10}: false, {60, 50}: false, {100, 101}: false,
		{math.MaxInt64, math.MinInt64}: false, {-1, -1}: false,
	} {
		if err := s.check(offset, size); (err == nil) != ok {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// After a question for a region's data, which takes long, others get their turn.
func TestDataIsAskedForInTurn(t *testing.T) {
	_, l := listening(t, Options{})
	_, q := stranger(t, l)
	r := reader{pair: q}
	question := appendHeader(nil, &frame{kind: kindData, imm: 1})
	for b := bytes.Repeat(question, 3); len(b) > 0; b = b[len(question):] {
		if used, more, err := r.handle(b); used != len(question) || !more || err != nil {
			t.Fatalf("%d of %d bytes at once, more %t, %v", used, len(b), more, err)
		}
	}
	if _, more, err := r.handle(appendHeader(nil, &frame{kind: kindNop})); more || err != nil {
		t.Errorf("more after another frame: %t, %v", more, err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// What TLS answers to a peer that does not read is bounded.
func TestUnreadTLSIsBounded(t *testing.T) {
	_, l := listening(t, Options{})
	_, q := stranger(t, l)
	w := &wire{}
	w.out.Store(q.out)
	written, err := 0, error(nil)
	for err == nil && written < 64<<20 { // the stranger reads nothing
		var n int
		n, err = w.Write(make([]byte, 64<<10))
		written += n
	}
	if !errors.Is(err, errFrame) {
		t.Errorf("after %d bytes: %v", written, err)
	}
	_ = q.Close() // with bytes that nobody has read
}

// TestMalformedIsCounted sends invalid frames.
func TestMalformedIsCounted(t *testing.T) {
	for name, b := range map[string][]byte{
		"unknown kind":     bytes.Repeat([]byte{99}, headerSize),
		"reply to nothing": appendReply(nil, statusOK, 0),
		"body too long":    appendHeader(nil, &frame{kind: kindWrite, length: maxFragment + 1}),
		"read too long":    appendHeader(nil, &frame{kind: kindRead, length: 1 << 31}),
		"short token":      appendHeader(nil, &frame{kind: kindImport, length: 3}),
		"endless requests": bytes.Repeat(appendHeader(nil, &frame{kind: kindNop}), 8<<20/headerSize),
	} {
		t.Run(name, func(t *testing.T) {
			p := Open(Options{})
			defer func() { _ = p.Close() }()
			l, err := p.Listen("", 4)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write(append([]byte(magic), 0)); err != nil {
				t.Fatal(err)
			}
			request, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q, err := request.Accept(nil, fabric.ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(b)
			_ = c.(*net.TCPConn).CloseWrite()
			if err := q.Wait(t.Context()); !errors.Is(err, fabric.ErrDisconnected) {
				t.Fatal(err)
			}
			if want := name != "endless requests"; (p.Malformed() == 1) != want {
				t.Errorf("%d malformed, ended with %v", p.Malformed(), q.Err())
			}
		})
	}
}
