package resp

import (
	"bytes"
	"math"
	"slices"
)

// Commands on one list.

func listCommands() []command {
	return of(groupList, []command{
		{name: "lpush", arity: -3, run: changing(lpush), flags: storesFast, keys: oneKey, since: "1.0.0", about: "Add elements at the front of a list"},
		{name: "rpush", arity: -3, run: changing(rpush), flags: storesFast, keys: oneKey, since: "1.0.0", about: "Add elements at the back of a list"},
		{name: "lpushx", arity: -3, run: changing(lpushX), flags: storesFast, keys: oneKey, since: "2.2.0", about: "Add elements at the front of a list that exists"},
		{name: "rpushx", arity: -3, run: changing(rpushX), flags: storesFast, keys: oneKey, since: "2.2.0", about: "Add elements at the back of a list that exists"},
		{name: "lpop", arity: -2, run: pops(true), flags: writesFast, keys: oneKey, since: "1.0.0", about: "Take elements from the front of a list"},
		{name: "rpop", arity: -2, run: pops(false), flags: writesFast, keys: oneKey, since: "1.0.0", about: "Take elements from the back of a list"},
		{name: "llen", arity: 2, run: reading(llen), flags: readsFast, keys: oneKey, since: "1.0.0", about: "Get the length of a list"},
		{name: "lindex", arity: 3, run: reading(lindex), flags: reads, keys: oneKey, since: "1.0.0", about: "Get an element of a list"},
		{name: "lrange", arity: 4, run: withInts(reading(lrange), 2, 3), flags: reads, keys: oneKey, since: "1.0.0", about: "Get a range of a list"},
		{name: "lpos", arity: -3, run: lpos, flags: reads, keys: oneKey, since: "6.0.6", about: "Find elements of a list"},
		{name: "lset", arity: 4, run: changing(lset), flags: stores, keys: oneKey, since: "1.0.0", about: "Replace an element of a list"},
		{name: "linsert", arity: 5, run: insertInto, flags: stores, keys: oneKey, since: "2.2.0", about: "Add an element before or after another one"},
		{name: "lrem", arity: 4, run: withInts(changing(lrem), 2), flags: writes, keys: oneKey, since: "1.0.0", about: "Remove elements that are equal to a value"},
		{name: "ltrim", arity: 4, run: withInts(changing(ltrim), 2, 3), flags: writes, keys: oneKey, since: "1.0.0", about: "Remove the elements outside a range"},
		{name: "lmove", arity: 5, run: lmove, flags: stores, keys: twoKeys, since: "6.2.0", about: "Move an element from an end of a list to an end of another one"},
		{name: "rpoplpush", arity: 3, run: rpoplpush, flags: stores, keys: twoKeys, since: "1.2.0", about: "Move the last element of a list to the front of another one"},
		{name: "lmpop", arity: -4, run: lmpop, flags: writes | flagMovableKeys, keys: manyKeys, since: "7.0.0", about: "Take elements from the first of several lists that has any"},
		{name: "blpop", arity: -3, run: blockingPop(popping{front: true, form: popPair}), flags: waits, keys: firstKeys, since: "2.0.0", about: "Take an element from the front of a list, or wait for one"},
		{name: "brpop", arity: -3, run: blockingPop(popping{form: popPair}), flags: waits, keys: firstKeys, since: "2.0.0", about: "Take an element from the back of a list, or wait for one"},
		{name: "blmove", arity: 6, run: blmove, flags: waits | flagDenyOOM, keys: twoKeys, since: "6.2.0", about: "Move an element from a list to another one, or wait for one"},
		{name: "brpoplpush", arity: 4, run: brpoplpush, flags: waits | flagDenyOOM, keys: twoKeys, since: "2.2.0", about: "Move the last element of a list to the front of another one, or wait for one"},
		{name: "blmpop", arity: -5, run: blmpop, flags: waits&^flagNoScript | flagMovableKeys, keys: lateKeys, since: "7.0.0", about: "Take elements from the first of several lists that has any, or wait for one"},
	})
}

// reading returns a command that reads one list.
func reading(f listCall) func(*client, request) {
	return func(c *client, r request) { c.readList(r, f) }
}

