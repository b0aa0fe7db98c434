package readcache

// addressBits is the size of a log address.
const addressBits = 48

// mix spreads an address over all bits. The low bits of the result choose the shard, the high
// half the bucket, and the bits between give tag and fingerprint. Neighbouring addresses
// differ in a few low bits only.
func mix(addr int64) uint64 {
	h := uint64(addr) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

// choose maps the high half of the hash to [0, n) without a division.
func choose(hash uint64, n uint64) uint64 { return hash >> 32 * n >> 32 }

// place is the position of a record in its shard's ring: the lap, which is the number of times
// the ring was filled before, and the word within the ring. Later records have larger places.
// With 53 bits places do not wrap within the bytes that a machine can move.
type place uint64

// entry is one word of a bucket, 0 if free:
//
//	63    62..54  53          52..0
//	used  tag     referenced  place
type entry uint64

const (
	placeBits             = 53
	placeMask       entry = 1<<placeBits - 1
	entryReferenced entry = 1 << placeBits
	entryUsed       entry = 1 << 63
	tagShift              = 54
	tagBits               = 9

	bucketSize    = 64 // one cache line: entries and a word of ghosts
	bucketEntries = bucketSize/8 - 1
)

// newEntry returns the entry of a hash at place 0.
func newEntry(hash uint64) entry {
	return entryUsed | entry(hash>>6&(1<<tagBits-1))<<tagShift
}

func (e entry) at(p place) entry        { return e&^placeMask&^entryReferenced | entry(p) }
func (e entry) place() place            { return place(e & placeMask) }
func (e entry) referenced() bool        { return e&entryReferenced != 0 }
func (e entry) matches(want entry) bool { return e>>tagShift == want>>tagShift }

// note is the word in front of every record in a ring; without an address it
// says that the rest of the ring is unused:
//
//	63..19         18..0
//	address / 8    length
type note uint64

const lengthBits = 19

func newNote(addr int64, length int) note {
	return note(addr>>3)<<lengthBits | note(length)
}

func (n note) address() int64 { return int64(n>>lengthBits) << 3 }
func (n note) length() int    { return int(n & (1<<lengthBits - 1)) }

// words is the number of words that the record and its note take.
func (n note) words() uint64 { return 1 + uint64(n.length()+7)/8 }
