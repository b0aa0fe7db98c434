package resp

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/redykv/redykv/kv"
)

// SORT and SORT_RO. With BY or GET they read keys that they do not name, and so run while no other
// connection runs commands, as Redis does.

// sorting are the options of SORT.
type sorting struct {
	key, to       []byte // records' keys; to is nil without STORE
	by            []byte // pattern of keys to sort by; nil: by the elements
	get           [][]byte
	unsorted      bool // by has no *
	reverse       bool
	alpha         bool
	offset, count int64 // a negative count is none
}

// sortKey returns SORT, or SORT_RO if readOnly.
func sortKey(readOnly bool) func(*client, request) {
	return func(c *client, r request) {
		o, refusal := c.sorting(r, readOnly)
		if refusal != "" {
			c.fail(refusal)
			return
		}
		show := func() {
			c.withOpened([][]byte{o.key}, false, func() (reply []byte, refusal string) { return c.sort(o) })
		}
		switch outside := o.outside(); {
		case o.to == nil && outside:
			c.exclusively(show)
		case o.to == nil:
			show()
		case outside:
			c.exclusively(func() { c.storeByOthers(o) })
		default:
			c.withOpened([][]byte{o.key, o.to}, true, func() (reply []byte, refusal string) {
				elements, refusal := c.sorted(o)
				if refusal != "" {
					return nil, refusal
				}
				return c.storeSort(elements, o), ""
			})
		}
	}
}

// storeByOthers sorts while the client has the store alone. The keys that it reads are not locked, so it stores
// the result afterwards.
func (c *client) storeByOthers(o *sorting) {
	var elements [][]byte
	c.flush()
	c.borrow()
	err := c.opened([][]byte{o.key}, false, func() error {
		var refusal string
		if elements, refusal = c.sorted(o); refusal != "" {
			return c.refuseOpened(refusal)
		}
		return nil
	})
	if err != nil {
		c.concludeOpened(err, nil)
		return
	}
	c.tellNoted(true, c)
	c.withOpened([][]byte{o.to}, true, func() (reply []byte, refusal string) { return c.storeSort(elements, o), "" })
}

// outside reports whether the command reads keys besides the one that it sorts.
func (o *sorting) outside() bool {
	return o.by != nil && !o.unsorted || slices.ContainsFunc(o.get, func(p []byte) bool { return string(p) != "#" })
}

// sorting parses the options.
func (c *client) sorting(r request, readOnly bool) (o *sorting, refusal string) {
	o = &sorting{key: bytes.Clone(storedKey(c.db, r.arg(1))), count: -1}
	restricted := false
	if c.user != nil && !c.user.Unrestricted() {
		cmd, _ := c.server.table.find(r)
		restricted = !cmd.mayUseAll(c.user, r, AccessRead)
	}
	for i := 2; i < r.len(); i++ {
		left := r.len() - i - 1
		switch option := r.arg(i); {
		case is(option, "asc"):
			o.reverse = false
		case is(option, "desc"):
			o.reverse = true
		case is(option, "alpha"):
			o.alpha = true
		case is(option, "limit") && left >= 2:
			var ok, okCount bool
			o.offset, ok = parseInt(r.arg(i + 1))
			if o.count, okCount = parseInt(r.arg(i + 2)); !ok || !okCount {
				return nil, errNotInteger
			}
			i += 2
		case !readOnly && is(option, "store") && left >= 1:
			i++
			o.to = bytes.Clone(storedKey(c.db, r.arg(i)))
		case is(option, "by") && left >= 1:
			i++
			o.by = append([]byte{}, r.arg(i)...)
			if o.unsorted = !bytes.Contains(o.by, []byte("*")); !o.unsorted && restricted {
				return nil, "ERR BY option of SORT denied due to insufficient ACL permissions."
			}
		case is(option, "get") && left >= 1:
			if i++; restricted {
				return nil, "ERR GET option of SORT denied due to insufficient ACL permissions."
			}
			o.get = append(o.get, append([]byte{}, r.arg(i)...))
		default:
			return nil, errSyntax
		}
	}
	return o, ""
}

// sortItem is an element and what it is sorted by.
type sortItem struct {
	element []byte
	score   float64
	text    []byte // with ALPHA; nil is before all others
}

// sort returns the reply. The key is open.
func (c *client) sort(o *sorting) (reply []byte, refusal string) {
	items, refusal := c.order(o)
	if refusal != "" {
		return nil, refusal
	}
	k := call{resp3: c.resp3, most: c.server.opts.MaxReplies}
	k.array(len(items) * max(len(o.get), 1))
	for i := 0; i < len(items) && !k.full(); i++ {
		if len(o.get) == 0 {
			k.bulk(items[i].element)
		}
		for _, pattern := range o.get {
			if k.full() {
				break
			}
			if value, ok := c.follow(pattern, items[i].element); ok {
				k.bulk(value)
			} else {
				k.null()
			}
		}
	}
	return k.out, cmp.Or(k.refused, c.worker.collections.io.err())
}

// order returns the items in their order, and within the limit. The key is open.
func (c *client) order(o *sorting) (items []sortItem, refusal string) {
	c.keepNodes()
	if items, refusal = c.itemsOf(o); refusal != "" {
		return nil, refusal
	}
	if !o.unsorted {
		if refusal = c.weigh(items, o); refusal != "" {
			return nil, refusal
		}
		slices.SortStableFunc(items, o.compare)
	}
	return o.limit(items), ""
}