// changing returns a command that changes one list.
func changing(f listCall) func(*client, request) {
	return func(c *client, r request) { c.modifyList(r, f) }
}

// withInts returns a command that is refused before it looks at its key if one of its arguments is
// no integer.
func withInts(run func(*client, request), indexes ...int) func(*client, request) {
	return func(c *client, r request) {
		for _, i := range indexes {
			if _, ok := parseInt(r.arg(i)); !ok {
				c.fail(errNotInteger)
				return
			}
		}
		run(c, r)
	}
}

func lpush(k *call, l list) { pushAll(k, l, true) }

func rpush(k *call, l list) { pushAll(k, l, false) }

func pushAll(k *call, l list, front bool) {
	for _, e := range k.args {
		l.push(front, e)
	}
	k.int(l.count())
}

func lpushX(k *call, l list) {
	if l.count() == 0 {
		k.int(0)
		return
	}
	pushAll(k, l, true)
}

func rpushX(k *call, l list) {
	if l.count() == 0 {
		k.int(0)
		return
	}
	pushAll(k, l, false)
}

// pops returns LPOP or RPOP.
func pops(front bool) func(*client, request) {
	one := func(k *call, l list) {
		if l.count() == 0 {
			k.null()
			return
		}
		k.bulk(l.pop(front))
	}
	several := func(k *call, l list) {
		n, _ := parseInt(k.args[0])
		if l.count() == 0 {
			k.nullArray()
			return
		}
		popSome(k, l, front, n)
	}
	return func(c *client, r request) {
		switch {
		case r.len() == 2:
			c.modifyList(r, one)
		case r.len() > 3:
			c.fail(wrongArity(lowerName(r)))
		case !isCount(r.arg(2)):
			c.fail(errNotPositive)
		default:
			c.modifyList(r, several)
		}
	}
}

// popSome removes up to n elements and replies with an array of them.
func popSome(k *call, l list, front bool, n int64) {
	n = min(n, int64(l.count()))
	k.array(int(n))
	for range n {
		k.bulk(l.pop(front))
		// A list in one record is not larger than the request.
		if q, spread := l.(*quickList); spread && int64(len(k.out)) > k.most {
			q.io.fail(errLargeReply) // nothing is stored
		}
		if l.fault() != "" {
			return
		}
	}
}

// isCount reports whether an argument is an integer of at least 0.
func isCount(arg []byte) bool {
	n, ok := parseInt(arg)
	return ok && n >= 0
}

// lowerName returns the name of a request's command.
func lowerName(r request) string { return string(bytes.ToLower(r.arg(0))) }

func llen(k *call, l list) { k.int(l.count()) }

func lindex(k *call, l list) {
	if l.count() == 0 {
		k.null()
		return
	}
	i, ok := parseInt(k.args[0])
	switch at, found := indexOf(i, l.count()); {
	case !ok:
		k.refuse(errNotInteger)
	case !found:
		k.null()
	default:
		k.bulk(elementAt(l, at))
	}
}

