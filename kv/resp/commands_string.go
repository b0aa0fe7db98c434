package resp

import (
	"math"
	"strconv"

	"github.com/redykv/redykv/kv"
)

// Commands on strings.

func get(c *client, r request) { c.read(replyValue, r.arg(1)) }

func strlen(c *client, r request) { c.read(replyLength, r.arg(1)) }

func getSet(c *client, r request) { c.store(r.arg(1), r.arg(2), setOptions{flags: modGet}, replyOld) }

func setNX(c *client, r request) { c.store(r.arg(1), r.arg(2), setOptions{flags: modNX}, replyWhether) }

func set(c *client, r request) {
	if r.len() == 3 {
		c.upsert(replyOK, r.arg(1), r.arg(2), 0)
		return
	}
	o, err := c.setOptionsOf(r, 3, true)
	if err != "" {
		c.fail(err)
		return
	}
	reply := replyChanged
	if o.flags&modGet != 0 {
		reply = replyOld
	}
	c.store(r.arg(1), r.arg(2), o, reply)
}

// setEX implements SETEX and PSETEX.
func setEX(c *client, r request) {
	expires, err := c.deadline(r, r.arg(2), timeUnit(r.arg(0)), true)
	if err != "" {
		c.fail(err)
		return
	}
	c.upsert(replyOK, r.arg(1), r.arg(3), expires)
}

// store sets a key according to the options.
func (c *client) store(key, value []byte, o setOptions, reply func(*modification, []byte, bool) []byte) {
	if o.flags == 0 {
		c.upsert(replyOK, key, value, o.expires)
		return
	}
	m := c.modify(key, changeSet, reply)
	m.arg, m.expires, m.flags = value, o.expires, o.flags
	if o.flags&modGet != 0 {
		m.only = typeString
	}
}

func changeSet(m *modification) kv.Verdict {
	if m.flags&modGet != 0 {
		m.keepOld()
	}
	if m.flags&modNX != 0 && m.found || m.flags&modXX != 0 && !m.found {
		return kv.Keep
	}
	if m.flags&modKeepTTL == 0 {
		m.u.Expires = m.expires
	}
	return m.put(m.arg)
}

// modFlags are options of a modification.
type modFlags uint8

const (
	modNX modFlags = 1 << iota
	modXX
	modGT
	modLT
	modGet
	modKeepTTL
)

// setOptions are the options of SET and GETEX.
type setOptions struct {
	flags   modFlags
	persist bool
	expires int64 // milliseconds of Unix time; 0: never
}

// setOptionsOf parses the options of SET, or of GETEX if set is false, from the i-th argument
// on. err is the error reply.
func (c *client) setOptionsOf(r request, i int, set bool) (o setOptions, err string) {
	expiry, when := "", []byte(nil)
	for ; i < r.len(); i++ {
		var buf [maxName]byte
		switch word := string(lower(&buf, r.arg(i))); {
		case set && word == "nx" && o.flags&modXX == 0:
			o.flags |= modNX
		case set && word == "xx" && o.flags&modNX == 0:
			o.flags |= modXX
		case set && word == "get":
			o.flags |= modGet
		case set && word == "keepttl" && expiry == "":
			o.flags |= modKeepTTL
		case !set && word == "persist" && expiry == "":
			o.persist = true
		case (word == "ex" || word == "px" || word == "exat" || word == "pxat") &&
			(expiry == "" || expiry == word) && o.flags&modKeepTTL == 0 && !o.persist && i+1 < r.len():
			i++
			expiry, when = word, r.arg(i)
		default:
			return o, errSyntax
		}
	}
	if expiry != "" {
		o.expires, err = c.deadline(r, when, timeUnit([]byte(expiry)), len(expiry) == 2)
	}
	return o, err
}

// deadline returns the time at which a key expires. number counts units of unit milliseconds,
// from now if relative is set. A time before kv.MinExpires becomes kv.MinExpires, which is
// past too.
func (c *client) deadline(r request, number []byte, unit int64, relative bool) (ms int64, err string) {
	n, ok := parseInt(number)
	if !ok {
		return 0, errNotInteger
	}
	if n <= 0 || n > math.MaxInt64/unit {
		return 0, badExpiry(r)
	}
	n *= unit
	if relative {
		if n, ok = addInt(n, c.now.UnixMilli()); !ok {
			return 0, badExpiry(r)
		}
	}
	return max(n, kv.MinExpires), ""
}

func getDel(c *client, r request) {
	c.modify(r.arg(1), changeTake, replyOld).only = typeString
}

