package resp

import (
	"bytes"
	"errors"
	"math"
	"slices"
)

// SINTER, SUNION, SDIFF and their relatives. Each goes through the members of some sets, and leaves
// out those that other sets have, or have not, a chunk at a time.

type setOperation uint8

const (
	intersect setOperation = iota
	unite
	uniteAll // unite, with members of several sets several times
	subtract
)

// setCommand returns the function of a command without a destination.
func setCommand(op setOperation) func(*client, request) {
	return func(c *client, r request) {
		n := 0
		out := []byte(nil)
		err := c.combine(op, c.storedKeys(r, 1, r.len()), func(member []byte) error {
			out = appendBulk(out, member)
			if n++; int64(len(out)) > c.server.opts.MaxReplies {
				return errLargeReply
			}
			return nil
		})
		c.concludeOpened(err, func(to []byte) []byte { return append(appendSet(to, c.resp3, n), out...) })
	}
}

// storedKeys returns the records' keys of the arguments in [from, to).
func (c *client) storedKeys(r request, from, to int) (keys [][]byte) {
	for i := from; i < to; i++ {
		keys = append(keys, storedKey(c.db, r.arg(i)))
	}
	return keys
}

// sinterCard implements SINTERCARD.
func sinterCard(c *client, r request) {
	n, ok := parseInt(r.arg(1))
	limit := int64(0)
	switch {
	case !ok || n < 1:
		c.fail(errNumKeys)
		return
	case n > int64(r.len()-2):
		c.fail(errTooManyKeys)
		return
	}
	for i := int(n) + 2; i < r.len(); i += 2 {
		if !is(r.arg(i), "limit") || i+1 == r.len() {
			c.fail(errSyntax)
			return
		}
		if limit, ok = parseInt(r.arg(i + 1)); !ok || limit < 0 {
			c.fail(errLimit)
			return
		}
	}
	found := int64(0)
	err := c.combine(intersect, c.storedKeys(r, 2, int(n)+2), func([]byte) error {
		if found++; found == limit {
			return errEnough
		}
		return nil
	})
	c.concludeOpened(err, func(out []byte) []byte { return appendInt(out, found) })
}

// combine calls emit with the members of the result, while the keys are locked for reading. emit must
// not keep them.
func (c *client) combine(op setOperation, keys [][]byte, emit func(member []byte) error) error {
	c.flush()
	c.borrow()
	return c.opened(keys, false, func() error { return c.combineOpened(op, keys, emit) })
}

// combineOpened is combine for keys that are open.
func (c *client) combineOpened(op setOperation, keys [][]byte, emit func(member []byte) error) error {
	sets, err := c.setsOf(keys)
	if err != nil {
		return err
	}
	if err = combineSets(op, sets, emit); errors.Is(err, errEnough) {
		err = nil
	}
	if failed := c.worker.collections.io.failed; failed != nil {
		return failed
	}
	return err
}

// setsOf returns the open sets of keys; nil stands for a key that does not exist.
func (c *client) setsOf(keys [][]byte) (sets []*collection, err error) {
	for _, key := range keys {
		col := c.worker.collections.of(key)
		switch {
		case !col.exists():
			c.noteMiss(key)
			col = nil
		case !col.typ.isFor(typeSet):
			return nil, c.refuseOpened(errWrongType)
		default:
			col.table.most = math.MaxInt64 // emit limits what is replied
		}
		sets = append(sets, col)
	}
	return sets, nil
}

// combineSets calls emit with the members of the result.
func combineSets(op setOperation, sets []*collection, emit func(member []byte) error) error {
	switch op {
	case intersect:
		if slices.Contains(sets, nil) {
			return nil
		}
		sets = distinct(sets)
		slices.SortStableFunc(sets, func(a, b *collection) int { return a.elements().len() - b.elements().len() })
		return filtered(sets[0], sets[1:], true, emit)
	case subtract:
		if sets[0] == nil || slices.Contains(sets[1:], sets[0]) {
			return nil
		}
		return filtered(sets[0], distinct(sets[1:]), false, emit)
	}
	sets = distinct(sets)
	if op == unite && len(sets) > fewKeys { // looked for in each of the others, members would be looked for too often
		emit = once(emit)
		op = uniteAll
	}
	for i, set := range sets {
		others := sets[:i]
		if op == uniteAll {
			others = nil
		}
		if err := filtered(set, others, false, emit); err != nil {
			return err
		}
	}
	return nil
}

// once returns a function that calls emit with each member once.
func once(emit func(member []byte) error) func(member []byte) error {
	seen := make(map[string]struct{})
	return func(member []byte) error {
		if _, is := seen[string(member)]; is {
			return nil
		}
		seen[string(member)] = struct{}{}
		return emit(member)
	}
}

// distinct returns the sets that exist, each once.
func distinct(sets []*collection) (different []*collection) {
	seen := make(map[*collection]bool)
	for _, set := range sets {
		if set != nil && !seen[set] {
			seen[set] = true
			different = append(different, set)
		}
	}
	return different
}

// chunk is the number of members that are looked up together.
const chunk = 256

