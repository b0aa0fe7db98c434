package resp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/redykv/redykv/kv"
)

// A collection that is too large for one record is spread over nodes (node.go). Its key's record is
// the header: the collection's generation, its number of elements, and what its type needs to find
// the nodes. A generation is a random number that is never used again.
//
// To delete a collection, it is enough to delete or replace its header, whoever does that: DEL, SET,
// expiry. Then the generation is dead for ever, and compaction drops its nodes (Orphans). For that,
// each generation has an owner, a record whose key is the mark, 'o' and the generation, and whose
// value is the key that has the header. A generation is alive if the record of its owner's key is a
// header of this generation. RENAME and MOVE change the owner, and nodes stay where they are.
//
// The owner is written before the first node, and never deleted except by compaction.

// generation identifies the nodes of one collection.
type generation [12]byte

func newGeneration() (g generation) {
	_, _ = rand.Read(g[:]) // does not fail
	return g
}

// header is the content of a spread collection's record:
//
//	12 bytes   the generation
//	8 bytes    the number of elements
//	the rest   depends on the type
type header struct {
	gen   generation
	count uint64
	rest  []byte
}

const headerSize = len(generation{}) + 8

// headerOf parses the content of a record of a spread type.
func headerOf(content []byte) (h header, ok bool) {
	if len(content) < headerSize {
		return h, false
	}
	copy(h.gen[:], content)
	h.count = binary.LittleEndian.Uint64(content[len(h.gen):])
	h.rest = content[headerSize:]
	return h, true
}

// append appends the content.
func (h *header) append(dst []byte) []byte {
	dst = append(dst, h.gen[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.count)
	return append(dst, h.rest...)
}

// headerIn returns the header in a record's value. ok is false if it has none, or a damaged one.
func headerIn(value []byte) (t valueType, h header, ok bool) {
	t, content := typed(value)
	if !t.isSpread() {
		return t, h, false
	}
	h, ok = headerOf(content)
	return t, h, ok
}

// owner is the content of an owner's record: the number of times that it has changed, and the
// record's key that has the header. With the number, an owner that changed and changed back is
// told from one that did not change.
type owner struct {
	moves uint64
	key   []byte
}

// spreadAbove returns most, the most bytes of a packed collection. If the store does not know of inner
// records, all collections are packed.
func spreadAbove(store *kv.Store, most int) int {
	if store != nil && store.IsInner(ownerKey(generation{})) && store.IsInner(appendNodeKey(nil, generation{}, 0)) {
		return most
	}
	return math.MaxInt
}

func ownerKey(g generation) []byte { return append([]byte(ownerMark), g[:]...) }

func ownerOf(value []byte) (o owner, ok bool) {
	if len(value) < 8 {
		return o, false
	}
	return owner{binary.LittleEndian.Uint64(value), value[8:]}, true
}

func (o *owner) value() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, o.moves), o.key...)
}

// own makes a record's key the owner of a generation that has none. It is called before the first
// node is written.
func (io *nodeIO) own(g generation, key []byte) {
	o := owner{key: key}
	io.do([]kv.Op{{Kind: kv.OpUpsert, Key: ownerKey(g), Value: o.value()}})
}

// owner reads the owner of a generation.
func (io *nodeIO) owner(g generation) (o owner) {
	op := []kv.Op{{Kind: kv.OpRead, Key: ownerKey(g)}}
	io.do(op)
	o, ok := ownerOf(op[0].Value)
	if op[0].Err != nil || !ok {
		io.fail(errNoOwner)
	}
	return o
}

// pass makes another key the owner of a generation. It is called between the writes of the header
// there and its removal here, so that compaction finds a header at any time.
func (io *nodeIO) pass(g generation, was owner, to []byte) {
	o := owner{moves: was.moves + 1, key: to}
	io.do([]kv.Op{{Kind: kv.OpUpsert, Key: ownerKey(g), Value: o.value()}})
}

var errNoOwner = errors.New("this collection is damaged: its owner is missing")

// Orphans finds the nodes and owners of collections that do not exist any more. A program sets it
// as [kv.Options.Orphans], with [Inner].
func Orphans(ctx context.Context, s *kv.Session, keys [][]byte, orphan []bool) error {
	generations := make(map[generation]bool) // whether they are dead
	for _, key := range keys {
		if g, ok := generationOf(key); ok {
			generations[g] = false
		}
	}
	if err := findDead(ctx, s, generations); err != nil {
		return err
	}
	for i, key := range keys {
		g, ok := generationOf(key)
		orphan[i] = ok && generations[g]
	}
	return nil
}

// generationOf returns the generation in the key of a node or an owner.
func generationOf(key []byte) (g generation, ok bool) {
	if len(key) < markSize+len(g) {
		return g, false
	}
	copy(g[:], key[markSize:])
	return g, true
}

// suspect is a generation that may be dead.
type suspect struct {
	gen   generation
	owner kv.Op // the read of its owner
}

