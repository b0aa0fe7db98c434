// Package redywire is the protocol of a Redy client and a cache server over a queue pair: the
// private data of the connection, and the messages in its two rings.
//
// A connection for batches of one has no rings: the client reads and writes the regions
// one-sided. Any other connection has a request ring in the server's memory and a response
// ring in the client's, of q slots each. The client writes request batch n into slot n mod q
// of the request ring by one write, with the low bits of n as its immediate. The server
// executes the batch and writes the response batch into the same slot of the response ring in
// the same way. Batches are numbered from 1.
//
// Both sides check what they receive before they use it. A peer can change a ring while it is
// read, so each field is loaded once, and the loaded value is checked and used.
package redywire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/redykv/redykv/internal/fabric"
)

// ErrMalformed means that the peer violated the protocol.
var ErrMalformed = errors.New("redywire: malformed")

// ErrNoRoom means that a server has no room for a connection at the moment. The reason of the
// refusal begins with its text; see [IsNoRoom].
var ErrNoRoom = errors.New("no room")

// IsNoRoom reports whether a dial was refused with ErrNoRoom.
func IsNoRoom(err error) bool {
	return errors.Is(err, fabric.ErrRejected) && strings.Contains(err.Error(), fabric.ErrRejected.Error()+": "+ErrNoRoom.Error())
}

// Limits of a connection's configuration. MaxBatch is table 2's ceiling for
// records of one byte; MaxDepth leaves room above the 16 of the paper's NICs.
const (
	MaxBatch = 4096
	MaxDepth = 64
)

// TicketSize is the length in bytes of the secret that a server gives a cache.
const TicketSize = 16

// Ticket is the secret that admits queue pairs to one grant.
type Ticket [TicketSize]byte

// Reading returns the ticket that admits queue pairs which only read to the same grant, and no call. It
// follows from t, which does not follow from it.
func (t Ticket) Reading() Ticket {
	sum := sha256.Sum256(append([]byte("redy ticket for reading "), t[:]...))
	return Ticket(sum[:TicketSize])
}

const (
	magic       = 0x31594452 // "RDY1"
	helloSize   = 52
	welcomeSize = 20
)

// Hello is the private data with which a client dials.
//
//	0   4  magic
//	4  16  ticket
//	20 16  token of the response ring; zero without rings
//	36  2  batch size b; 1: no rings
//	38  2  queue depth q
//	40  8  owner; 0: none
//	48  4  generation
//
// An owner begins a new generation when one of its connections fails. Before the server
// answers a Hello it ends the owner's connections of earlier generations and executes none of
// their requests any more. So pending requests of a failed connection do not overtake later
// ones. Connections of one generation exist side by side.
type Hello struct {
	Ticket    Ticket
	Responses fabric.Token
	Batch     int
	Depth     int

	Owner      uint64
	Generation uint32
}

// Ringed reports whether the connection has rings.
func (h Hello) Ringed() bool { return h.Batch > 1 }

// Encode returns h as private data.
func (h Hello) Encode() []byte {
	b := make([]byte, helloSize)
	binary.LittleEndian.PutUint32(b, magic)
	copy(b[4:], h.Ticket[:])
	copy(b[20:], h.Responses[:])
	binary.LittleEndian.PutUint16(b[36:], uint16(h.Batch))
	binary.LittleEndian.PutUint16(b[38:], uint16(h.Depth))
	binary.LittleEndian.PutUint64(b[40:], h.Owner)
	binary.LittleEndian.PutUint32(b[48:], h.Generation)
	return b
}

// DecodeHello reads the private data of a connection request.
func DecodeHello(b []byte) (Hello, error) {
	if len(b) < helloSize || binary.LittleEndian.Uint32(b) != magic {
		return Hello{}, fmt.Errorf("%w hello of %d bytes", ErrMalformed, len(b))
	}
	h := Hello{
		Ticket:    Ticket(b[4:20]),
		Responses: fabric.Token(b[20:36]),
		Batch:     int(binary.LittleEndian.Uint16(b[36:])),
		Depth:     int(binary.LittleEndian.Uint16(b[38:])),
		Owner:     binary.LittleEndian.Uint64(b[40:]), Generation: binary.LittleEndian.Uint32(b[48:]),
	}
	if h.Batch < 1 || h.Batch > MaxBatch || h.Depth < 1 || h.Depth > MaxDepth {
		return Hello{}, fmt.Errorf("%w hello: batch %d, depth %d", ErrMalformed, h.Batch, h.Depth)
	}
	return h, nil
}

// Welcome is the private data with which a server accepts.
//
//	0   4  magic
//	4  16  token of the request ring; zero without rings
type Welcome struct {
	Requests fabric.Token
}

// Encode returns w as private data.
func (w Welcome) Encode() []byte {
	b := make([]byte, welcomeSize)
	binary.LittleEndian.PutUint32(b, magic)
	copy(b[4:], w.Requests[:])
	return b
}

// DecodeWelcome reads the private data of an accepted connection.
func DecodeWelcome(b []byte) (Welcome, error) {
	if len(b) < welcomeSize || binary.LittleEndian.Uint32(b) != magic {
		return Welcome{}, fmt.Errorf("%w welcome of %d bytes", ErrMalformed, len(b))
	}
	return Welcome{Requests: fabric.Token(b[4:20])}, nil
}