// itemsOf returns the elements of the list, set or sorted set to be sorted.
func (c *client) itemsOf(o *sorting) (items []sortItem, refusal string) {
	col := c.worker.collections.of(o.key)
	if !col.exists() {
		c.noteMiss(o.key)
		return nil, ""
	}
	add := func(element []byte) bool {
		items = append(items, sortItem{element: bytes.Clone(element)})
		return true
	}
	switch family := col.typ.family(); family {
	case typeList:
		if l := col.asList(); l.count() > 0 {
			l.each(0, false, add)
		}
	case typeSorted:
		s, from := col.asSorted(), 0
		descending := o.unsorted && o.reverse
		if descending {
			from = s.count() - 1
		}
		s.each(from, descending, func(_ float64, member []byte) bool { return add(member) })
	case typeSet:
		col.elements().each(func(member, _ []byte) bool { return add(member) })
		if o.unsorted && o.to != nil { // the order of a stored list must not be accidental
			o.unsorted, o.alpha, o.by = false, true, nil
		}
	default:
		return nil, errWrongType
	}
	return items, col.fault()
}

// weigh sets what the items are sorted by.
func (c *client) weigh(items []sortItem, o *sorting) (refusal string) {
	for i := range items {
		it := &items[i]
		by, ok := it.element, true
		if o.by != nil {
			by, ok = c.follow(o.by, it.element)
		}
		switch {
		case !ok:
		case o.alpha:
			it.text = append([]byte{}, by...)
		default:
			by, _, _ = bytes.Cut(by, []byte{0}) // as C's strings end
			if it.score, ok = parseBound(by); !ok || math.IsInf(it.score, 0) && bytes.ContainsAny(by, "0123456789") || it.score == 0 && !isZero(by) {
				refusal = "ERR One or more scores can't be converted into double" // as Redis, which looks at all other items
			}
		}
	}
	return cmp.Or(c.worker.collections.io.err(), refusal)
}

// compare compares items. Those of the same score are in the order of their bytes.
func (o *sorting) compare(a, b sortItem) int {
	var order int
	switch {
	case !o.alpha:
		if order = cmp.Compare(a.score, b.score); order == 0 {
			order = bytes.Compare(a.element, b.element)
		}
	case a.text == nil && b.text != nil:
		order = -1
	case a.text != nil && b.text == nil:
		order = 1
	default:
		order = bytes.Compare(a.text, b.text)
	}
	if o.reverse {
		return -order
	}
	return order
}

// limit returns the items within the limit.
func (o *sorting) limit(items []sortItem) []sortItem {
	n := int64(len(items))
	from := min(max(o.offset, 0), n)
	if o.count < 0 || o.count > n-from {
		return items[from:]
	}
	return items[from : from+o.count]
}

// follow returns the value of the key, or of the field of a hash, that a pattern names with an
// element in place of its *.
func (c *client) follow(pattern, element []byte) (value []byte, ok bool) {
	if string(pattern) == "#" {
		return element, true
	}
	before, after, ok := bytes.Cut(pattern, []byte("*"))
	if !ok {
		return nil, false
	}
	var field []byte
	if key, f, ok := bytes.Cut(after, []byte("->")); ok && len(f) > 0 {
		after, field = key, f
	}
	w := c.worker
	ops := []kv.Op{{Kind: kv.OpRead, Key: storedKey(c.db, slices.Concat(before, element, after))}}
	w.collections.io.do(ops)
	if ops[0].Err != nil {
		c.noteMiss(ops[0].Key)
		return nil, false
	}
	if field == nil {
		return stringOf(ops[0].Value)
	}
	if t, content := typed(ops[0].Value); t.family() == typeHash && !t.isSpread() {
		p := packed{rest: content, family: typeHash}
		value, ok = p.get(field)
		w.collections.io.refuse(p.err())
		return value, ok
	}
	var col collection
	col.open(&w.collections.io, &ops[0], c.server.opts.MaxReplies)
	if col.typ.family() != typeHash || w.collections.io.failed != nil {
		return nil, false
	}
	value, ok = col.elements().get(field)
	value = bytes.Clone(value)
	col.releaseAll()
	return value, ok
}

// sorted returns the elements to store. The key is open.
func (c *client) sorted(o *sorting) (elements [][]byte, refusal string) {
	items, refusal := c.order(o)
	if refusal != "" {
		return nil, refusal
	}
	for _, it := range items {
		if len(o.get) == 0 {
			elements = append(elements, it.element)
		}
		for _, pattern := range o.get {
			value, _ := c.follow(pattern, it.element)
			elements = append(elements, value)
		}
	}
	return elements, c.worker.collections.io.err()
}

// storeSort stores elements as a list, and returns the reply, their number. The key is open.
func (c *client) storeSort(elements [][]byte, o *sorting) (reply []byte) {
	to := c.worker.collections.of(o.to)
	to.reset(typeList)
	for _, e := range elements {
		to.list.push(false, e)
	}
	to.changed = true
	c.noteStored(to, classList, "sortstore")
	return appendInt(nil, int64(len(elements)))
}