// findDead sets those generations to true that are dead. It reads the owner of each, and then the
// record of the owner's key. If there is no header of the generation, either it is dead, or it has
// moved after its owner was read; so the owner is read again, until it stays the same.
func findDead(ctx context.Context, s *kv.Session, generations map[generation]bool) error {
	var suspects []suspect
	for g := range generations {
		suspects = append(suspects, suspect{gen: g})
	}
	if err := readOwners(ctx, s, suspects); err != nil {
		return err
	}
	for len(suspects) > 0 {
		headless, err := withoutHeaders(ctx, s, suspects, generations)
		if err != nil {
			return err
		}
		again := make([]suspect, len(headless))
		for i := range headless {
			again[i].gen = headless[i].gen
		}
		if err := readOwners(ctx, s, again); err != nil {
			return err
		}
		suspects = suspects[:0]
		for i := range headless {
			if same := again[i].owner.Err == nil && string(again[i].owner.Value) == string(headless[i].owner.Value); same {
				generations[headless[i].gen] = true
			} else {
				suspects = append(suspects, again[i])
			}
		}
	}
	return nil
}

func readOwners(ctx context.Context, s *kv.Session, suspects []suspect) error {
	ops := make([]kv.Op, len(suspects))
	for i := range ops {
		ops[i] = kv.Op{Kind: kv.OpRead, Key: ownerKey(suspects[i].gen)}
	}
	err := s.Do(ctx, ops)
	for i := range ops {
		suspects[i].owner = ops[i]
	}
	return err
}

// withoutHeaders returns the suspects whose owners' keys do not have their headers. Those without
// an owner are dead.
func withoutHeaders(ctx context.Context, s *kv.Session, suspects []suspect, generations map[generation]bool) (headless []suspect, err error) {
	var asked []suspect
	var ops []kv.Op
	for _, of := range suspects {
		o, ok := ownerOf(of.owner.Value)
		switch {
		case errors.Is(of.owner.Err, kv.ErrNotFound):
			generations[of.gen] = true
		case ok: // a damaged owner keeps its nodes
			asked = append(asked, of)
			ops = append(ops, kv.Op{Kind: kv.OpRead, Key: o.key})
		}
	}
	if err := s.Do(ctx, ops); err != nil {
		return nil, err
	}
	for i, of := range asked {
		t, h, ok := headerIn(ops[i].Value)
		// A damaged header, and one of a type that a later version has added, may be that of any
		// generation.
		unknown := t == typeOther || t.isSpread() && !ok
		if ops[i].Err != nil || !unknown && (!ok || h.gen != of.gen) {
			headless = append(headless, of)
		}
	}
	return headless, nil
}

// nodesOf returns the numbers of the nodes that a header's collection may have. Of a sorted set, they are those
// of the table of members.
func nodesOf(t valueType, h header) iter.Seq[nodeID] {
	return func(yield func(nodeID) bool) {
		if t == typeSpreadList && len(h.rest) == quickListHeader {
			for id := range listNodes(h) {
				if !yield(id) {
					return
				}
			}
			return
		}
		if isSorted := t == typeSpreadSorted && len(h.rest) == sortedHeader; !isSorted && len(h.rest) != tableHeader {
			return
		}
		for b := range tableBuckets(h) {
			if !yield(nodeID(b)) {
				return
			}
		}
	}
}

// clone copies the nodes of a spread collection for a record's key, and returns the value for it.
func (io *nodeIO) clone(value, key []byte) ([]byte, error) {
	t, h, ok := headerIn(value)
	if !ok {
		return nil, errDamagedHeader
	}
	io.failed = nil
	var sorted spreadSorted
	if t == typeSpreadSorted && !sorted.open(io, nil, h) {
		return nil, errDamagedHeader
	}
	var from, to nodes
	from.begin(io, h.gen)
	to.begin(io, newGeneration())
	io.own(to.gen, key)
	ids := make([]nodeID, 0, bucketsAtOnce)
	flush := func() error {
		err := io.copyNodes(&from, &to, ids)
		ids = ids[:0]
		return err
	}
	for id := range nodesOf(t, h) {
		if ids = append(ids, id); len(ids) == bucketsAtOnce {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if t == typeSpreadSorted {
		if err := io.copyTree(&sorted.tree, &to); err != nil {
			return nil, err
		}
	}
	h.gen = to.gen
	return h.append(appendMark(nil, t)), nil
}

// copyNodes copies nodes of one generation to another.
func (io *nodeIO) copyNodes(from, to *nodes, ids []nodeID) error {
	for _, id := range ids {
		from.want(id)
	}
	io.fetch()
	for _, id := range ids {
		if nd := from.all[id]; len(nd.content) > 0 {
			fresh := to.fresh(id)
			fresh.content, fresh.changed = nd.content, true
		}
	}
	if io.failed != nil {
		return io.failed
	}
	to.store()
	err := io.flush()
	from.releaseAll()
	to.releaseAll()
	return err
}

// copyTree copies the nodes of a tree to another generation, from the root down.
func (io *nodeIO) copyTree(t *scoreTree, to *nodes) error {
	found := []nodeID{t.root} // and not copied yet
	for copied := uint64(0); len(found) > 0; {
		rest := max(len(found)-bucketsAtOnce, 0)
		ids := slices.Clone(found[rest:])
		found = found[:rest]
		if copied += uint64(len(ids)); copied > t.made { // a node is found twice
			return errDamagedNode
		}
		for _, id := range ids {
			t.want(id)
		}
		io.fetch()
		for _, id := range ids {
			_, _, children := t.read(id)
			for _, c := range children {
				found = append(found, c.id)
			}
		}
		if err := io.copyNodes(&t.nodes, to, ids); err != nil {
			return err
		}
	}
	return nil
}
