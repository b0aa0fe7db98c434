package resp

import (
	"bytes"
	"errors"

	"github.com/redykv/redykv/kv"
)

// A command on a hash or a set is first tried as one operation of the batch, on the packed value. If
// the value is spread over nodes, or would become too large to be packed, the command is deferred:
// after the batch has run, and in its order among the replies, it is carried out on the collection,
// which is opened under the lock of its key. Neighbouring commands of this kind form a group: they
// share the locks, the reads of nodes and the writes.

// Sizes in bytes of packed contents. A collection that exceeds packedMost is spread; a spread one
// that has become smaller than packedAgain is packed.
const (
	packedMost  = 4 << 10
	packedAgain = packedMost / 4
)

// collection is what a key holds, while the key's lock is held. It may be changed, and is
// then stored.
type collection struct {
	key     []byte // of the record
	value   []byte // of the record
	expires int64
	existed bool  // there is a record
	undo    kv.Op // restores the record
	typ     valueType
	spread  bool // the elements are in table, else in pairs
	pairs   pairs
	table   hashTable
	changed bool

	list   packedList
	quick  quickList // a spread list
	sorted packedSorted
	scored spreadSorted // a spread sorted set
}

// open takes over what was read of the key.
func (col *collection) open(io *nodeIO, op *kv.Op, most int64) {
	col.key, col.value, col.expires = op.Key, op.Value, op.Expires
	col.existed, col.changed, col.spread, col.typ = op.Err == nil, false, false, typeNone
	if col.undo = undoOf(op); !col.existed {
		return
	}
	t, content := typed(op.Value)
	switch col.typ = t; {
	case t == typeSpreadList:
		h, ok := headerOf(content)
		if !ok || !col.quick.open(io, col.key, h) {
			io.fail(errDamagedHeader)
		}
		col.spread = true
	case t == typeSpreadSorted:
		h, ok := headerOf(content)
		if !ok || !col.scored.open(io, col.key, h) {
			io.fail(errDamagedHeader)
		}
		col.spread = true
	case t == typeList:
		col.list.open(content)
	case t.family() == typeSorted:
		col.sorted.open(t, content)
	case t.isSpread():
		h, ok := headerOf(content)
		if !ok || !col.table.open(io, t.family(), h) {
			io.fail(errDamagedHeader)
		}
		col.spread, col.table.most = true, most
	case t.isElements():
		if !col.pairs.load(content, t) {
			io.refuse(col.pairs.err())
		}
	}
}

var errDamagedHeader = errors.New("the header of this collection is damaged")

// exists reports whether the key exists, after the changes so far.
func (col *collection) exists() bool {
	switch {
	case col.typ == typeNone:
		return false
	case col.typ.family() == typeList:
		return col.asList().count() > 0 || col.fault() != ""
	case col.typ.family() == typeSorted:
		return col.asSorted().count() > 0 || col.fault() != ""
	case col.spread:
		return col.table.count > 0
	case col.typ.isElements():
		return col.pairs.live > 0
	}
	return true
}

// elements returns the elements of a hash or set.
func (col *collection) elements() changeable {
	if col.spread {
		return &col.table
	}
	return &col.pairs
}

// hasTable reports whether the elements are those of a spread hash or set.
func (col *collection) hasTable() bool { return col.spread && col.typ.isElements() }

// asList returns the elements of a list.
func (col *collection) asList() list {
	if col.spread {
		return &col.quick
	}
	return &col.list
}

// asSorted returns the entries of a sorted set.
func (col *collection) asSorted() sortedSet {
	if col.spread {
		return &col.scored
	}
	return &col.sorted
}

// fault returns "", or the error reply after which all results are undefined.
func (col *collection) fault() string {
	switch col.typ.family() {
	case typeList:
		return col.asList().fault()
	case typeSorted:
		return col.asSorted().fault()
	}
	return col.elements().err()
}

// releaseAll forgets all nodes, with their changes.
func (col *collection) releaseAll() {
	col.table.releaseAll()
	col.quick.releaseAll()
	col.scored.releaseAll()
}

// reset makes the key hold an empty packed collection, as if it was new.
func (col *collection) reset(family valueType) {
	col.releaseAll()
	col.spread, col.typ, col.expires = false, family, 0
	col.list.open(nil)
	col.sorted.open(typeNone, nil)
	if family == typeSet {
		col.typ = typeIntSet // until there is a member
	}
	col.pairs.load(nil, col.typ)
}

