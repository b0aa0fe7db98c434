package resp

import (
	"bytes"
	"math"
	"math/rand/v2"
)

// SRANDMEMBER and HRANDFIELD.

func srandmember(c *client, r request) {
	switch {
	case r.len() > 3:
		c.fail(errSyntax)
		return
	case r.len() == 2:
		c.readElements(typeSet, r, 2, 0, replyRandom)
		return
	}
	if n, ok := c.randomCount(r); ok {
		c.readElements(typeSet, r, 2, 0, c.replySample(n, false))
	}
}

func hrandfield(c *client, r request) {
	if r.len() == 2 {
		c.readElements(typeHash, r, 2, 0, replyRandom)
		return
	}
	n, ok := c.randomCount(r)
	if !ok {
		return
	}
	values := r.len() == 4
	switch {
	case r.len() > 4, values && !is(r.arg(3), "withvalues"):
		c.fail(errSyntax)
		return
	case values && (n < -math.MaxInt64/2 || n > math.MaxInt64/2):
		c.fail(errOutOfRange)
		return
	}
	c.readElements(typeHash, r, 2, 0, c.replySample(n, values))
}

// randomCount parses the count. If it is refused, ok is false.
func (c *client) randomCount(r request) (n int64, ok bool) {
	n, ok = parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
	case n == math.MinInt64:
		c.fail(errNotLong)
		return 0, false
	}
	return n, ok
}

func replyRandom(out []byte, resp3 bool, e elements, _ [][]byte) []byte {
	if e.len() == 0 {
		return appendNull(out, resp3)
	}
	field, _ := e.random()
	return appendBulk(out, field)
}

// replySample returns the reply with n different random elements, or -n that may be the same.
func (c *client) replySample(n int64, values bool) elementsReply {
	most := int(c.server.opts.MaxReplies)
	return func(out []byte, resp3 bool, e elements, _ [][]byte) []byte {
		at, written := len(out), 0
		put := func(field, value []byte) bool {
			if values && resp3 {
				out = appendArray(out, 2)
			}
			if out = appendBulk(out, field); values {
				out = appendBulk(out, value)
			}
			written++
			return len(out)-at <= most
		}
		switch size := int64(e.len()); {
		case size == 0 || n == 0:
		case -n > int64(most/leastBulk):
			return appendError(out, errMemory)
		case n < 0:
			e = loaded(e, -n)
			for i := n; i < 0 && e.err() == ""; i++ {
				if !put(e.random()) {
					return appendError(out[:at], errMemory)
				}
			}
		case n >= size:
			e.each(put)
		default:
			sample(e, int(n), put)
		}
		if values && !resp3 {
			written *= 2
		}
		return insertHead(out, at, written)
	}
}

// leastBulk is the bytes of the shortest element in a reply.
const leastBulk = len("$0\r\n\r\n")

// loaded returns elements of which any one is found at once: a packed content has to be read for each. It
// reads a table if n, the number of those that are wanted, is larger.
func loaded(e elements, n int64) elements {
	switch e := e.(type) {
	case *packed:
		t := typeTableHash
		if e.family == typeSet {
			t = typeTableSet
		}
		p := pairs{list: make([]pair, 0, e.len())}
		e.damaged = !p.load(e.rest, t)
		return &p
	case *hashTable:
		if n <= int64(e.len()) {
			return e
		}
		p := pairs{typ: e.typ}
		e.each(func(field, value []byte) bool {
			p.list = append(p.list, pair{bytes.Clone(field), bytes.Clone(value)})
			return true
		})
		if p.live = len(p.list); e.err() == "" {
			return &p
		}
	}
	return e
}

// manyRandom is the number of digits of a count of random elements from which a loop does not choose them.
const manyRandom = 5

// choosesMany reports whether a command may choose very many random elements.
func choosesMany(cmd *command, r request) bool {
	if cmd == nil || cmd.flags&flagChooses == 0 || r.len() < 3 {
		return false
	}
	return len(bytes.TrimPrefix(r.arg(2), []byte("-"))) >= manyRandom
}

// insertHead inserts the head of an array of n elements that begin at an offset.
func insertHead(out []byte, at, n int) []byte {
	body := len(out)
	out = appendArray(out, n)
	head := bytes.Clone(out[body:])
	copy(out[at+len(head):], out[at:body])
	copy(out[at:], head)
	return out
}

// sample visits n different random elements, fewer than there are, until put returns false. If they are
// many of all, it reads all elements, else it draws until there are enough.
func sample(e elements, n int, put func(field, value []byte) bool) {
	_, isTable := e.(*hashTable)
	if size := e.len(); !isTable || n > size/3 {
		left := n
		e.each(func(field, value []byte) bool {
			more := true
			if rand.IntN(size) < left {
				left--
				more = put(field, value)
			}
			size--
			return more && left > 0
		})
		return
	}
	drawn := make(map[string]bool, n)
	for len(drawn) < n && e.err() == "" {
		field, value := e.random()
		if !drawn[string(field)] {
			drawn[string(field)] = true
			if !put(field, value) {
				return
			}
		}
	}
}
