package resp

import (
	"bytes"
	"strconv"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands on hashes.

// hashReply appends the reply of a command that reads a hash. h is empty if the key does not
// exist.
type hashReply func(out []byte, resp3 bool, h *hash, args [][]byte) []byte

// readHash adds a read. reply receives the arguments from the i-th on.
func (c *client) readHash(r request, i int, reply hashReply) {
	rp := c.read(replyHash, r.arg(1))
	rp.hash, rp.args = reply, c.keep(r, i)
}

// answerHash appends the reply of a command that read a hash.
func (c *client) answerHash(r *reply, op *kv.Op, found bool) {
	h := hash{}
	if found {
		t, content := typed(op.Value)
		if !t.isHash() {
			c.error(errWrongType)
			return
		}
		h.rest = content
	}
	at := len(c.out)
	if c.out = r.hash(c.out, c.resp3, &h, r.args); h.damaged {
		c.out = c.out[:at]
		c.error(errDamagedHash)
	}
}

func hget(c *client, r request) {
	c.readHash(r, 2, func(out []byte, resp3 bool, h *hash, args [][]byte) []byte {
		if value, ok := h.get(args[0]); ok {
			return appendBulk(out, value)
		}
		return appendNull(out, resp3)
	})
}

func hmget(c *client, r request) { c.readHash(r, 2, replyFields) }

func replyFields(out []byte, resp3 bool, h *hash, args [][]byte) []byte {
	var p pairs
	h.damaged = !p.load(h.rest, len(args))
	out = appendArray(out, len(args))
	for _, field := range args {
		if i := p.find(field); i >= 0 {
			out = appendBulk(out, p.list[i].value)
		} else {
			out = appendNull(out, resp3)
		}
	}
	return out
}

func hgetAll(c *client, r request) { c.readHash(r, 2, replyPairs) }

func hkeys(c *client, r request) { c.readHash(r, 2, replyNames) }

func hvals(c *client, r request) { c.readHash(r, 2, replyValues) }

var replyPairs, replyNames, replyValues = replyAll(true, true), replyAll(true, false), replyAll(false, true)

// replyAll returns the reply with all fields of a hash, all values, or both.
func replyAll(fields, values bool) hashReply {
	return func(out []byte, resp3 bool, h *hash, _ [][]byte) []byte {
		counted := *h
		if n := counted.count(); fields && values {
			out = appendMap(out, resp3, n)
		} else {
			out = appendArray(out, n)
		}
		for field, value, ok := h.next(); ok; field, value, ok = h.next() {
			if fields {
				out = appendBulk(out, field)
			}
			if values {
				out = appendBulk(out, value)
			}
		}
		return out
	}
}

func hexists(c *client, r request) {
	c.readHash(r, 2, func(out []byte, _ bool, h *hash, args [][]byte) []byte {
		if _, ok := h.get(args[0]); ok {
			return appendInt(out, 1)
		}
		return appendInt(out, 0)
	})
}

func hlen(c *client, r request) {
	c.readHash(r, 2, func(out []byte, _ bool, h *hash, _ [][]byte) []byte {
		return appendInt(out, int64(h.count()))
	})
}

func hstrlen(c *client, r request) {
	c.readHash(r, 2, func(out []byte, _ bool, h *hash, args [][]byte) []byte {
		value, _ := h.get(args[0])
		return appendInt(out, int64(len(value)))
	})
}

// hscan returns all matching fields in one step and ignores COUNT.
func hscan(c *client, r request) {
	if _, err := strconv.ParseUint(string(r.arg(2)), 10, 64); err != nil {
		c.fail(errCursor)
		return
	}
	o, err := scanOptionsOf(r, 3, false)
	if err != "" {
		c.fail(err)
		return
	}
	rp := c.read(replyHash, r.arg(1))
	rp.hash = replyHashScan
	if o.match != nil {
		rp.args = [][]byte{o.match}
	}
}

func replyHashScan(out []byte, _ bool, h *hash, args [][]byte) []byte {
	var found []byte
	n := 0
	for field, value, ok := h.next(); ok; field, value, ok = h.next() {
		if len(args) == 0 || glob.Match(args[0], field) {
			n += 2
			found = appendBulk(appendBulk(found, field), value)
		}
	}
	out = appendBulk(appendArray(out, 2), "0")
	return append(appendArray(out, n), found...)
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
	c.modifyHash(r, changeFields, reply)
}

// modifyHash is modify of a hash, with the arguments after its key.
func (c *client) modifyHash(r request, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	m := c.modify(r.arg(1), change, reply)
	m.only, m.args = typeHash, c.keep(r, 2)
	return m
}

// loadPairs loads the pairs of the key's hash.
func (m *modification) loadPairs(looks int) bool {
	if !m.pairs.load(m.content, looks) {
		m.refused = errDamagedHash
		return false
	}
	return true
}

// putPairs sets the key to the pairs.
func (m *modification) putPairs() kv.Verdict {
	if m.pairs.live == 0 {
		return kv.Remove
	}
	m.u.New = m.pairs.appendTo(m.u.New, m.typ == typeLargeHash)
	return kv.Put
}

func changeFields(m *modification) kv.Verdict {
	if !m.loadPairs(len(m.args) / 2) {
		return kv.Keep
	}
	m.result = 0
	for i := 0; i < len(m.args); i += 2 {
		if m.pairs.set(m.args[i], m.args[i+1]) {
			m.result++
		}
	}
	return m.putPairs()
}

func hsetNX(c *client, r request) { c.modifyHash(r, changeNewField, replyResult) }

func changeNewField(m *modification) kv.Verdict {
	m.result = 0
	if !m.loadPairs(1) || m.pairs.find(m.args[0]) >= 0 {
		return kv.Keep
	}
	m.result = 1
	m.pairs.set(m.args[0], m.args[1])
	return m.putPairs()
}

func hdel(c *client, r request) { c.modifyHash(r, changeLessFields, replyResult) }

func changeLessFields(m *modification) kv.Verdict {
	m.result = 0
	if !m.loadPairs(len(m.args)) {
		return kv.Keep
	}
	for _, field := range m.args {
		if m.pairs.remove(field) {
			m.result++
		}
	}
	if m.result == 0 {
		return kv.Keep
	}
	return m.putPairs()
}

func hincrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(3))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.modifyHash(r, changeFieldInt, replyResult).delta = delta
}

func changeFieldInt(m *modification) kv.Verdict {
	if !m.loadPairs(1) {
		return kv.Keep
	}
	n, ok := int64(0), true
	if i := m.pairs.find(m.args[0]); i >= 0 {
		n, ok = parseInt(m.pairs.list[i].value)
	}
	if !ok {
		return m.refuse(errHashNotInteger)
	}
	if m.result, ok = addInt(n, m.delta); !ok {
		return m.refuse(errOverflow)
	}
	m.pairs.numbers = strconv.AppendInt(m.pairs.numbers, m.result, 10)
	m.pairs.set(m.args[0], m.pairs.numbers)
	return m.putPairs()
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
	c.modifyHash(r, changeFieldFloat, replyOldString)
}

func changeFieldFloat(m *modification) kv.Verdict {
	if !m.loadPairs(1) {
		return kv.Keep
	}
	var old []byte
	i := m.pairs.find(m.args[0])
	if i >= 0 {
		old = m.pairs.list[i].value
	}
	var err string
	if m.old, err = addFloats(m.old[:0], old, i >= 0, m.args[1], errHashNotFloat); err != "" {
		return m.refuse(err)
	}
	m.pairs.set(m.args[0], m.old)
	return m.putPairs()
}
