package hlog

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Record is a record in the log's memory, by its address there. It is valid
// while the epoch is held under which the address was found between head and
// tail. Headers, and values of one word, are read and written atomically; other
// values under the header's sequence lock:
//
//	writer                              reader
//	header: unlocked v → locked v       h1 ← header, until unlocked
//	writes the value                    copies the value
//	header: locked v → unlocked v+1     h2 ← header; h1 = h2: not torn
//
// Versions do not wrap (see [Header]), so equal headers mean that nothing was
// written in between, however long the reader was held up.
type Record struct{ p unsafe.Pointer }

func (r Record) word(offset int) *uint64 { return (*uint64)(unsafe.Add(r.p, offset)) }

// Header loads the header.
func (r Record) Header() Header { return Header(atomic.LoadUint64(r.word(0))) }

// SetHeader stores the header of a record that nobody else can reach or change.
func (r Record) SetHeader(h Header) { atomic.StoreUint64(r.word(0), uint64(h)) }

func (r Record) swapHeader(old, new Header) bool {
	return atomic.CompareAndSwapUint64(r.word(0), uint64(old), uint64(new))
}

// Fill writes a fresh record whole. Nobody else can reach it before the index
// points to it.
func (l Layout) Fill(r Record, h Header, key, value []byte) {
	at := headerSize
	if !l.Fixed() {
		atomic.StoreUint64(r.word(at), uint64(newLengths(len(key), len(value), pad(len(value)))))
		at += lengthsSize
	}
	copyIn(unsafe.Add(r.p, at), key)
	copyIn(unsafe.Add(r.p, at+pad(len(key))), value)
	r.SetHeader(h)
}

// Invalidate marks a record that its writer could not make reachable.
func (r Record) Invalidate() { r.SetHeader(r.Header() | headerInvalid) }

// SizeOf is the space that the record takes.
func (l Layout) SizeOf(r Record) int {
	if l.Fixed() {
		return l.Size(l.keySize, l.valueSize)
	}
	n := l.lengths(r)
	return headerSize + lengthsSize + pad(n.key()) + n.space()
}

func (l Layout) lengths(r Record) lengths { return lengths(atomic.LoadUint64(r.word(headerSize))) }

// Key is the record's key, in place: it never changes.
func (l Layout) Key(r Record) []byte {
	if l.Fixed() {
		return unsafe.Slice((*byte)(unsafe.Add(r.p, headerSize)), l.keySize)
	}
	return unsafe.Slice((*byte)(unsafe.Add(r.p, headerSize+lengthsSize)), l.lengths(r).key())
}

// KeyEqual says whether the record's key is key. Keys of one word, by far the
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

// AppendValue appends the record's value to dst, never a torn one, and returns
// it with the header under which it was read.
func (l Layout) AppendValue(dst []byte, r Record) ([]byte, Header) {
	if l.WordValues() {
		h := r.Header()
		p, size, _ := l.value(r)
		word := atomic.LoadUint64((*uint64)(p))
		return append(dst, (*[8]byte)(unsafe.Pointer(&word))[:size]...), h
	}
	for spins := 0; ; spins++ {
		before := r.Header()
		if !before.Locked() {
			p, size, space := l.value(r)
			if size <= space { // torn lengths are not followed
				out := appendOut(dst, p, size)
				loadFence()
				if r.Header() == before {
					return out, before
				}
			}
		}
		yield(spins)
	}
}

// yield lets a lock's holder run when a few looks did not see it finish.
func yield(spins int) {
	if spins > 16 {
		runtime.Gosched()
	}
}

// Lock takes the record for an update of its value by the holder alone. It
// fails where the record must not be updated in place: sealed, deleted, or out
// of versions. Held for the time of a copy; never across an allocation.
func (r Record) Lock() (Header, bool) {
	for spins := 0; ; spins++ {
		h := r.Header()
		if h.Sealed() || h.Tombstone() || h.exhausted() {
			return h, false
		}
		if !h.Locked() && r.swapHeader(h, h|headerLocked) {
			storeFence()
			return h, true
		}
		yield(spins)
	}
}

// LockIf takes the record if its header still is h, so that its value is what
// was read under h, and if it may be updated in place.
func (r Record) LockIf(h Header) bool {
	if h.Locked() || h.Sealed() || h.Tombstone() || h.exhausted() || !r.swapHeader(h, h|headerLocked) {
		return false
	}
	storeFence()
	return true
}

// SealIf seals the record if its header still is h: from then on the value read
// under h is its last. Whoever seals a record replaces it, or unseals it.
func (r Record) SealIf(h Header) bool {
	return !h.Locked() && !h.Sealed() && r.swapHeader(h, h|headerSealed)
}

// Unseal gives back a record that SealIf sealed under h.
func (r Record) Unseal(h Header) { r.SetHeader(h) }

// Unlock ends an update that began under h.
func (r Record) Unlock(h Header) { r.SetHeader(h + versionUnit) }

// UnlockUnchanged gives the record back as it was.
func (r Record) UnlockUnchanged(h Header) { r.SetHeader(h) }

// Store replaces the value in place where it fits; the caller holds the lock.
func (l Layout) Store(r Record, value []byte) bool {
	p, _, space := l.value(r)
	if len(value) > space {
		return false
	}
	if !l.Fixed() {
		n := l.lengths(r)
		atomic.StoreUint64(r.word(headerSize), uint64(newLengths(n.key(), len(value), space)))
	}
	copyIn(p, value)
	return true
}

// StoreWord replaces a value of a layout with [Layout.WordValues].
func (l Layout) StoreWord(r Record, value []byte) {
	var word uint64
	copy((*[8]byte)(unsafe.Pointer(&word))[:], value)
	atomic.StoreUint64(r.word(headerSize+pad(l.keySize)), word)
}

// SwapWord replaces such a value if it still is old.
func (l Layout) SwapWord(r Record, old, value []byte) bool {
	var before, after uint64
	copy((*[8]byte)(unsafe.Pointer(&before))[:], old)
	copy((*[8]byte)(unsafe.Pointer(&after))[:], value)
	return atomic.CompareAndSwapUint64(r.word(headerSize+pad(l.keySize)), before, after)
}

// Bury makes the record a tombstone in place. It fails where the record is
// sealed or a tombstone already.
func (r Record) Bury() bool {
	for spins := 0; ; spins++ {
		h := r.Header()
		if h.Sealed() || h.Tombstone() {
			return false
		}
		if !h.Locked() && r.swapHeader(h, h|headerTombstone) {
			return true
		}
		yield(spins)
	}
}
