package resp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/redykv/redykv/kv/internal/index"
)

// hashTable has the elements of a spread hash or set, by linear hashing: element e is in the bucket of
// the lowest bits of its hash, and bucket i is node i. There are any number of buckets, not only
// powers of two: with 2^l + k buckets, k < 2^l, the first k and the last k have elements of the
// same l+1 bits, the others of the same l. When the elements exceed bucketBytes for each bucket,
// bucket k is split, by the next bit; when they have become few, the last bucket is merged with the
// one that it came from. So nodes have 1 to 2 times bucketBytes, there is no directory, and an
// element is found with the header and one node.
//
// The content of a node is that of packed elements.
type hashTable struct {
	nodes
	typ     valueType // the type that the elements would have packed, for OBJECT ENCODING
	seed    uint64    // of hash; random, so that no client can choose elements for one bucket
	hash    index.Hash
	buckets uint64
	count   uint64
	weight  uint64 // the sum of the elements' weights
	changed bool
	most    int64 // bytes of elements that each and random may still visit
}

const (
	// bucketBytes is the weight per bucket from which buckets are added; mergeBytes that below which
	// they are removed.
	bucketBytes = 2 << 10
	mergeBytes  = bucketBytes / 4
	// manyNodes is the number of nodes in memory from which those that may be forgotten are.
	manyNodes = 1 << 10
	// bucketsAtOnce is the number of nodes that are read together.
	bucketsAtOnce = 64
)

// weigh returns the weight of an element: its length in a node, up to a limit, so that a long
// element adds one bucket only.
func weigh(size int) uint64 { return uint64(min(size, bucketBytes)) }

const tableHeader = 1 + 3*8

// tableBuckets returns the number of buckets of a header.
func tableBuckets(h header) uint64 { return binary.LittleEndian.Uint64(h.rest[9:]) }

// spreadEncoding returns Redis's encoding for the content of a header.
func spreadEncoding(content []byte) string {
	h, ok := headerOf(content)
	if !ok || len(h.rest) != tableHeader {
		return "unknown"
	}
	return typeOfByte[h.rest[0]].encoding()
}

// perNode is the bytes of a node's record besides its value, and of its index entry, approximately.
const perNode = 96

// spreadUsage returns the bytes that the nodes of a header take, approximately.
func spreadUsage(content []byte) int64 {
	h, ok := headerOf(content)
	if ok && len(h.rest) == quickListHeader {
		first, last, weight := listNumbers(h)
		return weight + (last-first+1)*perNode
	}
	trees := int64(1)
	if ok && len(h.rest) == sortedHeader { // the tree takes about as much as the table
		trees = 2
	} else if !ok || len(h.rest) != tableHeader {
		return 0
	}
	buckets, weight := binary.LittleEndian.Uint64(h.rest[9:]), binary.LittleEndian.Uint64(h.rest[17:])
	const spare = 8 // an eighth of a node's value
	return trees * (int64(weight+weight/spare) + int64(min(buckets, h.count)*perNode))
}

// open begins to use the table of a header.
func (t *hashTable) open(io *nodeIO, family valueType, h header) bool {
	if len(h.rest) != tableHeader {
		return false
	}
	t.begin(io, h.gen)
	t.typ = typeOfByte[h.rest[0]]
	t.setSeed(binary.LittleEndian.Uint64(h.rest[1:]))
	t.buckets, t.weight = binary.LittleEndian.Uint64(h.rest[9:]), binary.LittleEndian.Uint64(h.rest[17:])
	t.count, t.changed = h.count, false
	return t.typ.family() == family && !t.typ.isSpread() && t.buckets > 0 && t.count > 0 &&
		t.count <= t.weight && t.weight/bucketBytes <= t.count && (t.buckets == 1 || t.buckets <= t.weight/mergeBytes)
}

// create begins a table without elements, for so much weight.
func (t *hashTable) create(io *nodeIO, typ valueType, weight uint64) {
	t.begin(io, newGeneration())
	t.typ = typ
	t.setSeed(index.NewSeed())
	t.buckets, t.count, t.weight, t.changed = max(weight/bucketBytes, 1), 0, 0, true
	t.most = math.MaxInt64
	if t.buckets > manyNodes {
		return // each node is empty until something is added
	}
	for b := range t.buckets {
		t.fresh(nodeID(b))
	}
}

func (t *hashTable) setSeed(seed uint64) { t.seed, t.hash = seed, index.NewHash(seed) }

// header returns the table's header.
func (t *hashTable) header() header {
	rest := append(make([]byte, 0, tableHeader), typeBytes[t.typ])
	for _, n := range []uint64{t.seed, t.buckets, t.weight} {
		rest = binary.LittleEndian.AppendUint64(rest, n)
	}
	return header{gen: t.gen, count: t.count, rest: rest}
}

// spreadType returns the type of the header's record.
func (t *hashTable) spreadType() valueType {
	if t.typ.family() == typeHash {
		return typeSpreadHash
	}
	return typeSpreadSet
}

