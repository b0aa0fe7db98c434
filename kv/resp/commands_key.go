package resp

import (
	"bytes"
	"errors"
	"math"
	"strings"

	"github.com/redykv/redykv/kv"
)

// Commands on keys of any type.

func del(c *client, r request) {
	if !c.parts(r.len() - 1) {
		return
	}
	for i := 1; i < r.len(); i++ {
		c.modifyRecord(replyTallyMod, c.key(r.arg(i)), changeDelete, nil)
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

// objectIdle implements OBJECT IDLETIME. The store does not note when a record is read, so a key that
// exists counts as used just now.
func objectIdle(c *client, r request) { c.read(replyIdle, r.arg(2)) }

// objectFreq implements OBJECT FREQ: the store does not count how often a record is read.
func objectFreq(c *client, r request) { c.read(replyFreq, r.arg(2)) }

func objectRefcount(c *client, r request) { c.read(replyRefcount, r.arg(2)) }

// encodingOf returns the encoding that Redis would have for a value.
func encodingOf(value []byte) string {
	const embedded = 44 // most bytes of an embstr
	switch t, s := typed(value); {
	case t.family() == typeList:
		return "quicklist"
	case t == typeSpreadSorted && len(s) > 0 && typeOfByte[s[len(s)-1]] == typeSorted:
		return "listpack"
	case t == typeSpreadSorted:
		return "skiplist"
	case t.isSpread():
		return spreadEncoding(s)
	case t.isElements():
		return t.encoding()
	case t == typeSorted:
		return "listpack"
	case t == typeSkipSorted:
		return "skiplist"
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

// encoding returns the encoding of a packed type.
func (t valueType) encoding() string {
	switch t {
	case typeIntSet:
		return "intset"
	case typeHash, typeSet:
		return "listpack"
	}
	return "hashtable"
}

// rename implements RENAME and RENAMENX.
func rename(c *client, r request) {
	from, to := storedKey(c.db, r.arg(1)), storedKey(c.db, r.arg(2))
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
		if c.relay(from, to, value, expires, true) {
			c.mark(done, 0)
			c.flush()
			c.tell(classGeneric, "rename_from", from)
			c.tell(classGeneric, "rename_to", to)
		}
	})
}

func copyKey(c *client, r request) {
	db, replace, refusal := c.server.copyOptions(r, c.db)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.transfer(storedKey(c.db, r.arg(1)), storedKey(db, r.arg(2)), replace, false)
}

// copyOptions returns the database to which COPY copies in a database, and whether it replaces a
// key there.
func (s *Server) copyOptions(r request, in uint8) (db uint8, replace bool, refusal string) {
	db = in
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "replace"):
			replace = true
		case is(option, "db") && i+1 < r.len():
			i++
			if db, refusal = s.database(r.arg(i)); refusal != "" {
				return 0, false, refusal
			}
		default:
			return 0, false, errSyntax
		}
	}
	return db, replace, ""
}

// move implements MOVE.
func move(c *client, r request) {
	db, refusal := c.server.database(r.arg(2))
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.transfer(storedKey(c.db, r.arg(1)), storedKey(db, r.arg(1)), false, true)
}

// transfer copies or moves what a record's key holds to another one, and replies whether it did.
func (c *client) transfer(from, to []byte, replace, remove bool) {
	if bytes.Equal(from, to) {
		c.fail(errSameKey)
		return
	}
	c.atomically([][]byte{from, to}, func() {
		value, expires, found, ok := c.take(from)
		if ok && !found && !remove {
			c.tell(classMiss, "keymiss", from)
		}
		if ok && found && !replace {
			var taken bool
			_, _, taken, ok = c.take(to)
			found = !taken
		}
		switch {
		case !ok:
		case !found:
			c.out = appendInt(c.reply(), 0)
		case c.relay(from, to, value, expires, remove):
			c.mark(replyOne, 0)
			c.flush()
			if remove {
				c.tell(classGeneric, "move_from", from)
				c.tell(classGeneric, "move_to", to)
			} else {
				c.tell(classGeneric, "copy_to", to)
			}
		}
	})
}

// relay sets a record's key to the value that take returned for another one, and removes that one if
// remove is set. A spread collection keeps its nodes if it is removed there, and else has copies of
// them. If it fails, it replies with the error and returns false. It has changed neither key then, or removed
// the first, if the log failed meanwhile; they do not share nodes.
func (c *client) relay(from, to, value []byte, expires int64, remove bool) bool {
	t, h, ok := headerIn(value)
	io := c.beginNodes(false)
	var was owner
	err := io.store.WriteError()
	switch {
	case t.isSpread() && !ok:
		return c.relayed(errDamagedHeader)
	case remove && err != nil:
		c.fail(unwritable(err)) // a part of the writes might fail
		return false
	case t.isSpread() && remove:
		was = io.owner(h.gen)
		// The record is written as it is, so that it can be removed in place, if the log fails meanwhile.
		if io.do([]kv.Op{{Kind: kv.OpUpsert, Key: from, Value: value, Expires: expires}}); io.failed != nil {
			return c.relayed(io.failed)
		}
	case t.isSpread():
		if value, err = io.clone(value, to); err != nil {
			return c.relayed(err)
		}
	}
	if !c.put(to, value, expires) {
		return false
	}
	if remove && !c.relayed(c.leave(from, to, h.gen, was)) {
		return false
	}
	return !c.quit
}

// leave removes a record's key whose value another one has been set to, after it has made that one the owner
// of the generation, if was has a key. If it fails, it removes the other one, in place.
func (c *client) leave(from, to []byte, g generation, was owner) (err error) {
	io := &c.worker.collections.io
	if was.key != nil {
		io.pass(g, was, to)
	}
	if err = io.failed; err == nil {
		if err = c.remove(from); err == nil || was.key != nil {
			return err // the nodes are the other one's
		}
	}
	return errors.Join(err, c.remove(to))
}

// remove deletes a record's key.
func (c *client) remove(key []byte) (err error) {
	c.modifyRecord(replyPart, key, changeDelete, nil)
	c.flush()
	err, c.failed = c.failed, nil
	return err
}

// relayed replies with an error, and reports whether there is none.
func (c *client) relayed(err error) bool {
	if err != nil {
		c.fail(storeError(err))
	}
	return err == nil
}

// take reads the value of a record's key for the command to use. If that fails, it replies with the
// error and ok is false.
func (c *client) take(key []byte) (value []byte, expires int64, found, ok bool) {
	c.flush()
	c.readRecord(replyTake, key)
	c.flush()
	value, c.taken = c.taken, nil // nothing of it stays with the connection
	return value, c.takenExpires, c.found, !c.partFailed()
}

// partFailed replies with the error of a part of the command, and reports whether there is one.
func (c *client) partFailed() bool {
	if c.failed == nil {
		return false
	}
	c.fail(storeError(c.failed))
	c.failed = nil
	return true
}

// put sets a record's key to a value that take returned. If that fails, it replies with the error and returns
// false.
func (c *client) put(key, value []byte, expires int64) bool {
	c.upsertRecord(replyPart, key, value, expires)
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
		expires = max(expires-c.now.UnixMilli(), 0)
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
	unit, now, base := timeUnit(r.arg(0)), c.now.UnixMilli(), int64(0)
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