// prepare decides how a changed collection is stored. packedMost is the most bytes of a packed
// content. It returns an error if the store would refuse one of the records.
func (col *collection) prepare(io *nodeIO, packedMost int) error {
	switch {
	case !col.exists():
		return nil
	case col.typ.family() == typeList:
		return col.prepareList(io, packedMost)
	case col.typ.family() == typeSorted:
		return col.prepareSorted(io, packedMost)
	case !col.typ.isElements():
		return nil
	case !col.spread && col.pairs.size() > packedMost:
		col.toTable(io)
	case col.spread:
		if col.table.balance(); col.table.weight <= packedAgain && io.failed == nil {
			col.toPairs()
		}
	}
	if io.failed != nil {
		return io.failed
	}
	col.value = col.value[:0:0] // the pairs may lie there
	if col.spread {
		h := col.table.header()
		col.value = h.append(appendMark(nil, col.table.spreadType()))
		if err := col.table.check(); err != nil {
			return err
		}
	} else {
		col.value = col.pairs.appendTo(nil)
	}
	return io.session.CheckSize(len(col.key), len(col.value))
}

// prepareList is prepare for a list.
func (col *collection) prepareList(io *nodeIO, packedMost int) error {
	switch q := &col.quick; {
	case !col.spread && col.list.size() > packedMost:
		q.create(io, col.key)
		col.list.each(0, false, func(e []byte) bool {
			q.push(false, e)
			return true
		})
		col.spread, col.typ = true, typeSpreadList
	case col.spread && q.weight <= packedAgain:
		col.list.open(nil)
		q.each(0, false, func(e []byte) bool {
			col.list.push(false, bytes.Clone(e))
			return true
		})
		q.releaseAll()
		col.spread, col.typ = false, typeList
	case col.spread && q.isSparse():
		q.rebuild(0, 0, nil)
	}
	io.refuse(col.fault())
	if io.failed != nil {
		return io.failed
	}
	if !col.spread {
		col.value = col.list.appendTo(nil)
	} else {
		col.quick.own()
		h := col.quick.header()
		col.value = h.append(appendMark(nil, typeSpreadList))
		if err := col.quick.check(); err != nil {
			return err
		}
	}
	return io.session.CheckSize(len(col.key), len(col.value))
}

// prepareSorted is prepare for a sorted set.
func (col *collection) prepareSorted(io *nodeIO, packedMost int) error {
	s := &col.scored
	switch {
	case !col.spread && col.sorted.size() > packedMost:
		col.spreadSorted(io)
	case col.spread && s.members.weight <= packedAgain:
		var entries []entry
		s.each(0, false, func(score float64, member []byte) bool {
			entries = append(entries, entry{score, bytes.Clone(member)})
			return true
		})
		col.sorted.fill(entries)
		col.sorted.large = s.skips
		s.releaseAll()
		col.spread, col.typ = false, typeSorted
	}
	io.refuse(col.fault())
	if io.failed != nil {
		return io.failed
	}
	if !col.spread {
		col.value = col.sorted.appendTo(nil)
	} else {
		if s.members.balance(); io.failed != nil {
			return io.failed
		}
		s.own()
		h := s.header()
		col.value = h.append(appendMark(nil, typeSpreadSorted))
		if err := s.check(); err != nil {
			return err
		}
	}
	return io.session.CheckSize(len(col.key), len(col.value))
}

// spreadSorted spreads a packed sorted set.
func (col *collection) spreadSorted(io *nodeIO) {
	s := &col.scored
	s.create(io, col.key, col.sorted.entries, uint64(col.sorted.size()))
	s.skips, s.changed = s.skips || col.sorted.large, col.sorted.changed
	col.spread, col.typ = true, typeSpreadSorted
}

// toTable spreads a packed collection.
func (col *collection) toTable(io *nodeIO) {
	family := col.pairs.typ.family()
	weight := uint64(0)
	col.pairs.each(func(field, value []byte) bool {
		n := partSize(field)
		if family == typeHash {
			n += partSize(value)
		}
		weight += weigh(n)
		return true
	})
	t := &col.table
	t.create(io, col.pairs.typ, weight)
	col.pairs.each(func(field, value []byte) bool {
		t.set(field, value)
		return true
	})
	t.typ, col.spread = col.pairs.typ, true
	io.own(t.gen, col.key)
}

// toPairs packs a spread collection. Its generation dies.
func (col *collection) toPairs() {
	t := &col.table
	col.pairs.load(nil, t.typ)
	t.each(func(field, value []byte) bool {
		col.pairs.set(bytes.Clone(field), bytes.Clone(value))
		return true
	})
	if col.pairs.typ = t.typ; t.io.failed == nil {
		t.releaseAll()
		col.spread = false
	}
}

