package resp

import (
	"math"
	"strconv"

	"github.com/redykv/redykv/kv"
)

// The commands on strings that are numbers.

func incr(c *client, r request) { c.increment(r.arg(1), 1) }

func decr(c *client, r request) { c.increment(r.arg(1), -1) }

func (c *client) increment(key []byte, delta int64) {
	m := c.modify(key, changeInt, replyResult)
	m.only, m.delta = typeString, delta
}

func incrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(2))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.increment(r.arg(1), delta)
}

func decrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
	case delta == math.MinInt64:
		c.fail(errDecrementOverflow)
	default:
		c.increment(r.arg(1), -delta)
	}
}

func changeInt(m *modification) kv.Verdict {
	n, ok := int64(0), true
	if m.found {
		n, ok = parseInt(m.content)
	}
	if !ok {
		return m.refuse(errNotInteger)
	}
	if m.result, ok = addInt(n, m.delta); !ok {
		return m.refuse(errOverflow)
	}
	m.u.New = strconv.AppendInt(m.u.New, m.result, 10)
	return kv.Put
}

func incrByFloat(c *client, r request) {
	m := c.modify(r.arg(1), changeFloat, replyOldString)
	m.only, m.arg = typeString, r.arg(2)
}

func changeFloat(m *modification) kv.Verdict {
	var err string
	if m.old, err = addFloats(m.old[:0], m.content, m.found, m.arg, errNotFloat); err != "" {
		return m.refuse(err)
	}
	return m.put(m.old)
}

// replyOldString is what was left in old.
func replyOldString(m *modification, out []byte, _ bool) []byte { return appendBulk(out, m.old) }
