package kv

import (
	"math"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/index"
)

// view is a session's cached view of the store in one epoch: the index, the log's memory and
// its markers, which lead from a hash to a record in memory. A view is valid during every stay
// in its epoch; [Session.enter] updates it when the epoch has changed. The assembly in
// view_amd64.s and plain_amd64.s depends on its layout.
type view struct {
	buckets  unsafe.Pointer // buckets of index
	mask     uint64         // number of buckets - 1
	frames   unsafe.Pointer // the log's memory
	ringMask int64          // mask that turns an address into an offset in frames
	head     int64          // lowest address in memory
	last     int64          // offset of the last byte of a record to prefetch; constant
	readOnly int64          // lowest address that may be updated in place: see inplace.go
	tag      uint64         // position of the tag in a hash: first bit, and number of bits << 8
	hash     wordHash       // constant

	current *uint64 // the store's epoch
	epoch   uint64  // epoch of this view; 0, which is no epoch, before the first one

	// wide, narrow and direct are epoch if plain calls may go directly to a record in memory,
	// else 0. At most one is set: wide for assembly with AVX-512, narrow for assembly without,
	// direct for Go code.
	wide, narrow uint64
	// Values in the form that the assembly needs: the shift from the tag's place in a hash to
	// its place in an entry, and head and readOnly shifted like an entry's address.
	tagUp              uint64
	headUp, readOnlyUp uint64
	direct             uint64
	sampled            uint64 // accesses to keys with a lower hash are sampled, see sampling.go; 0: none

	index   *index.Table
	guarded bool // keys may be locked: operations go the general way and take stripes, see locks.go
}

// wordHash is an index.WordHash, declared here so that the assembly knows its layout.
type wordHash index.WordHash

// The index's numbers that the assembly uses.
const (
	addressBits   = index.AddressBits
	tagBits       = index.TagBits
	bucketEntries = index.BucketEntries
)

// noEpoch is the current epoch of a session that is not open.
var noEpoch uint64 = math.MaxUint64

// look updates the view from the store's current index and log, inside an epoch of the session.
func (v *view) look(st *Store) {
	t, log := st.index.Load(), st.log.View()
	v.index, v.buckets, v.mask = t, t.Base(), t.Mask()
	v.tag = uint64(t.TagShift()) | tagBits<<8
	v.tagUp = addressBits - uint64(t.TagShift())
	v.frames, v.ringMask = log.Frames, log.RingMask
	// Below the begin there is nothing, although it may still be in memory after an eviction.
	v.head, v.readOnly = max(log.Head, st.log.Begin()), max(log.ReadOnly, st.snapshotTail)
	v.headUp, v.readOnlyUp = uint64(v.head)<<(64-addressBits), uint64(v.readOnly)<<(64-addressBits)
	v.guarded = st.locks.guarded.Load()
}

// record returns the record at address, which is at or above head. The mask keeps it within
// the log's memory for any address.
func (v *view) record(address int64) hlog.Record {
	return hlog.RecordAt(unsafe.Add(v.frames, address&v.ringMask))
}

// prefetch prefetches the record at address, if it is in memory.
func (v *view) prefetch(address int64) {
	if address >= v.head {
		record := unsafe.Add(v.frames, address&v.ringMask)
		mem.Prefetch(record)
		mem.Prefetch(unsafe.Add(record, v.last))
	}
}

// The portable form of the vector code in view_amd64.s.

// placeOf returns the place of a hash's entry, or none if the first bucket has none.
func (v *view) placeOf(hash uint64) index.Place {
	bucket := unsafe.Add(v.buckets, (hash&v.mask)*index.BucketSize)
	return index.FindIn(bucket, index.EntryOf(hash, uint(v.tag&63)))
}

// newestOf is the portable form of newest, without prefetching.
func (v *view) newestOf(hash uint64) int64 {
	at := v.placeOf(hash)
	if at.None() {
		return 0
	}
	return at.Load().Address()
}

// scanWords puts the places of the hashes' entries into places and prefetches their records.
// It returns the number of hashes without an entry in their first bucket.
func (v *view) scanWords(hashes []uint64, places []index.Place) (absent int) {
	for i, hash := range hashes {
		if places[i] = v.placeOf(hash); !places[i].None() {
			v.prefetch(places[i].Load().Address())
		} else {
			absent++
		}
	}
	return absent
}
