package kv

import (
	"math"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/mem"
)

// probe is what it takes to get from a hash to a record in memory, as of the
// epoch that the session has seen: probe_amd64.s knows its layout.
type probe struct {
	table    unsafe.Pointer // buckets
	mask     uint64         // number of buckets - 1
	frames   unsafe.Pointer // the log's memory
	ringMask int64
	head     int64  // lowest address in memory
	last     int64  // offset of the last byte of a record that is asked for
	readOnly int64  // lowest address that may be updated in place
	tag      uint64 // where the tag is in a hash: first bit, and number of bits << 8
	hash     wordHash

	// What it takes to enter the epoch again. Before the session has seen one, it
	// is 0, which never is.
	epoch *uint64
	seen  uint64

	// What plain calls look at besides: see plain_amd64.s.
	wide, narrow       uint64 // seen in one of the two, if they may go straight; else 0
	tagUp              uint64 // how far the tag is below its place in an entry
	headUp, readOnlyUp uint64 // head and readOnly, shifted by what is above an address
	any                uint64 // as wide and narrow, of records of any layout: see plain.go
}

// noEpoch is the present one for a session that is not open.
var noEpoch uint64 = math.MaxUint64

// look takes over the present table and log.
func (p *probe) look(t *table, v *hlog.View) {
	p.table, p.mask = t.base, t.mask
	p.tag = uint64(t.tagShift) | tagBits<<8
	p.frames, p.ringMask = v.Frames()
	p.tagUp = addressBits - uint64(t.tagShift)
	p.head, p.readOnly = v.Head, v.ReadOnly
	p.headUp, p.readOnlyUp = uint64(v.Head)<<(64-addressBits), uint64(v.ReadOnly)<<(64-addressBits)
}

// close makes it find nothing, so that every operation goes the general way.
func (p *probe) close() {
	p.head, p.readOnly = math.MaxInt64, math.MaxInt64
	p.headUp, p.readOnlyUp = math.MaxUint64, math.MaxUint64
}

// The portable form of what probe_amd64.s does with vectors.

// matchWords returns the number of the slot in the bucket that has want at its
// top, or bucketEntries.
func matchWords(bucket unsafe.Pointer, want uint64) int {
	for i := range bucketEntries {
		if uint64(slotIn(bucket, i).load()>>addressBits) == want {
			return i
		}
	}
	return bucketEntries
}

// slotOf is that of a hash, nil where the first bucket has none.
func (p *probe) slotOf(hash uint64) slot {
	bucket := unsafe.Add(p.table, (hash&p.mask)*bucketSize)
	i := matchWords(bucket, uint64(entryOf(hash, uint(p.tag&63))>>addressBits))
	if i == bucketEntries {
		return slot{}
	}
	return slotIn(bucket, i)
}

// newestOf is newest.
func (p *probe) newestOf(hash uint64) int64 {
	at := p.slotOf(hash)
	if at.p == nil {
		return 0
	}
	return at.load().address()
}

// scanWords puts the slots of hashes into slots, and asks for their records in
// memory. It returns how many hashes have none in their first bucket.
func (p *probe) scanWords(hashes []uint64, slots []slot) (absent int) {
	for i, hash := range hashes {
		if slots[i] = p.slotOf(hash); slots[i].p != nil {
			p.prefetch(slots[i].load().address())
		} else {
			absent++
		}
	}
	return absent
}

// prefetch asks for the record at address, if it is in memory.
func (p *probe) prefetch(address int64) {
	if address >= p.head {
		record := unsafe.Add(p.frames, address&p.ringMask)
		mem.Prefetch(record)
		mem.Prefetch(unsafe.Add(record, p.last))
	}
}