// filtered calls emit with the members of a set that all of the others have, or that none has.
func filtered(of *collection, others []*collection, have bool, emit func(member []byte) error) (err error) {
	var members [][]byte
	var memory []byte // of members
	flush := func() {
		for _, other := range others {
			members = other.filter(members, have)
		}
		for _, member := range members {
			if err = emit(member); err != nil {
				break
			}
		}
		members, memory = members[:0], memory[:0]
	}
	of.elements().each(func(member, _ []byte) bool {
		from := len(memory)
		memory = append(memory, member...)
		members = append(members, memory[from:len(memory):len(memory)])
		if len(members) == chunk {
			flush()
		}
		return err == nil
	})
	if err == nil {
		flush()
	}
	return err
}

// filter removes the members that the set does not have, or has.
func (col *collection) filter(members [][]byte, have bool) [][]byte {
	if col.spread {
		for _, member := range members {
			col.table.prefetch(member)
		}
		col.table.io.fetch()
	}
	members = slices.DeleteFunc(members, func(member []byte) bool {
		_, has := col.elements().get(member)
		return has != have
	})
	if col.spread {
		col.table.releaseUnchanged()
	}
	return members
}

// setStoreCommand returns the function of a command with a destination.
func setStoreCommand(op setOperation) func(*client, request) {
	event := []string{intersect: "sinterstore", unite: "sunionstore", subtract: "sdiffstore"}[op]
	return func(c *client, r request) {
		keys := c.storedKeys(r, 1, r.len())
		n := 0
		c.flush()
		c.borrow()
		err := c.opened(keys, true, func() error {
			c.keepNodes()
			b := c.build(keys[0], typeSet)
			if sets, err := c.setsOf(keys[1:]); err != nil {
				return err
			} else if op == intersect && !slices.Contains(sets, nil) {
				b.likeSmallest(sets)
			}
			c.worker.collections.events = c.worker.collections.events[:0] // combineOpened notes the misses
			how := op
			if op == unite {
				how = uniteAll // the set takes a member once
			}
			if err := c.combineOpened(how, keys[1:], b.add); err != nil {
				return err
			}
			err := b.finish()
			n = b.col.elements().len()
			c.noteStored(b.col, classSet, event)
			return err
		})
		c.concludeOpened(err, func(out []byte) []byte { return appendInt(out, int64(n)) })
	}
}

// builder makes the set that replaces what an open key holds. It writes the nodes of a large one in
// between, so that it takes little memory.
type builder struct {
	c       *client
	col     *collection
	size    int // of the packed content
	pending [][]byte
	bytes   []byte
}

// build begins a collection for a key that is open.
func (c *client) build(key []byte, family valueType) *builder {
	cs := &c.worker.collections
	was := cs.of(key)
	col := cs.add()
	col.key, col.existed, col.undo, col.changed = was.key, was.existed, was.undo, true
	col.reset(family)
	return &builder{c: c, col: col}
}

// likeSmallest gives the result of an intersection the encoding with which Redis begins it.
func (b *builder) likeSmallest(sets []*collection) {
	smallest := slices.MinFunc(sets, func(a, b *collection) int { return a.elements().len() - b.elements().len() })
	t := smallest.pairs.typ
	if smallest.spread {
		t = smallest.table.typ
	}
	if t != typeIntSet {
		b.col.pairs.typ = typeSet
	}
}

// add adds a member, if the set does not have it.
func (b *builder) add(member []byte) error {
	if !b.col.spread {
		if !b.col.pairs.set(bytes.Clone(member), nil) {
			return nil
		}
		if b.size += partSize(member); b.size > b.c.worker.packedMost {
			b.col.toTable(&b.c.worker.collections.io)
		}
		return nil
	}
	from := len(b.bytes)
	b.bytes = append(b.bytes, member...)
	b.pending = append(b.pending, b.bytes[from:len(b.bytes):len(b.bytes)])
	if len(b.pending) == chunk {
		return b.flush()
	}
	return nil
}

// flush adds the pending members to the table.
func (b *builder) flush() error {
	t := &b.col.table
	for _, member := range b.pending {
		t.prefetch(member)
	}
	t.io.fetch()
	for _, member := range b.pending {
		t.set(member, nil)
	}
	b.pending, b.bytes = b.pending[:0], b.bytes[:0]
	t.balance()
	if len(t.all) > manyNodes && t.io.failed == nil {
		if err := t.check(); err != nil {
			return err
		}
		t.store()
		if err := t.io.flush(); err != nil {
			return err
		}
		t.releaseAll()
	}
	return t.io.failed
}

// finish adds what is left. Redis gives a list of integers the encoding of integers at last.
func (b *builder) finish() error {
	if b.col.spread {
		return b.flush()
	}
	if p := &b.col.pairs; p.typ == typeSet {
		allInts := true
		p.each(func(member, _ []byte) bool { _, allInts = parseInt(member); return allInts })
		if allInts {
			list := p.list
			p.load(nil, typeIntSet)
			for _, of := range slices.Clone(list) {
				p.set(of.field, nil)
			}
		}
	}
	return nil
}
