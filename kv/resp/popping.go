package resp

import (
	"bytes"
	"cmp"
)

// Commands that take elements from the first of several keys that has any: LMOVE, LMPOP, ZMPOP
// and their kin, at once or as soon as there are elements (blocking.go).

// popForm is the form of the reply.
type popForm uint8

const (
	popPair    popForm = iota // the key and an element; of a sorted set, its score too
	popSeveral                // the key and an array of elements
	popMove                   // the element, which was moved to another list
)

// popping says what is taken.
type popping struct {
	sorted bool  // from a sorted set
	front  bool  // the first elements, else the last ones
	count  int64 // with popSeveral, the most elements
	form   popForm
	// With popMove, the record's key of the list that receives the element, and its end.
	to      []byte
	toFront bool

	db    uint8
	names [][]byte // the client's keys, in its database
	resp3 bool
}

// none appends the reply if there is no element.
func (p *popping) none(out []byte) []byte {
	if p.form == popMove {
		return appendNull(out, p.resp3)
	}
	return appendNullArray(out, p.resp3)
}

// keys returns the records' keys that are locked while elements are taken from some of the names.
func (p *popping) keys(names ...[]byte) (keys [][]byte) {
	for _, name := range names {
		keys = append(keys, storedKey(p.db, name))
	}
	if p.form == popMove {
		keys = append(keys, p.to)
	}
	return keys
}

// bytes returns the memory that the keys take while a client waits for them, about.
func (p *popping) bytes() (n int64) {
	const perKey = 128 // in the queues, and its headers
	for _, name := range p.names {
		n += 2*int64(len(name)) + perKey // here and in the queues
	}
	return n
}

// of returns p for the client, with its keys. The keys are copied, as the client may wait.
func (p popping) of(c *client, names [][]byte) *popping {
	p.db, p.resp3 = c.db, c.resp3
	for _, name := range names {
		p.names = append(p.names, bytes.Clone(name))
	}
	return &p
}

// popFirst takes elements from the first of the keys that has any, and returns the reply, which
// is nil if none has. The keys are open.
func (c *client) popFirst(p *popping) (reply []byte, refusal string) {
	for _, name := range p.names {
		if reply, refusal = c.popFrom(p, name); reply != nil || refusal != "" {
			return reply, refusal
		}
	}
	return nil, ""
}

// popFrom takes elements from one key.
func (c *client) popFrom(p *popping, name []byte) (reply []byte, refusal string) {
	if p.sorted {
		return c.popSorted(p, name)
	}
	col, refusal := c.listAt(storedKey(p.db, name))
	if refusal != "" || col.asList().count() == 0 {
		return nil, refusal
	}
	if p.form == popMove {
		return c.moveElement(p, col)
	}
	l := col.asList()
	k := call{resp3: p.resp3, most: c.server.opts.MaxReplies}
	k.array(2)
	if k.bulk(name); p.form == popPair {
		k.bulk(l.pop(p.front))
	} else {
		popSome(&k, l, p.front, p.count)
	}
	if int64(len(k.out)) > k.most {
		return nil, errMemory
	}
	col.changed = true
	c.note(col, classList, popEvent(p.front))
	return k.out, col.fault()
}

// moveElement moves an element of a list, which has any.
func (c *client) moveElement(p *popping, from *collection) (reply []byte, refusal string) {
	to, refusal := c.listAt(p.to)
	if refusal != "" {
		return nil, refusal
	}
	existed := to.exists()
	e := bytes.Clone(from.asList().pop(p.front))
	to.asList().push(p.toFront, e)
	from.changed, to.changed = true, true
	if !existed {
		c.noteEvent(classNew, "new", p.to)
	}
	if p.toFront {
		c.noteEvent(classList, "lpush", p.to)
	} else {
		c.noteEvent(classList, "rpush", p.to)
	}
	c.note(from, classList, popEvent(p.front))
	return appendBulk(nil, e), cmp.Or(from.fault(), to.fault())
}

