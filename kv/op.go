package kv

import (
	"errors"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Errors that a caller can act on.
var (
	// ErrNotFound says that the store holds no record of that key.
	ErrNotFound = errors.New("kv: key not found")
	// ErrExists says that an insert found the key already there.
	ErrExists = errors.New("kv: key exists")
	// ErrQueueFull says that the session has QueueDepth operations under way or
	// completed and not polled: Poll, and submit again.
	ErrQueueFull = errors.New("kv: session queue full")
	// ErrNameInUse says that the name belongs to another open session, or to another
	// checkpoint.
	ErrNameInUse = errors.New("kv: name in use")
	// ErrBadName says that a session or a checkpoint cannot have that name.
	ErrBadName = errors.New("kv: bad name")
	// ErrClosed says that the store or the session was closed.
	ErrClosed = errors.New("kv: closed")
	// ErrBadSize says that a key or value has not the size that the store's
	// records have, or is too large for a page.
	ErrBadSize = errors.New("kv: bad key or value size")
	// ErrBadExpiry says that a record was to expire before MinExpires.
	ErrBadExpiry = errors.New("kv: bad expiry")
	// ErrCorrupt says that bytes read from the device are not what was written,
	// as the device found by their checksums, or the store by what they say.
	ErrCorrupt = device.ErrCorrupt
	// ErrMismatch says that the store on the device was made with other options.
	ErrMismatch = manifest.ErrMismatch
)

// MinExpires is the earliest expiry, in milliseconds of Unix time, with which a record may
// be written: the beginning of 1980. A smaller number is most likely one of seconds, with
// which the record would be gone at once: ErrBadExpiry.
const MinExpires = 315_532_800_000

// ExpiresAt returns the Expires of a record that expires at t, rounded up to a millisecond.
// The zero time is never.
func ExpiresAt(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// ExpiresIn returns the Expires of a record that expires after d from now. See also
// [Session.UpsertTTL].
func ExpiresIn(d time.Duration) int64 { return ExpiresAt(time.Now().Add(d)) }

// ExpiryTime returns the time of an Expires; the zero time is never.
func ExpiryTime(expires int64) time.Time {
	if expires == 0 {
		return time.Time{}
	}
	return time.UnixMilli(expires)
}

// OpKind is what an Op does.
type OpKind uint8

const (
	// OpRead looks the key up and puts its value into Op.Value.
	OpRead OpKind = iota
	// OpUpsert stores Op.Value under the key, whatever was there.
	OpUpsert
	// OpRMW changes the key's record as Op.Modify says.
	OpRMW
	// OpDelete removes the key, whether it is there or not.
	OpDelete
	// OpInsert stores Op.Value if the key is not there, and is ErrExists if it is.
	OpInsert

	opNewest // these three: see trace.go
	opMove
	opLink

	opKinds
)

// writes says whether the operation may make the first record of a chain.
func (k OpKind) writes() bool { return k == OpUpsert || k == OpRMW || k == OpInsert }

// changes says whether the operation may change what others read of its key.
func (k OpKind) changes() bool { return k.writes() || k == OpDelete }

// ordered says whether an operation comes after others on its key while it waits
// for the device.
func (s *Session) ordered(k OpKind) bool {
	return k == OpRMW || k == OpInsert || s.counting && k.changes()
}

// Op is one operation. The caller owns it, and its slices, except from Submit until Poll
// hands it back. Value and Expires are what OpUpsert and OpInsert store and what OpRead
// finds: so an Op has one buffer for values, and an Op that was read can be stored as it
// is. The other fields are either read or set by an operation.
type Op struct {
	// Kind is read.
	Kind OpKind
	// trace is, for opNewest, opMove and opLink, the number of the session's trace, from 1.
	trace uint32
	// Key is read.
	Key []byte
	// Value is read by OpUpsert and OpInsert. OpRead sets it to the value, in Value[:0] grown
	// as needed; what it held before is lost, also if there is no record.
	Value []byte
	// Modify is read by OpRMW, which needs it or ModifyWord: the copying form.
	Modify Modifier
	// ModifyWord is read by OpRMW, and called in the place of Modify if it is set: see
	// [Session.RMWWord].
	ModifyWord WordModifier
	// InPlace is read by OpRMW: the form that changes the value where it lies. It is tried
	// first, where that is possible. It may be nil.
	InPlace InPlace
	// Expires is when the record expires, in milliseconds of Unix time, at least MinExpires;
	// 0 is never. OpUpsert and OpInsert read it, OpRead sets it. See [ExpiresAt],
	// [ExpiresIn] and [ExpiryTime].
	Expires int64
	// Err is set to the outcome; ErrNotFound for a read of a key that is not there.
	Err error
}

// Update is what a Modifier sees of a record, and what becomes of it.
type Update struct {
	Found   bool
	Old     []byte // the present value, nil if there is no record; it must not be kept or written to
	New     []byte // empty at first: the Modifier appends the new value
	Expires int64  // when the record expires, as in Op; unless changed, the new value expires then as well
}

// Verdict is what a Modifier decides.
type Verdict uint8

const (
	// Keep changes nothing. It is the zero value: a Modifier that forgets its verdict does
	// not store an empty value.
	Keep Verdict = iota
	// Put stores Update.New and Update.Expires.
	Put
	// Remove deletes the key.
	Remove
)

// Modifier decides what becomes of a record from what it is: the copying form of
// a read-modify-write. It may be called more than once for one operation, its
// last call counts, and holds up eviction while it runs: it must be short, have
// no side effects beside its own result, and not use the store.
//
// A call of its session within it is ErrInModifier, or, in a store of 8-byte keys and
// values, is carried out as an operation before or after; where it changes the record, the
// Modifier is asked again, and then refused. A call of another session or of
// the store, by the same goroutine, is ErrInModifier where it would wait for the Modifier,
// or writes its key again and again, or goes through records ([Store.Scan]); else it is
// carried out. That a call by another goroutine waits for it is not found out.
type Modifier func(u *Update) Verdict

// WordModifier is a Modifier of values of 8 bytes, as numbers: it returns the new
// value, and whether to Put it. old is 0 where there is none. The rules for a
// Modifier hold.
type WordModifier func(old uint64, found bool) (fresh uint64, verdict Verdict)

// InPlace changes a value where it lies, in the log's memory, while nobody else
// reads or writes it. It returns the value in the same memory, with its length
// up to the capacity that it was given (where lengths are fixed, unchanged); or
// false, and then the Modifier is asked. Other memory, such as that of an append beyond
// the capacity, counts as false. It must return false before it changes anything: bytes
// that it has changed before stay changed, in the old length, for readers and for the
// Modifier, and so they do where it panics. It is not called
// where there is no value, and not where values are of one word, for which copying
// is cheaper. The rules for a Modifier hold; the memory must not be kept. The record is
// locked meanwhile: an operation of another session on the same key waits until it
// returns, for ever if InPlace waits for it; by the same goroutine it is ErrInModifier.
type InPlace func(value []byte) ([]byte, bool)

// opRing is a first-in, first-out queue of operations with a fixed capacity.
type opRing struct {
	ops        []*Op
	head, used int
}

func newOpRing(capacity int) opRing { return opRing{ops: make([]*Op, capacity)} }

func (r *opRing) len() int { return r.used }

// push adds an operation; there is room.
func (r *opRing) push(op *Op) {
	at := r.head + r.used
	if at >= len(r.ops) {
		at -= len(r.ops)
	}
	r.ops[at] = op
	r.used++
}

// pop takes the oldest; there is one.
func (r *opRing) pop() *Op {
	op := r.ops[r.head]
	r.ops[r.head] = nil
	if r.head++; r.head == len(r.ops) {
		r.head = 0
	}
	r.used--
	return op
}