// level returns the number of bits that the first bucket to be split has.
func (t *hashTable) level() int { return bits.Len64(t.buckets) - 1 }

// bucket returns the bucket of a hash.
func (t *hashTable) bucket(hash uint64) nodeID {
	b := hash & (2<<t.level() - 1)
	if b >= t.buckets {
		b &= 1<<t.level() - 1
	}
	return nodeID(b)
}

// bits returns the number of bits that the hashes of a bucket's elements share.
func (t *hashTable) bits(b nodeID) int {
	level := t.level()
	if half := uint64(1) << level; uint64(b) >= half || uint64(b) < t.buckets-half {
		return level + 1
	}
	return level
}

// prefetch has the next fetch read the node of a field.
func (t *hashTable) prefetch(field []byte) { t.want(t.bucket(t.hash.Of(field))) }

// fetchOf reads the nodes of fields together. It first forgets those without changes, if there are many.
func (t *hashTable) fetchOf(fields [][]byte) {
	if len(t.all) > manyNodes {
		t.releaseUnchanged()
	}
	for _, field := range fields {
		t.prefetch(field)
	}
	t.io.fetch()
}

func (t *hashTable) of(field []byte) *node { return t.node(t.bucket(t.hash.Of(field))) }

func (t *hashTable) reader(nd *node) packed { return packed{rest: nd.content, family: t.typ.family()} }

// place is where a node has an element.
type place struct {
	from, to int // of the element in the content
	value    []byte
}

// find returns the place of a field.
func (t *hashTable) find(nd *node, field []byte) (at place, ok bool) {
	r := t.reader(nd)
	for {
		at.from = len(nd.content) - len(r.rest)
		f, v, ok := r.next()
		if !ok {
			break
		}
		if bytes.Equal(f, field) {
			at.to, at.value = len(nd.content)-len(r.rest), v
			return at, true
		}
	}
	if r.damaged {
		t.io.fail(errDamagedNode)
	}
	return at, false
}

func (t *hashTable) expect(first []byte, n int) (converted bool) {
	was := t.typ
	t.typ = was.expecting(first, n)
	return t.typ != was
}

func (t *hashTable) len() int { return int(t.count) }

func (t *hashTable) err() string { return t.io.err() }

func (t *hashTable) get(field []byte) (value []byte, ok bool) {
	at, ok := t.find(t.of(field), field)
	return at.value, ok
}

func (t *hashTable) set(field, value []byte) (isNew bool) {
	nd := t.of(field)
	at, found := t.find(nd, field)
	switch {
	case found && t.typ.family() == typeSet:
		return false
	case found && len(value) == len(at.value):
		copy(at.value, value)
	case found:
		t.cut(nd, at)
		t.add(nd, field, value)
	default:
		t.count++
		t.add(nd, field, value)
	}
	nd.changed, t.changed = true, true
	if !found || t.typ == typeHash {
		t.typ = t.typ.with(field, value, int(t.count))
	}
	if t.weight > 2*t.buckets*bucketBytes { // soon each element would be looked for among many
		t.balance()
	}
	return !found
}

// insert is set for a field that the table does not have.
func (t *hashTable) insert(field, value []byte) {
	nd := t.of(field)
	t.add(nd, field, value)
	t.count++
	nd.changed, t.changed = true, true
	if t.weight > 2*t.buckets*bucketBytes {
		t.balance()
	}
}

// add appends an element to a node.
func (t *hashTable) add(nd *node, field, value []byte) {
	before := len(nd.content)
	nd.content = appendElement(nd.content, t.typ.family(), field, value)
	t.weight += weigh(len(nd.content) - before)
}

// cut removes an element from a node.
func (t *hashTable) cut(nd *node, at place) {
	nd.content = append(nd.content[:at.from], nd.content[at.to:]...)
	t.weight -= min(weigh(at.to-at.from), t.weight)
}

func (t *hashTable) remove(field []byte) bool {
	nd := t.of(field)
	at, found := t.find(nd, field)
	if !found {
		return false
	}
	t.cut(nd, at)
	t.count--
	nd.changed, t.changed = true, true
	return true
}

// each reads the nodes in the order of their numbers, and forgets those without changes. It fails if
// elements are missing, as the reply may have begun with their number.
func (t *hashTable) each(visit func(field, value []byte) bool) {
	visited := uint64(0)
	counting := func(field, value []byte) bool { visited++; return visit(field, value) }
	for from := uint64(0); from < t.buckets; from += bucketsAtOnce {
		to := min(from+bucketsAtOnce, t.buckets)
		for b := from; b < to; b++ {
			t.want(nodeID(b))
		}
		t.io.fetch()
		for b := from; b < to; b++ {
			if t.io.failed != nil || !t.eachIn(nodeID(b), counting) {
				return
			}
			t.release(nodeID(b))
		}
	}
	if visited != t.count {
		t.io.fail(errMissing)
	}
}

