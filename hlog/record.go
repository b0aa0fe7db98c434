package hlog

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// Record is a record in the log's memory, by its address there. It is valid in the epoch in
// which the address was found between head and tail. Its header is read and written atomically,
// and so is a lock-free value: one of up to a word, in a record without expiry. Blind updates
// of a lock-free value are stores and others compare-and-swaps; Seal keeps it from changing.
// Other values, and expiries, are read and written under the header's sequence lock:
//
//	writer                              reader
//	header: unlocked v → locked v       h1 ← header, until unlocked
//	writes the value                    copies the value
//	header: locked v → unlocked v+1     h2 ← header; h1 = h2: not torn
//
// Versions do not wrap (see [Header]), so equal headers mean that nothing was written in
// between, however long the reader was delayed.
type Record struct{ p unsafe.Pointer }

// RecordAt is the record at p, which lies in the log's memory.
func RecordAt(p unsafe.Pointer) Record { return Record{p} }

// release stores the header, and so ends the lock.
func (r Record) release(h Header) { mem.StoreRelease(r.word(0), uint64(h)) }

func (r Record) word(offset int) *uint64 { return (*uint64)(unsafe.Add(r.p, offset)) }

// Header loads the header.
func (r Record) Header() Header { return Header(atomic.LoadUint64(r.word(0))) }

// SetHeader stores the header of a record that no other goroutine can reach or change.
func (r Record) SetHeader(h Header) { atomic.StoreUint64(r.word(0), uint64(h)) }

func (r Record) swapHeader(old, new Header) bool {
	return atomic.CompareAndSwapUint64(r.word(0), uint64(old), uint64(new))
}

// Fill writes a new record whole; expires is 0 for one that does not expire. No other
// goroutine can reach it before the index points to it.
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

// PrefetchRest prefetches the bytes [from, to) of the record, up to its end. Its first two
// words are in the cache.
func (l Layout) PrefetchRest(r Record, from, to int) {
	if n := int(l.Extent(r)); n > from {
		mem.PrefetchLines(unsafe.Add(r.p, from), min(n, to)-from)
	}
}

// Extent is the size of the record in the log, which never changes.
func (l Layout) Extent(r Record) int64 {
	if l.Fixed() {
		return int64(l.Size(l.keySize, l.valueSize, r.Header().Expires()))
	}
	n := l.lengths(r)
	return int64(l.Size(n.key(), n.space(), r.Header().Expires()))
}

// KeyEqual reports whether the record's key is key. Keys of one word take one comparison.
func (l Layout) KeyEqual(r Record, key []byte) bool {
	if l.keySize == 8 {
		return *r.word(headerSize) == *(*uint64)(unsafe.Pointer(unsafe.SliceData(key)))
	}
	return bytes.Equal(l.Key(r), key)
}

// value returns the value's address, length and space. They are valid for the holder of the
// lock, or if the header is unchanged afterwards.
func (l Layout) value(r Record) (p unsafe.Pointer, size, space int) {
	if l.Fixed() {
		return unsafe.Add(r.p, headerSize+pad(l.keySize)), l.valueSize, pad(l.valueSize)
	}
	n := l.lengths(r)
	return unsafe.Add(r.p, headerSize+lengthsSize+pad(n.key())), n.value(), n.space()
}

// Read is TryRead that waits while the record is locked.
func (l Layout) Read(dst []byte, r Record) (value []byte, h Header, expires int64) {
	for {
		if value, h, expires, ok := l.TryRead(dst, r); ok {
			return value, h, expires
		}
		runtime.Gosched()
	}
}

// TryRead appends the record's value, never a torn one, to dst, and returns it with the
// header under which it was read and the expiry, 0 for none. A tombstone has a value too. It
// fails if the value is being updated in each of a few attempts.
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
			if size <= space { // else the lengths are torn
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

// Word1 is the lock-free value after such a key.
func (r Record) Word1() uint64 { return atomic.LoadUint64(r.word(2 * headerSize)) }

// SwapWord1 is SwapWord after such a key.
func (r Record) SwapWord1(old, v uint64) bool {
	return atomic.CompareAndSwapUint64(r.word(2*headerSize), old, v)
}

// looks is the number of attempts to see a record unlocked. The holder of the lock may be the
// caller's own goroutine, so the caller decides whether to try again.
const looks = 17

// Lock locks the record for an update of its value. It fails if the record must not be
// updated in place: it is sealed, deleted, or out of versions; or if it is locked in each of
// a few attempts, as the returned header shows. The lock is held for the time of a copy, and
// never across an allocation.
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

// LockIf locks the record if its header still is h, which is not locked, sealed or deleted.
func (r Record) LockIf(h Header) bool {
	if h&(headerLocked|headerSealed|headerTombstone) != 0 || !r.swapHeader(h, h|headerLocked) {
		return false
	}
	mem.StoreFence()
	return true
}

// Unlock ends an update that began under h.
func (r Record) Unlock(h Header) { r.release(h + versionUnit) }

// UnlockUnchanged unlocks a record whose value the holder has not written: a reader that
// began before the lock accepts its copy.
func (r Record) UnlockUnchanged(h Header) { r.release(h) }

// UnlockSealed unlocks a record that was locked under h, and seals it: its value is its last.
// The caller replaces the record, or unseals it by UnlockUnchanged.
func (r Record) UnlockSealed(h Header) { r.release(h | headerSealed) }

// UnlockBuried makes a record that was locked under h a tombstone.
func (r Record) UnlockBuried(h Header) { r.release(h | headerTombstone) }

// Store replaces value and expiry in place if they fit; the caller holds the lock.
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

// Update calls edit with the value in place, which edit may change and make longer up to its
// capacity; the caller holds the lock. edit returns the value in the same memory, or false;
// then the value keeps its length, but its bytes may have changed: the caller ends the lock
// by Unlock in either case.
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

// StoreWord replaces a lock-free value in place, unless the record must not be updated in
// place.
func (l Layout) StoreWord(r Record, v uint64) bool {
	if !r.Header().Updatable() {
		return false
	}
	mem.StoreRelease(r.word(headerSize+pad(l.keySize)), v)
	return true
}

// SwapWord replaces a lock-free value if it still is old.
func (l Layout) SwapWord(r Record, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(r.word(headerSize+pad(l.keySize)), old, v)
}

// Seal prevents new updates of a record with a lock-free value, if its header still is h.
// Updates that began before have ended when every session has left the epoch; then the value
// does not change until Unseal.
func (r Record) Seal(h Header) bool {
	return !h.Sealed() && !h.Tombstone() && r.swapHeader(h, h|headerSealed)
}

// Unseal ends the caller's Seal.
func (r Record) Unseal() { r.release(r.Header() &^ headerSealed) }

// BurySealed makes a sealed record a tombstone.
func (r Record) BurySealed() { r.release(r.Header()&^headerSealed | headerTombstone) }

// LockFree reports whether a record under h of this layout has a lock-free value.
func (l Layout) LockFree(h Header) bool { return l.WordValues() && !h.Expires() }

// Expiry is the record's expiry, 0 for none; the caller holds the lock.
func (l Layout) Expiry(r Record) int64 {
	if !r.Header().Expires() {
		return 0
	}
	p, _, space := l.value(r)
	return int64(atomic.LoadUint64((*uint64)(unsafe.Add(p, space))))
}

// Bury makes the record a tombstone in place. It fails if the record is sealed or a tombstone
// already, or locked in each of a few attempts.
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
