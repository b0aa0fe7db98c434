package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

func TestGreeting(t *testing.T) {
	for _, private := range []string{"", "p", strings.Repeat("p", fabric.MaxPrivate)} {
		from := Peer{1, 15: 2}
		peer, got, err := DecodeHello(AppendHello(nil, from, []byte(private)))
		if err != nil || string(got) != private || peer != from {
			t.Errorf("private data %q of %v came as %q of %v, %v", private, from, got, peer, err)
		}
	}
	for _, v := range []Verdict{
		{Accepted: true, Port: 7, Nonce: Nonce{1, 15: 2}, Text: []byte("back")},
		{Text: []byte(strings.Repeat("no ", 300))},
	} {
		got, err := DecodeVerdict(v.Append(nil))
		if err != nil || got.Accepted != v.Accepted || got.Port != v.Port || got.Nonce != v.Nonce ||
			!bytes.Equal(got.Text, v.Text[:min(len(v.Text), maxText)]) {
			t.Errorf("verdict %+v came as %+v, %v", v, got, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	edit := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	hello := AppendHello(nil, Peer{1}, []byte("private"))
	for _, b := range [][]byte{nil, hello[1:], edit(hello, 0, 'x'), edit(hello, len(magic)+len(Peer{}), 57), edit(hello, len(hello)-1, 1)} {
		if _, _, err := DecodeHello(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("hello %q: %v", b, err)
		}
	}
	verdict := (&Verdict{Accepted: true, Text: []byte("p")}).Append(nil)
	for _, b := range [][]byte{nil, verdict[1:], edit(verdict, 0, 2), edit(verdict, 19, 57), edit(verdict, 30, 1)} {
		if _, err := DecodeVerdict(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("verdict %q: %v", b, err)
		}
	}
	for _, f := range []Frame{
		{}, {Kind: kinds}, {Kind: Ready, ID: 1}, {Kind: Import, Size: 1}, {Kind: Lent}, {Kind: Lent, Size: -1},
		{Kind: Lent, Size: 2, Address: 1<<64 - 1}, {Kind: Refused, Token: fabric.Token{1}}, {Kind: Revoke, Number: 1},
		{Kind: Credit}, {Kind: Credit, Number: 1 << 20},
	} {
		if _, err := DecodeFrame(f.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("frame %+v: %v", f, err)
		}
	}
}

// Encoding a decoded message returns the input: every message has only one encoding.
func FuzzDecode(f *testing.F) {
	f.Add(AppendHello(nil, Peer{1}, []byte("private")))
	f.Add((&Verdict{Accepted: true, Port: 1, Text: []byte("p")}).Append(nil))
	f.Add((&Frame{Kind: Lent, ID: 1, Number: 2, Key: 3, Address: 4, Size: 5}).Append(nil))
	f.Add((&Frame{Kind: Import, Number: 2, Token: fabric.Token{9}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if peer, private, err := DecodeHello(b); err == nil && !bytes.Equal(AppendHello(nil, peer, private), b) {
			t.Error("hello changed")
		}
		if v, err := DecodeVerdict(b); err == nil && !bytes.Equal(v.Append(nil), b) {
			t.Error("verdict changed")
		}
		if frame, err := DecodeFrame(b); err == nil && !bytes.Equal(frame.Append(nil), b) {
			t.Error("frame changed")
		}
	})
}
