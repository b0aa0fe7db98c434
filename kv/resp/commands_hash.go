package resp

import (
	"bytes"
	"strconv"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands on hashes.

func hget(c *client, r request) {
	c.readElements(typeHash, r, 2, -1, func(out []byte, resp3 bool, e elements, args [][]byte) []byte {
		if value, ok := e.get(args[0]); ok {
			return appendBulk(out, value)
		}
		return appendNull(out, resp3)
	})
}

func hmget(c *client, r request) {
	c.readElements(typeHash, r, 2, -1, replyFields(c.server.opts.MaxReplies))
}

// replyFields returns the reply with the values of fields. It ends where it is longer than most, which
// replyElements refuses.
func replyFields(most int64) elementsReply {
	return func(out []byte, resp3 bool, e elements, args [][]byte) []byte {
		var few [fewLooks]look
		before := len(out)
		out = appendArray(out, len(args))
		for looks := few[:0]; len(args) > 0 && e.err() == ""; {
			n := looksAtOnce(e, len(args))
			looks = lookUp(e, args[:n], looks[:0])
			args = args[n:]
			for _, l := range looks {
				if l.found {
					out = appendBulk(out, l.value)
				} else {
					out = appendNull(out, resp3)
				}
				if int64(len(out)-before) > most {
					return out
				}
			}
		}
		return out
	}
}

func hgetAll(c *client, r request) { c.readElements(typeHash, r, 2, 0, replyPairs) }

func hkeys(c *client, r request) { c.readElements(typeHash, r, 2, 0, replyNames) }

func hvals(c *client, r request) { c.readElements(typeHash, r, 2, 0, replyValues) }

var replyPairs, replyNames, replyValues = replyAll(true, true), replyAll(true, false), replyAll(false, true)

// replyAll returns the reply with all fields of a hash, all values, or both.
func replyAll(fields, values bool) elementsReply {
	return func(out []byte, resp3 bool, e elements, _ [][]byte) []byte {
		if n := e.len(); fields && values {
			out = appendMap(out, resp3, n)
		} else {
			out = appendArray(out, n)
		}
		e.each(func(field, value []byte) bool {
			if fields {
				out = appendBulk(out, field)
			}
			if values {
				out = appendBulk(out, value)
			}
			return true
		})
		return out
	}
}

func hexists(c *client, r request) { c.readElements(typeHash, r, 2, -1, replyWhetherHas) }

// replyWhetherHas replies 1 if there is the field, or else 0.
func replyWhetherHas(out []byte, _ bool, e elements, args [][]byte) []byte {
	if _, ok := e.get(args[0]); ok {
		return appendInt(out, 1)
	}
	return appendInt(out, 0)
}

func hlen(c *client, r request) { c.readElements(typeHash, r, 2, 0, replyCount) }

func replyCount(out []byte, _ bool, e elements, _ [][]byte) []byte {
	return appendInt(out, int64(e.len()))
}

func hstrlen(c *client, r request) {
	c.readElements(typeHash, r, 2, -1, func(out []byte, _ bool, e elements, args [][]byte) []byte {
		value, _ := e.get(args[0])
		return appendInt(out, int64(len(value)))
	})
}

func hscan(c *client, r request) { c.scanElements(typeHash, r) }

// scanElements implements HSCAN and SSCAN. A packed collection is returned in one step.
func (c *client) scanElements(family valueType, r request) {
	cursor, o, refusal := elementScanOf(r)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.readElements(family, r, 2, 0, func(out []byte, _ bool, e elements, _ [][]byte) []byte {
		var found []byte
		n, next := 0, uint64(0)
		visit := func(field, value []byte) bool {
			if o.match != nil && !glob.Match(o.match, field) {
				return true
			}
			found = appendBulk(found, field)
			if n++; family == typeHash {
				found = appendBulk(found, value)
				n++
			}
			return true
		}
		if t, ok := e.(*hashTable); ok {
			next = t.scan(cursor, o.count, func(field, value []byte) { visit(field, value) })
		} else {
			e.each(visit)
		}
		out = appendBulk(appendArray(out, 2), strconv.FormatUint(next, 10))
		return append(appendArray(out, n), found...)
	})
}

// hset implements HSET and HMSET.
func hset(c *client, r request) {
	if r.len()%2 != 0 {
		c.fail(wrongArity(string(bytes.ToLower(r.arg(0)))))
		return
	}
	reply := replyResult
	if is(r.arg(0), "hmset") {
		reply = replySimpleOK
	}
	c.modifyElements(typeHash, r, 2, changeFields, reply)
}

func changeFields(m *modification) kv.Verdict {
	if !m.load() {
		return kv.Keep
	}
	m.result = 0
	for i := 0; i < len(m.args); i += 2 {
		if m.elements.set(m.args[i], m.args[i+1]) {
			m.result++
		}
	}
	return m.store()
}

func hsetNX(c *client, r request) { c.modifyElements(typeHash, r, 0, changeNewField, replyResult) }

func changeNewField(m *modification) kv.Verdict {
	m.result = 0
	if !m.load() {
		return kv.Keep
	}
	if _, found := m.elements.get(m.args[0]); found {
		return kv.Keep
	}
	m.result = 1
	m.elements.set(m.args[0], m.args[1])
	return m.store()
}

func hdel(c *client, r request) { c.modifyElements(typeHash, r, 1, changeLessFields, replyResult) }

func changeLessFields(m *modification) kv.Verdict {
	m.result = 0
	if !m.load() {
		return kv.Keep
	}
	for _, field := range m.args {
		if m.elements.remove(field) {
			m.result++
		}
	}
	if m.result == 0 {
		return kv.Keep
	}
	return m.store()
}

func hincrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(3))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.modifyElements(typeHash, r, 0, changeFieldInt, replyResult).delta = delta
}

func changeFieldInt(m *modification) kv.Verdict {
	if !m.load() {
		return kv.Keep
	}
	n, ok := int64(0), true
	if value, found := m.elements.get(m.args[0]); found {
		n, ok = parseInt(value)
	}
	if !ok {
		return m.refuse(errHashNotInteger)
	}
	if m.result, ok = addInt(n, m.delta); !ok {
		return m.refuse(errOverflow)
	}
	m.number = strconv.AppendInt(m.number[:0], m.result, 10)
	m.elements.set(m.args[0], m.number)
	return m.store()
}

func hincrByFloat(c *client, r request) {
	switch f, ok := parseFloat(r.arg(3)); {
	case !ok:
		c.fail(errNotFloat)
		return
	case f.IsInf():
		c.fail(errHashInfinity)
		return
	}
	c.modifyElements(typeHash, r, 0, changeFieldFloat, replyOldString)
}

func changeFieldFloat(m *modification) kv.Verdict {
	if !m.load() {
		return kv.Keep
	}
	old, found := m.elements.get(m.args[0])
	var err string
	if m.old, err = addFloats(m.old[:0], old, found, m.args[1], errHashNotFloat); err != "" {
		return m.refuse(err)
	}
	m.elements.set(m.args[0], m.old)
	return m.store()
}
