package resp

import (
	"bytes"
	"math"
	"strings"

	"github.com/redykv/redykv/kv"
)

// Commands on keys of any type.

func del(c *client, r request) {
	for i := 1; i < r.len(); i++ {
		c.modifyAs(replyTallyMod, r.arg(i), changeDelete, nil)
	}
	c.mark(replySum, 0)
}

func changeDelete(*modification) kv.Verdict { return kv.Remove }

// exists implements EXISTS and TOUCH.
func exists(c *client, r request) {
	for i := 1; i < r.len(); i++ {
		c.read(replyTally, r.arg(i))
	}
	c.mark(replySum, 0)
}

func typeOf(c *client, r request) { c.read(replyType, r.arg(1)) }

func objectEncoding(c *client, r request) { c.read(replyEncoding, r.arg(2)) }

func objectRefcount(c *client, r request) { c.read(replyRefcount, r.arg(2)) }

// encodingOf returns the encoding that Redis would have for a value.
func encodingOf(value []byte) string {
	const embedded = 44 // most bytes of an embstr
	switch t, s := typed(value); {
	case t == typeHash:
		return "listpack"
	case t == typeLargeHash:
		return "hashtable"
	case t != typeString:
		return "unknown"
	case len(s) <= embedded:
		if _, ok := parseInt(s); ok {
			return "int"
		}
		return "embstr"
	}
	return "raw"
}

// rename implements RENAME and RENAMENX.
func rename(c *client, r request) {
	from, to := r.arg(1), r.arg(2)
	onlyNew := len(r.arg(0)) == len("renamenx")
	c.atomically([][]byte{from, to}, func() {
		value, expires, found, ok := c.take(from)
		same := bytes.Equal(from, to)
		switch {
		case !ok:
			return
		case !found:
			c.fail(errNoKey)
			return
		case same && onlyNew:
			c.out = appendInt(c.reply(), 0)
			return
		case same:
			c.out = appendSimple(c.reply(), "OK")
			return
		case onlyNew:
			if _, _, taken, ok := c.take(to); !ok {
				return
			} else if taken {
				c.out = appendInt(c.reply(), 0)
				return
			}
		}
		done := replyDone
		if onlyNew {
			done = replyOne
		}
		if c.put(to, value, expires) {
			c.modifyAs(replyPart, from, changeDelete, nil)
			c.mark(done, 0)
		}
	})
}

func copyKey(c *client, r request) {
	replace := false
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "replace"):
			replace = true
		case is(option, "db") && i+1 < r.len():
			i++
			if n, ok := parseInt(r.arg(i)); !ok {
				c.fail(errNotInteger)
				return
			} else if n != 0 {
				c.fail(errDatabase)
				return
			}
		default:
			c.fail(errSyntax)
			return
		}
	}
	from, to := r.arg(1), r.arg(2)
	if bytes.Equal(from, to) {
		c.fail(errSameKey)
		return
	}
	c.atomically([][]byte{from, to}, func() {
		value, expires, found, ok := c.take(from)
		if ok && found && !replace {
			var taken bool
			_, _, taken, ok = c.take(to)
			found = !taken
		}
		switch {
		case !ok:
		case !found:
			c.out = appendInt(c.reply(), 0)
		case c.put(to, value, expires):
			c.out = appendInt(c.reply(), 1)
		}
	})
}

// take reads a key's stored value for the command to use. If that fails, it replies with the
// error and ok is false.
func (c *client) take(key []byte) (value []byte, expires int64, found, ok bool) {
	c.flush()
	c.read(replyTake, key)
	c.flush()
	return c.taken, c.takenExpires, c.found, !c.partFailed()
}

// partFailed replies with the error of a part of the command, and reports whether there is one.
func (c *client) partFailed() bool {
	if c.failed == nil {
		return false
	}
	c.fail("ERR " + c.failed.Error())
	c.failed = nil
	return true
}

// put stores a value that take returned. If that fails, it replies with the error and returns
// false.
func (c *client) put(key, value []byte, expires int64) bool {
	c.upsertStored(replyPart, key, value, expires)
	c.flush()
	return !c.partFailed() && !c.quit
}

// Commands on expiry. Times are in milliseconds of Unix time. All commands of a batch use the
// same current time.

// timeUnit returns the unit in milliseconds of the times of a command such as TTL or PTTL.
func timeUnit(name []byte) int64 {
	if name[0]|0x20 == 'p' {
		return 1
	}
	return 1000
}

// ttl implements TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func ttl(c *client, r request) {
	rp := c.read(replyTTL, r.arg(1))
	rp.n = timeUnit(r.arg(0))
	if strings.HasSuffix(strings.ToLower(string(r.arg(0))), "time") {
		rp.m = 1
	}
}

// ttlOf returns the reply of these commands for a key that exists.
func (c *client) ttlOf(expires, unit int64, absolute bool) int64 {
	if expires == 0 {
		return -1
	}
	if !absolute {
		expires = max(expires-c.began.UnixMilli(), 0)
	}
	return int64((uint64(expires) + uint64(unit/2)) / uint64(unit))
}

// expire implements EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func expire(c *client, r request) {
	flags, err := expireFlags(r)
	if err != "" {
		c.fail(err)
		return
	}
	unit, now, base := timeUnit(r.arg(0)), c.began.UnixMilli(), int64(0)
	if !strings.HasSuffix(strings.ToLower(string(r.arg(0))), "at") {
		base = now
	}
	n, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
		return
	case n > math.MaxInt64/unit, n < math.MinInt64/unit, n*unit > math.MaxInt64-base:
		c.fail(badExpiry(r))
		return
	}
	n = n*unit + base
	m := c.modify(r.arg(1), changeExpiry, replyWhether)
	m.expires, m.delta, m.flags = n, now, flags
}

func expireFlags(r request) (flags modFlags, err string) {
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "nx"):
			flags |= modNX
		case is(option, "xx"):
			flags |= modXX
		case is(option, "gt"):
			flags |= modGT
		case is(option, "lt"):
			flags |= modLT
		default:
			return 0, "ERR Unsupported option " + text(option, shown)
		}
	}
	switch {
	case flags&modNX != 0 && flags != modNX:
		return 0, errExpireNX
	case flags&modGT != 0 && flags&modLT != 0:
		return 0, errExpireGT
	}
	return flags, ""
}

// changeExpiry sets the expiry to m.expires. m.delta is the current time. A key without an
// expiry counts as expiring at the end of time.
func changeExpiry(m *modification) kv.Verdict {
	is := m.u.Expires
	switch {
	case !m.found,
		m.flags&modNX != 0 && is != 0,
		m.flags&modXX != 0 && is == 0,
		m.flags&modGT != 0 && (is == 0 || m.expires <= is),
		m.flags&modLT != 0 && is != 0 && m.expires >= is:
		return kv.Keep
	case m.expires <= m.delta:
		return kv.Remove
	}
	m.u.Expires = m.expires
	m.u.New = append(m.u.New, m.u.Old...)
	return kv.Put
}

func persist(c *client, r request) { c.modify(r.arg(1), changePersist, replyWhether) }

func changePersist(m *modification) kv.Verdict {
	if !m.found || m.u.Expires == 0 {
		return kv.Keep
	}
	m.u.Expires = 0
	m.u.New = append(m.u.New, m.u.Old...)
	return kv.Put
}
