package hlog

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// Record is a record in the log's memory, by its address there. It is valid
// while the epoch is held under which the address was found between head and
// tail. Its header is read and written atomically, and so is a bare value: one of
// up to a word, in a record without expiry. Blind updates of a bare value are
// stores and the others compare-and-swaps, without any lock: for who needs the
// value to stand still, there is Seal. Other values, and expiries, are read and
// written under the header's sequence lock:
//
//	writer                              reader
//	header: unlocked v → locked v       h1 ← header, until unlocked
//	writes the value                    copies the value
//	header: locked v → unlocked v+1     h2 ← header; h1 = h2: not torn
//
// Versions do not wrap (see [Header]), so equal headers mean that nothing was
// written in between, however long the reader was held up.
type Record struct{ p unsafe.Pointer }

// RecordAt is the record at p, which lies in the log's memory.
func RecordAt(p unsafe.Pointer) Record { return Record{p} }

// release stores the header, and so ends the lock.
func (r Record) release(h Header) { mem.StoreRelease(r.word(0), uint64(h)) }

func (r Record) word(offset int) *uint64 { return (*uint64)(unsafe.Add(r.p, offset)) }

// Header loads the header.
func (r Record) Header() Header { return Header(atomic.LoadUint64(r.word(0))) }

// SetHeader stores the header of a record that nobody else can reach or change.
func (r Record) SetHeader(h Header) { atomic.StoreUint64(r.word(0), uint64(h)) }

func (r Record) swapHeader(old, new Header) bool {
	return atomic.CompareAndSwapUint64(r.word(0), uint64(old), uint64(new))
}

// Fill writes a fresh record whole; expires is 0 for one that does not expire.
// Nobody else can reach it before the index points to it.
func (l Layout) Fill(r Record, h Header, key, value []byte, expires int64) {
	at := headerSize
	if !l.Fixed() {
		atomic.StoreUint64(r.word(at), uint64(newLengths(len(key), len(value), pad(len(value)))))
		at += lengthsSize
	}
	mem.CopyIn(unsafe.Add(r.p, at), key)
	at += pad(len(key))
	mem.CopyIn(unsafe.Add(r.p, at), value)
	if expires != 0 {
		h |= headerExpires
		atomic.StoreUint64(r.word(at+pad(len(value))), uint64(expires))
	}
	r.SetHeader(h)
}

// Invalidate marks a record that its writer could not make reachable.
func (r Record) Invalidate() { r.SetHeader(r.Header() | headerInvalid) }

func (l Layout) lengths(r Record) lengths { return lengths(atomic.LoadUint64(r.word(headerSize))) }

// Key is the record's key, in place: it never changes.
func (l Layout) Key(r Record) []byte {
	if l.Fixed() {
		return unsafe.Slice((*byte)(unsafe.Add(r.p, headerSize)), l.keySize)
	}
	return unsafe.Slice((*byte)(unsafe.Add(r.p, headerSize+lengthsSize)), l.lengths(r).key())
}

// PrefetchRest asks for the bytes [from, to) of the record, as far as it goes. Its
// first two words are at hand.
func (l Layout) PrefetchRest(r Record, from, to int) {
	if n := int(l.extent(r)); n > from {
		mem.PrefetchLines(unsafe.Add(r.p, from), min(n, to)-from)
	}
}

// extent is how many bytes the record takes in the log: that never changes.
func (l Layout) extent(r Record) int64 {
	if l.Fixed() {
		return int64(l.Size(l.keySize, l.valueSize, r.Header().Expires()))
	}
	n := l.lengths(r)
	return int64(l.Size(n.key(), n.space(), r.Header().Expires()))
}

// KeyEqual reports whether the record's key is key. Keys of one word, by far the
// most compared, take one comparison.
func (l Layout) KeyEqual(r Record, key []byte) bool {
	if l.keySize == 8 {
		return *r.word(headerSize) == *(*uint64)(unsafe.Pointer(unsafe.SliceData(key)))
	}
	return bytes.Equal(l.Key(r), key)
}

// value is where the value is, its length and its space now. Only stable in
// the hands of a lock's holder, or when the header is checked afterwards.
func (l Layout) value(r Record) (p unsafe.Pointer, size, space int) {
	if l.Fixed() {
		return unsafe.Add(r.p, headerSize+pad(l.keySize)), l.valueSize, pad(l.valueSize)
	}
	n := l.lengths(r)
	return unsafe.Add(r.p, headerSize+lengthsSize+pad(n.key())), n.value(), n.space()
}

// Read is TryRead that waits for a lock's holder.
func (l Layout) Read(dst []byte, r Record) (value []byte, h Header, expires int64) {
	for {
		if value, h, expires, ok := l.TryRead(dst, r); ok {
			return value, h, expires
		}
		runtime.Gosched()
	}
}

// TryRead appends the record's value to dst, never a torn one, and returns it with
// the header under which it was read and the expiry, 0 for none. A tombstone has
// a value as well. It fails where the value is being updated in all of a few looks.
func (l Layout) TryRead(dst []byte, r Record) (value []byte, h Header, expires int64, ok bool) {
	if h := r.Header(); l.WordValues() && !h.Expires() {
		p, size, _ := l.value(r)
		word := atomic.LoadUint64((*uint64)(p))
		return append(dst, (*[8]byte)(unsafe.Pointer(&word))[:size]...), h, 0, true
	}
	for range looks {
		before := r.Header()
		if !before.Locked() {
			p, size, space := l.value(r)
			if size <= space { // torn lengths are not followed
				out := mem.AppendOut(dst, p, size)
				if before.Expires() {
					expires = int64(atomic.LoadUint64((*uint64)(unsafe.Add(p, space))))
				}
				mem.LoadFence()
				if r.Header() == before {
					return out, before, expires, true
				}
			}
		}
	}
	return dst, 0, 0, false
}