// store adds the writes to the batch of io.
func (col *collection) store(io *nodeIO) {
	switch {
	case col.exists():
		switch {
		case col.spread && col.typ == typeSpreadList:
			col.quick.store()
		case col.spread && col.typ == typeSpreadSorted:
			col.scored.store()
		case col.spread:
			col.table.store()
		}
		io.put(kv.Op{Kind: kv.OpUpsert, Key: col.key, Value: col.value, Expires: col.expires}, col.undo)
	case col.existed:
		io.put(kv.Op{Kind: kv.OpDelete, Key: col.key}, col.undo)
	}
	col.existed, col.changed = col.exists(), false
}

// close forgets the collection, with changes that were not stored.
func (col *collection) close() {
	col.releaseAll()
	col.pairs.forget()
	col.list.forget()
	col.sorted.forget()
	col.key, col.value, col.undo = nil, nil, kv.Op{}
}

// collections are the open collections of a worker.
type collections struct {
	io    nodeIO
	list  []*collection
	spare []*collection
	reads []kv.Op
	// byKey has the indexes in list of the opened keys, if these are many.
	byKey map[string]int
	// stored is set if the last command has stored anything.
	stored bool
	events []event // of the last command, in their order, if somebody wants to know
}

// openAll opens what the keys hold, each once, while their locks are held. It returns an error if
// one of them cannot be read. changes is set if they may be changed.
func (c *client) openAll(keys [][]byte, changes bool) error {
	cs := &c.worker.collections
	c.beginNodes(changes)
	cs.reads, cs.stored, cs.events = cs.reads[:0], false, cs.events[:0]
	if cs.byKey = nil; len(keys) > fewKeys {
		cs.byKey = make(map[string]int, len(keys))
	}
	for _, key := range keys {
		if cs.index(key) < 0 {
			if cs.byKey != nil {
				cs.byKey[string(key)] = len(cs.reads)
			}
			cs.reads = append(cs.reads, kv.Op{Kind: kv.OpRead, Key: key})
		}
	}
	cs.io.do(cs.reads)
	for i := range cs.reads {
		cs.add().open(&cs.io, &cs.reads[i], c.server.opts.MaxReplies)
	}
	if changes && c.server.changes.on.Load() && cs.io.failed == nil {
		c.lapseMissing(cs.reads)
	}
	if cache := c.server.opts.Cache; cache != nil {
		cache.noteReads(cs.reads)
	}
	clear(cs.reads)
	return cs.io.failed
}

// fewKeys is the number of keys up to which a key is looked for among all.
const fewKeys = 16

// index returns the index of a key among the reads so far, or -1.
func (cs *collections) index(key []byte) int {
	if cs.byKey != nil {
		if i, ok := cs.byKey[string(key)]; ok {
			return i
		}
		return -1
	}
	for i := range cs.reads {
		if bytes.Equal(cs.reads[i].Key, key) {
			return i
		}
	}
	return -1
}

func (cs *collections) add() *collection {
	var col *collection
	if n := len(cs.spare); n > 0 {
		col, cs.spare = cs.spare[n-1], cs.spare[:n-1]
	} else {
		col = new(collection)
	}
	cs.list = append(cs.list, col)
	return col
}

// of returns the open collection of a key.
func (cs *collections) of(key []byte) *collection {
	if cs.byKey != nil {
		if i := cs.index(key); i >= 0 {
			return cs.list[i]
		}
		return nil
	}
	for _, col := range cs.list {
		if bytes.Equal(col.key, key) {
			return col
		}
	}
	return nil
}

// storeAll stores the changed collections: either all, or none if it returns an error that is not
// errTorn.
func (c *client) storeAll() error {
	cs := &c.worker.collections
	var keys [][]byte
	for _, col := range cs.list {
		if col.changed = col.changed && (col.existed || col.exists()); !col.changed {
			continue
		}
		keys = append(keys, col.key)
		if err := col.prepare(&cs.io, c.worker.packedMost); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	cs.stored = true
	if c.server.blocking.waiting.Load() > 0 {
		for _, key := range keys {
			c.noteKey(key)
		}
	}
	watched := c.server.watches.beginKeys(keys)
	for _, col := range cs.list {
		if col.changed {
			col.store(&cs.io)
		}
	}
	err := cs.io.flush()
	if watched {
		c.server.watches.endKeys(keys)
	}
	if errors.Is(err, errTorn) {
		c.server.tellTorn(keys)
	}
	return err
}

// closeAll closes all open collections.
func (cs *collections) closeAll() {
	for _, col := range cs.list {
		col.close()
	}
	cs.spare = append(cs.spare, cs.list...)
	cs.list, cs.byKey = cs.list[:0], nil
	if len(cs.spare) > maxBatch {
		cs.spare = nil
	}
}