// popSorted takes elements from a sorted set.
func (c *client) popSorted(p *popping, name []byte) (reply []byte, refusal string) {
	col, refusal := c.sortedAt(storedKey(p.db, name))
	if refusal != "" || col.asSorted().count() == 0 {
		return nil, refusal
	}
	s := col.asSorted()
	k := call{resp3: p.resp3, most: c.server.opts.MaxReplies}
	if p.form == popPair {
		k.array(3)
		k.bulk(name)
		popEntries(&k, s, p.front, 1, flatPairs)
	} else {
		k.array(2)
		k.bulk(name)
		k.array(int(min(p.count, int64(s.count()))))
		popEntries(&k, s, p.front, p.count, nestedPairs)
	}
	if k.refused != "" {
		return nil, k.refused
	}
	col.changed = true
	if p.front {
		c.note(col, classSortedSet, "zpopmin")
	} else {
		c.note(col, classSortedSet, "zpopmax")
	}
	return k.out, s.fault()
}

// popEvent returns the event of taking elements from an end of a list.
func popEvent(front bool) string {
	if front {
		return "lpop"
	}
	return "rpop"
}

// popNow takes elements at once.
func (c *client) popNow(p *popping) {
	c.withOpened(p.keys(p.names...), true, func() (reply []byte, refusal string) {
		if reply, refusal = c.popFirst(p); reply == nil {
			reply = p.none(nil)
		}
		return reply, refusal
	})
}

// end parses LEFT or RIGHT.
func end(arg []byte) (front, ok bool) { return is(arg, "left"), is(arg, "left") || is(arg, "right") }

// extreme parses MIN or MAX.
func extreme(arg []byte) (least, ok bool) { return is(arg, "min"), is(arg, "min") || is(arg, "max") }

func lmove(c *client, r request) {
	p, refusal := c.moving(r)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.popNow(p)
}

// moving returns what LMOVE or BLMOVE does.
func (c *client) moving(r request) (p *popping, refusal string) {
	front, ok := end(r.arg(3))
	toFront, okTo := end(r.arg(4))
	if !ok || !okTo {
		return nil, errSyntax
	}
	return c.move(r, front, toFront), ""
}

// move returns the move from the first key to the second.
func (c *client) move(r request, front, toFront bool) *popping {
	p := popping{front: front, form: popMove, to: bytes.Clone(storedKey(c.db, r.arg(2))), toFront: toFront}
	return p.of(c, [][]byte{r.arg(1)})
}

func rpoplpush(c *client, r request) { c.popNow(c.move(r, false, true)) }

func lmpop(c *client, r request) { c.popMany(r, 1, false) }

func zmpop(c *client, r request) { c.popMany(r, 1, true) }

func (c *client) popMany(r request, at int, sorted bool) {
	p, refusal := c.several(r, at, sorted)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.popNow(p)
}

// several returns what LMPOP and its kin do. Argument at is the number of keys.
func (c *client) several(r request, at int, sorted bool) (p *popping, refusal string) {
	n, ok := parseInt(r.arg(at))
	if !ok || n < 1 {
		return nil, errNumKeys
	}
	if n >= int64(r.len()-at-1) {
		return nil, errSyntax
	}
	first, last := at+1, at+1+int(n)
	parse := end
	if sorted {
		parse = extreme
	}
	what := popping{sorted: sorted, form: popSeveral, count: -1}
	if what.front, ok = parse(r.arg(last)); !ok {
		return nil, errSyntax
	}
	for i := last + 1; i < r.len(); i += 2 {
		if what.count >= 0 || !is(r.arg(i), "count") || i+1 == r.len() {
			return nil, errSyntax
		}
		if what.count, ok = parseInt(r.arg(i + 1)); !ok || what.count < 1 {
			return nil, "ERR count should be greater than 0"
		}
	}
	if what.count < 0 {
		what.count = 1
	}
	var names [][]byte
	for i := first; i < last; i++ {
		names = append(names, r.arg(i))
	}
	return what.of(c, names), ""
}