// Word0 is the key of a record of a layout with keys of 8 bytes.
func (r Record) Word0() uint64 { return *r.word(headerSize) }

// Word1 is the bare value behind such a key.
func (r Record) Word1() uint64 { return atomic.LoadUint64(r.word(2 * headerSize)) }

// SwapWord1 is SwapWord behind such a key.
func (r Record) SwapWord1(old, v uint64) bool {
	return atomic.CompareAndSwapUint64(r.word(2*headerSize), old, v)
}

// looks is how often a lock is looked at until its holder is taken for one that does not
// run. It may be the caller's own goroutine, so the caller decides whether to try again.
const looks = 17

// Lock takes the record for an update of its value by the holder alone. It
// fails where the record must not be updated in place: sealed, deleted, or out
// of versions; and where it is locked in all of a few looks, as the header that it
// returns says. Held for the time of a copy; never across an allocation.
func (r Record) Lock() (h Header, ok bool) {
	for range looks {
		h = r.Header()
		if h&(headerSealed|headerTombstone) != 0 || h.Exhausted() {
			return h, false
		}
		if !h.Locked() && r.swapHeader(h, h|headerLocked) {
			mem.StoreFence()
			return h, true
		}
	}
	return h, false
}

// LockIf takes the record if its header still is h, and h is one of a record
// that is neither locked, sealed nor deleted.
func (r Record) LockIf(h Header) bool {
	if h&(headerLocked|headerSealed|headerTombstone) != 0 || !r.swapHeader(h, h|headerLocked) {
		return false
	}
	mem.StoreFence()
	return true
}

// Unlock ends an update that began under h.
func (r Record) Unlock(h Header) { r.release(h + versionUnit) }

// UnlockUnchanged gives a record back whose value the holder has not written to: a
// reader that began before the lock takes what it has copied for the value.
func (r Record) UnlockUnchanged(h Header) { r.release(h) }

// UnlockSealed gives a record back that was locked under h for nobody to update
// in place: its value is its last. Whoever seals a record replaces it, or gives
// it back by UnlockUnchanged.
func (r Record) UnlockSealed(h Header) { r.release(h | headerSealed) }

// UnlockBuried makes a record that was locked under h a tombstone.
func (r Record) UnlockBuried(h Header) { r.release(h | headerTombstone) }

// Store replaces value and expiry in place where they fit; the caller holds the
// lock.
func (l Layout) Store(r Record, value []byte, expires int64) bool {
	p, _, space := l.value(r)
	has := r.Header().Expires()
	if len(value) > space || expires != 0 && !has {
		return false
	}
	if !l.Fixed() {
		n := l.lengths(r)
		atomic.StoreUint64(r.word(headerSize), uint64(newLengths(n.key(), len(value), space)))
	}
	mem.CopyIn(p, value)
	if has {
		atomic.StoreUint64((*uint64)(unsafe.Add(p, space)), uint64(expires))
	}
	return true
}

// Update lets edit change the value where it lies, and make it longer up to its
// capacity; the caller holds the lock. edit returns the value in the same
// memory, or false. Then the value keeps its length, but its bytes may have changed:
// the caller ends the lock by Unlock whatever edit says.
func (l Layout) Update(r Record, edit func(value []byte) ([]byte, bool)) bool {
	p, size, space := l.value(r)
	if l.Fixed() {
		space = size
	}
	value, ok := mem.Edit(p, size, space, edit)
	if !ok {
		return false
	}
	if !l.Fixed() {
		n := l.lengths(r)
		atomic.StoreUint64(r.word(headerSize), uint64(newLengths(n.key(), value, n.space())))
	}
	return true
}

// StoreWord replaces such a value in place, unless the record must not be updated
// so.
func (l Layout) StoreWord(r Record, v uint64) bool {
	if !r.Header().Updatable() {
		return false
	}
	mem.StoreRelease(r.word(headerSize+pad(l.keySize)), v)
	return true
}

// SwapWord replaces such a value if it still is old.
func (l Layout) SwapWord(r Record, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(r.word(headerSize+pad(l.keySize)), old, v)
}

// Seal lets no update of such a record begin if its header still is h. Those that
// began before are over when everybody has left the epoch; then the value is its
// last, until Unseal.
func (r Record) Seal(h Header) bool {
	return !h.Sealed() && !h.Tombstone() && r.swapHeader(h, h|headerSealed)
}

// Unseal gives a record back that the caller has sealed.
func (r Record) Unseal() { r.release(r.Header() &^ headerSealed) }

// BurySealed makes it a tombstone.
func (r Record) BurySealed() { r.release(r.Header()&^headerSealed | headerTombstone) }

// Bare reports whether a record under h of this layout has a bare value.
func (l Layout) Bare(h Header) bool { return l.WordValues() && !h.Expires() }

// Expiry is the record's expiry, 0 for none; the caller holds the lock.
func (l Layout) Expiry(r Record) int64 {
	if !r.Header().Expires() {
		return 0
	}
	p, _, space := l.value(r)
	return int64(atomic.LoadUint64((*uint64)(unsafe.Add(p, space))))
}

// Bury makes the record a tombstone in place. It fails where the record is
// sealed or a tombstone already, and where it is locked in all of a few looks.
func (r Record) Bury() bool {
	for range looks {
		h := r.Header()
		if h.Sealed() || h.Tombstone() {
			return false
		}
		if !h.Locked() && r.swapHeader(h, h|headerTombstone) {
			return true
		}
	}
	return false
}