var errMissing = errors.New("elements of this collection are missing")

// eachIn visits the elements of a bucket.
func (t *hashTable) eachIn(b nodeID, visit func(field, value []byte) bool) bool {
	r := t.reader(t.node(b))
	for field, value, ok := r.next(); ok; field, value, ok = r.next() {
		if t.spend(len(field)+len(value)) != nil || !visit(field, value) {
			return false
		}
	}
	if r.damaged {
		t.io.fail(errDamagedNode)
	}
	return !r.damaged
}

// errLargeReply is the error of a reply that would take too much memory.
var errLargeReply = errors.New(errMemory[len("ERR "):])

// spend counts bytes that are visited, and returns an error if they are too many for a reply.
func (t *hashTable) spend(n int) error {
	if t.most -= int64(n); t.most < 0 {
		t.io.fail(errLargeReply)
	}
	return t.io.failed
}

// random returns an element of the bucket of a random hash, so that a bucket that was split is
// chosen half as often as one that was not. At least one bucket in five has elements.
func (t *hashTable) random() (field, value []byte) {
	if t.changed {
		t.balance()
	}
	if len(t.all) > manyNodes {
		t.releaseUnchanged()
	}
	const patience = 1000
	for tries := 0; t.io.failed == nil; tries++ {
		if tries == patience {
			t.io.fail(errMissing)
			break
		}
		nd := t.node(t.bucket(rand.Uint64()))
		r := t.reader(nd)
		n := r.len()
		switch {
		case r.damaged:
			t.io.fail(errDamagedNode)
		case n > 0:
			return r.random()
		}
	}
	return nil, nil
}

// cursorBits is the number of bits of a hash that a cursor of HSCAN or SSCAN has. Clients keep
// cursors in floating-point numbers.
const cursorBits = 52

// scan visits the elements of the buckets from a cursor on, at least count if there are so many, and
// returns the cursor of the next step, 0 at the end. A cursor is a hash with its bits in reverse
// order: in this order the elements of a bucket are neighbours, also after it was split or merged.
func (t *hashTable) scan(cursor uint64, count int, visit func(field, value []byte)) (next uint64) {
	at := cursor << (64 - cursorBits)
	for found := 0; found < count; {
		b := t.bucket(bits.Reverse64(at))
		t.eachIn(b, func(field, value []byte) bool {
			if bits.Reverse64(t.hash.Of(field)) >= at {
				found++
				visit(field, value)
			}
			return true
		})
		t.release(b)
		width := 64 - t.bits(b)
		if width >= 64 || t.io.failed != nil {
			return 0
		}
		if at = (at>>width + 1) << width; at == 0 {
			return 0
		}
	}
	return at >> (64 - cursorBits)
}

// balance splits and merges buckets according to the weight.
func (t *hashTable) balance() {
	for t.weight > t.buckets*bucketBytes && t.io.failed == nil {
		if t.all[t.next()] == nil {
			t.wantSplits()
		}
		t.split()
	}
	for t.buckets > 1 && t.weight < t.buckets*mergeBytes && t.io.failed == nil {
		t.merge()
	}
}

// next returns the next bucket to be split.
func (t *hashTable) next() nodeID { return nodeID(t.buckets - 1<<t.level()) }

// wantSplits reads the next buckets to be split together.
func (t *hashTable) wantSplits() {
	first, splits := uint64(t.next()), t.weight/bucketBytes-t.buckets+1
	for b := first; b < min(first+splits, first+bucketsAtOnce, 1<<t.level()); b++ {
		t.want(nodeID(b))
	}
	t.io.fetch()
}

// split splits the next bucket.
func (t *hashTable) split() {
	bit := uint64(1) << t.level()
	from := t.node(t.next())
	to := t.fresh(nodeID(t.buckets))
	family := t.typ.family()
	kept := make([]byte, 0, len(from.content))
	r := t.reader(from)
	for field, value, ok := r.next(); ok; field, value, ok = r.next() {
		if t.hash.Of(field)&bit != 0 {
			to.content = appendElement(to.content, family, field, value)
		} else {
			kept = appendElement(kept, family, field, value)
		}
	}
	if r.damaged {
		t.io.fail(errDamagedNode)
	}
	if t.io.failed != nil {
		return
	}
	if len(to.content) > 0 {
		from.content, from.changed, to.changed = append(from.content[:0], kept...), true, true
	}
	t.buckets++
	t.changed = true
}

// merge moves the elements of the last bucket to the one that it was split from.
func (t *hashTable) merge() {
	last := t.buckets - 1
	from, to := t.node(nodeID(last)), t.node(nodeID(last-1<<(bits.Len64(last)-1)))
	if t.io.failed != nil {
		return
	}
	if len(from.content) > 0 {
		to.content, to.changed = append(to.content, from.content...), true
	}
	from.content, from.changed = nil, from.size > 0
	t.buckets--
	t.changed = true
}