func changeTake(m *modification) kv.Verdict {
	m.keepOld()
	return kv.Remove
}

func getEX(c *client, r request) {
	if r.len() == 2 {
		get(c, r)
		return
	}
	o, err := c.setOptionsOf(r, 2, false)
	if err == errSyntax {
		c.fail(err)
		return
	}
	m := c.modify(r.arg(1), changeGetEX, replyOld)
	m.only, m.expires, m.bad = typeString, o.expires, err
}

// changeGetEX changes the key's expiry. If the new expiry is past, the record expires at once.
func changeGetEX(m *modification) kv.Verdict {
	m.keepOld()
	switch {
	case m.found && m.bad != "":
		return m.refuse(m.bad)
	case !m.found || m.u.Expires == m.expires:
		return kv.Keep
	}
	m.u.Expires = m.expires
	m.u.New = append(m.u.New, m.u.Old...)
	return kv.Put
}

func mget(c *client, r request) {
	c.mark(replyArray, r.len()-1)
	for i := 1; i < r.len(); i++ {
		c.read(replyString, r.arg(i))
	}
}

func mset(c *client, r request) {
	if r.len()%2 == 0 {
		c.fail(wrongArity("mset"))
		return
	}
	if !c.parts(r.len() / 2) {
		return
	}
	for i := 1; i < r.len(); i += 2 {
		c.upsert(replyPart, r.arg(i), r.arg(i+1), 0)
	}
	c.mark(replyDone, 0)
}

// msetNX sets all of its keys or none.
func msetNX(c *client, r request) {
	if r.len()%2 == 0 {
		c.fail(wrongArity("msetnx"))
		return
	}
	var all [][]byte
	for i := 1; i < r.len(); i += 2 {
		all = append(all, storedKey(c.db, r.arg(i)))
	}
	c.atomically(all, func() {
		c.tally = 0
		for _, key := range all {
			c.readRecord(replyTally, key)
		}
		c.flush()
		if c.tally > 0 || c.failed != nil {
			c.tally = 0
			c.mark(replySum, 0)
			return
		}
		for i := 1; i < r.len(); i += 2 {
			c.upsertRecord(replyPart, all[i/2], storedString(r.arg(i+1)), 0)
		}
		c.mark(replyOne, 0)
	})
}

func appendTo(c *client, r request) {
	m := c.modify(r.arg(1), changeAppend, replyResult)
	m.only, m.arg, m.most = typeString, r.arg(2), c.server.opts.MaxBulk
}

func changeAppend(m *modification) kv.Verdict {
	if m.result = int64(len(m.content) + len(m.arg)); m.result > int64(m.most) {
		return m.refuse(errTooLong)
	}
	m.u.New = append(append(m.u.New, m.content...), m.arg...)
	return m.putNew()
}

func getRange(c *client, r request) {
	start, ok1 := parseInt(r.arg(2))
	end, ok2 := parseInt(r.arg(3))
	if !ok1 || !ok2 {
		c.fail(errNotInteger)
		return
	}
	rp := c.read(replyRange, r.arg(1))
	rp.n, rp.m = start, end
}

// part returns GETRANGE's reply for s: the bytes from start to end. Negative positions count
// from the end.
func part(s []byte, start, end int64) []byte {
	n := int64(len(s))
	if start < 0 && end < 0 && start > end {
		return nil
	}
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	end = min(end, n-1)
	if start > end || n == 0 {
		return nil
	}
	return s[start : end+1]
}

func setRange(c *client, r request) {
	at, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
		return
	case at < 0:
		c.fail("ERR offset is out of range")
		return
	}
	m := c.modify(r.arg(1), changeRange, replyResult)
	m.only, m.arg, m.delta, m.most = typeString, r.arg(3), at, c.server.opts.MaxBulk
}

func changeRange(m *modification) kv.Verdict {
	if m.result = int64(len(m.content)); len(m.arg) == 0 {
		return kv.Keep
	}
	end, ok := addInt(m.delta, int64(len(m.arg)))
	if !ok || end > int64(m.most) {
		return m.refuse(errTooLong)
	}
	m.u.New = append(m.u.New, m.content...)
	if grow := end - m.result; grow > 0 {
		m.u.New = append(m.u.New, make([]byte, grow)...)
		m.result = end
	}
	copy(m.u.New[m.delta:], m.arg)
	return m.putNew()
}

// Commands on strings that hold numbers.

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

// replyOldString replies with m.old.
func replyOldString(m *modification, out []byte, _ bool) []byte { return appendBulk(out, m.old) }
