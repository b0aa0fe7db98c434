package kv

import (
	"errors"
)

// Errors that a caller can act on.
var (
	// ErrNotFound says that the store holds no record of that key.
	ErrNotFound = errors.New("kv: key not found")
	// ErrQueueFull says that the session has QueueDepth operations under way or
	// completed and not polled: Poll, and submit again.
	ErrQueueFull = errors.New("kv: session queue full")
	// ErrClosed says that the store or the session was closed.
	ErrClosed = errors.New("kv: closed")
	// ErrBadSize says that a key or value has not the size that the store's
	// records have, or is too large for a page.
	ErrBadSize = errors.New("kv: bad key or value size")
	// ErrCorrupt says that bytes read from the device are not what was written.
	ErrCorrupt = errors.New("kv: corrupt data")
	// ErrMismatch says that the store on the device was made with other options.
	ErrMismatch = errors.New("kv: options do not match the store")
)

// OpKind is what an Op does.
type OpKind uint8

const (
	// OpRead looks the key up and puts its value into Op.Value.
	OpRead OpKind = iota
	// OpUpsert stores Op.Value under the key.
	OpUpsert
	// OpRMW replaces the key's value by what Op.Modify makes of it.
	OpRMW
	// OpDelete removes the key, whether it is there or not.
	OpDelete
)

// Modifier computes a new value: it appends it to dst and returns the result.
// old is the present value, or nil with found false where the key has none; it
// must not be kept or written to. A Modifier may be called more than once for
// one operation, and holds up eviction while it runs: it must be short, have no
// side effects, and not use the store.
type Modifier func(dst, old []byte, found bool) []byte

// Op is one operation. The caller owns it, and its slices, except from Submit
// until Poll hands it back.
type Op struct {
	Kind   OpKind
	Key    []byte
	Value  []byte   // OpUpsert: what to store. OpRead: the result, in Value[:0] grown as needed
	Modify Modifier // OpRMW only
	Err    error    // the outcome; ErrNotFound for a read of a key that is not there
}
