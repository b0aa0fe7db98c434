// Package wire encodes the messages of the verbs transport's TCP connection, which accompanies
// each queue pair: a greeting, then frames of one size. A message that decodes is well formed;
// its contents are not trusted.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// ErrMalformed is returned for a message that does not follow the protocol.
var ErrMalformed = errors.New("malformed message")

// Nonce is 128 random bits that assign an RDMA connection to its greeting. It is the private
// data of the connection manager's request.
type Nonce [16]byte

// Peer names a dialing process to one listener: connections with the same one share keys. It is
// random, and a secret of the two.
type Peer [16]byte

// Sizes of messages in bytes.
const (
	HelloSize   = len(magic) + len(Peer{}) + 1 + fabric.MaxPrivate
	VerdictSize = 3 + 16 + 1 + maxText
	FrameSize   = 48

	magic   = "redyrdm2"
	maxText = 255 // private data of at most fabric.MaxPrivate, or a reason
)

// AppendHello encodes the dialer's first message: who it is, and its private data, of at most
// fabric.MaxPrivate bytes.
func AppendHello(b []byte, peer Peer, private []byte) []byte {
	b = append(append(append(b, magic...), peer[:]...), byte(len(private)))
	return append(append(b, private...), make([]byte, fabric.MaxPrivate-len(private))...)
}

// DecodeHello decodes b, which is HelloSize bytes.
func DecodeHello(b []byte) (peer Peer, private []byte, err error) {
	if len(b) != HelloSize || string(b[:len(magic)]) != magic {
		return peer, nil, fmt.Errorf("%w: not a greeting", ErrMalformed)
	}
	copy(peer[:], b[len(magic):])
	private, err = text(b[len(magic)+len(peer):], fabric.MaxPrivate)
	return peer, private, err
}

// text decodes a length byte and that many bytes; the rest of b must be zeros.
func text(b []byte, most int) ([]byte, error) {
	n := int(b[0])
	if n > most || !zero(b[1+n:]) {
		return nil, fmt.Errorf("%w: text of %d bytes", ErrMalformed, n)
	}
	return b[1 : 1+n : 1+n], nil
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Verdict is the listener's answer to a greeting.
type Verdict struct {
	Accepted bool
	Port     uint16 // where the connection manager listens, if accepted
	Nonce    Nonce  // to be sent there
	Text     []byte // private data if accepted, else the reason
}

// Append encodes the verdict. It truncates a reason that is too long.
func (v *Verdict) Append(b []byte) []byte {
	s := v.Text[:min(len(v.Text), maxText)]
	accepted := byte(0)
	if v.Accepted {
		accepted = 1
	}
	b = append(b, accepted)
	b = binary.LittleEndian.AppendUint16(b, v.Port)
	b = append(append(b, v.Nonce[:]...), byte(len(s)))
	return append(append(b, s...), make([]byte, maxText-len(s))...)
}

// DecodeVerdict decodes b, which is VerdictSize bytes.
func DecodeVerdict(b []byte) (v Verdict, err error) {
	if len(b) != VerdictSize || b[0] > 1 {
		return v, fmt.Errorf("%w: not a verdict", ErrMalformed)
	}
	v.Accepted, v.Port = b[0] == 1, binary.LittleEndian.Uint16(b[1:])
	copy(v.Nonce[:], b[3:])
	most := maxText
	if v.Accepted {
		most = fabric.MaxPrivate
	}
	v.Text, err = text(b[3+len(v.Nonce):], most)
	return v, err
}

// Kind is the kind of a frame.
type Kind byte

const (
	// Ready: the dialer's end of the RDMA connection is established.
	Ready Kind = iota + 1
	// Import asks for the region with Token; Number is the question's number.
	Import
	// Lent answers Import: the region has Size bytes at Address, Key is its key on this
	// connection, ID names the loan.
	Lent
	// Refused answers Import: no region has this token.
	Refused
	// Failed answers Import: the region could not be registered.
	Failed
	// Revoke asks for loan ID to be released: the region is being closed.
	Revoke
	// Release ends loan ID: no operation uses it any more.
	Release
	// Credit allows the peer Number more immediates.
	Credit
	kinds
)

// Frame is one message after the greeting. Fields that its kind does not use are
// zero.
type Frame struct {
	Kind    Kind
	ID      uint32
	Number  uint32
	Key     uint32
	Address uint64
	Size    int64
	Token   fabric.Token
}

// Append encodes the frame.
func (f *Frame) Append(b []byte) []byte {
	b = append(b, byte(f.Kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, f.ID)
	b = binary.LittleEndian.AppendUint32(b, f.Number)
	b = binary.LittleEndian.AppendUint32(b, f.Key)
	b = binary.LittleEndian.AppendUint64(b, f.Address)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Size))
	return append(b, f.Token[:]...)
}

// DecodeFrame decodes b, which is FrameSize bytes.
func DecodeFrame(b []byte) (f Frame, err error) {
	if len(b) != FrameSize || b[0] == 0 || b[0] >= byte(kinds) || b[1]|b[2]|b[3] != 0 {
		return f, fmt.Errorf("%w: not a frame", ErrMalformed)
	}
	f = Frame{
		Kind: Kind(b[0]), ID: binary.LittleEndian.Uint32(b[4:]), Number: binary.LittleEndian.Uint32(b[8:]),
		Key: binary.LittleEndian.Uint32(b[12:]), Address: binary.LittleEndian.Uint64(b[16:]),
		Size: int64(binary.LittleEndian.Uint64(b[24:])), Token: fabric.Token(b[32:]),
	}
	if f != f.used() {
		return f, fmt.Errorf("%w: kind %d has fields that it does not use", ErrMalformed, f.Kind)
	}
	switch {
	case f.Kind == Lent && (f.Size <= 0 || f.Address+uint64(f.Size) < f.Address):
		return f, fmt.Errorf("%w: region of %d bytes at %#x", ErrMalformed, f.Size, f.Address)
	case f.Kind == Credit && (f.Number == 0 || f.Number > core.ImmEntries):
		return f, fmt.Errorf("%w: credit for %d immediates", ErrMalformed, f.Number)
	}
	return f, nil
}

// used returns f with only the fields that its kind uses.
func (f *Frame) used() Frame {
	u := Frame{Kind: f.Kind}
	switch f.Kind {
	case Import:
		u.Number, u.Token = f.Number, f.Token
	case Lent:
		u.ID, u.Number, u.Key, u.Address, u.Size = f.ID, f.Number, f.Key, f.Address, f.Size
	case Refused, Failed, Credit:
		u.Number = f.Number
	case Revoke, Release:
		u.ID = f.ID
	}
	return u
}