// indexOf returns the position of the i-th of n elements, counted from the end if i is negative.
func indexOf(i int64, n int) (at int, found bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// spanOf returns the positions of a range, whose end is inclusive, among n elements.
func spanOf(from, to int64, n int) (first, end int) {
	if from < 0 {
		from = max(from+int64(n), 0)
	}
	if to < 0 {
		to += int64(n)
	}
	to = min(to, int64(n)-1)
	if from > to {
		return 0, 0
	}
	return int(from), int(to) + 1
}

// rangeOf returns the positions of the range that the first two arguments, integers, are.
func (k *call) rangeOf(n int) (from, to int) {
	a, _ := parseInt(k.args[0])
	b, _ := parseInt(k.args[1])
	return spanOf(a, b, n)
}

func lrange(k *call, l list) {
	from, to := k.rangeOf(l.count())
	if k.array(to - from); from == to {
		return
	}
	left := to - from
	l.each(from, false, func(e []byte) bool {
		k.bulk(e)
		left--
		return left > 0 && !k.full()
	})
}

func lset(k *call, l list) {
	if l.count() == 0 {
		k.refuse(errNoKey)
		return
	}
	i, ok := parseInt(k.args[0])
	switch at, found := indexOf(i, l.count()); {
	case !ok:
		k.refuse(errNotInteger)
	case !found:
		k.refuse(errIndex)
	default:
		l.set(at, k.args[1])
		k.out = appendSimple(k.out, "OK")
	}
}

func insertInto(c *client, r request) {
	if !is(r.arg(2), "after") && !is(r.arg(2), "before") {
		c.fail(errSyntax)
		return
	}
	c.modifyList(r, linsert)
}

func linsert(k *call, l list) {
	if l.count() == 0 {
		k.int(0)
		return
	}
	found := find(l, k.args[1], false, 1)
	if len(found) == 0 {
		k.int(-1)
		return
	}
	at := found[0]
	if is(k.args[0], "after") {
		at++
	}
	l.insert(at, k.args[2])
	k.int(l.count())
}

// find returns the indexes of the first most elements that equal a value, from the front or from
// the back.
func find(l list, value []byte, backward bool, most int64) (found []int) {
	n := l.count()
	if n == 0 {
		return nil
	}
	i, step := 0, 1
	if backward {
		i, step = n-1, -1
	}
	l.each(i, backward, func(e []byte) bool {
		if bytes.Equal(e, value) {
			found = append(found, i)
		}
		i += step
		return int64(len(found)) < most
	})
	return found
}

func lrem(k *call, l list) {
	n, _ := parseInt(k.args[0])
	most, backward := n, n < 0
	switch {
	case n == 0 || n == math.MinInt64:
		most = math.MaxInt64
	case backward:
		most = -n
	}
	found := find(l, k.args[1], backward, most)
	if backward {
		slices.Reverse(found)
	}
	l.remove(found)
	k.int(len(found))
}

func ltrim(k *call, l list) {
	n := l.count()
	if from, to := k.rangeOf(n); to-from < n {
		l.cut(to, n)
		l.cut(0, from)
	}
	k.out = appendSimple(k.out, "OK")
}

// positions are the options of LPOS.
type positions struct {
	rank, count, most int64
	backward, several bool
}

func positionsOf(r request) (o positions, refusal string) {
	o.rank = 1
	for i := 3; i < r.len(); i += 2 {
		if i+1 == r.len() {
			return o, errSyntax
		}
		n, ok := parseInt(r.arg(i + 1))
		switch option := r.arg(i); {
		case is(option, "rank"):
			switch {
			case !ok:
				return o, errNotInteger
			case n == 0:
				return o, errRank
			}
			o.rank, o.backward = max(n, -n), n < 0
		case is(option, "count"):
			if !ok || n < 0 {
				return o, "ERR COUNT can't be negative"
			}
			o.count, o.several = n, true
		case is(option, "maxlen"):
			if !ok || n < 0 {
				return o, "ERR MAXLEN can't be negative"
			}
			o.most = n
		default:
			return o, errSyntax
		}
	}
	return o, ""
}

func lpos(c *client, r request) {
	o, refusal := positionsOf(r)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.readList(r, func(k *call, l list) {
		at := len(k.out)
		switch n := o.find(k, l, k.args[0]); {
		case o.several:
			k.out = insertHead(k.out, at, int(n))
		case n == 0:
			k.null()
		}
	})
}

// find appends the indexes of the elements that LPOS asks for, and returns their number.
func (o *positions) find(k *call, l list, value []byte) (found int64) {
	n := l.count()
	if n == 0 {
		return 0
	}
	most := int64(1)
	if o.several && o.count > 0 {
		most = o.count
	} else if o.several {
		most = math.MaxInt64
	}
	i, step := 0, 1
	if o.backward {
		i, step = n-1, -1
	}
	seen, matches := int64(0), int64(0)
	l.each(i, o.backward, func(e []byte) bool {
		if bytes.Equal(e, value) {
			if matches++; matches >= o.rank {
				k.int(i)
				found++
			}
		}
		i += step
		seen++
		return found < most && (o.most == 0 || seen < o.most) && !k.full()
	})
	return found
}
