package resp

import "math"

// The commands on strings. Each adds its operations to the connection's batch.

func get(c *client, r request) { c.read(replyValue, r.arg(1)) }

func strlen(c *client, r request) { c.read(replyLength, r.arg(1)) }

func getSet(c *client, r request) { c.modify(modSwap, r.arg(1)).arg = r.arg(2) }

func setNX(c *client, r request) { c.modify(modSetNewInt, r.arg(1)).arg = r.arg(2) }

func set(c *client, r request) {
	if r.len() == 3 {
		c.upsert(replyOK, r.arg(1), r.arg(2))
		return
	}
	o, err := setOptionsOf(r)
	switch {
	case err != "":
		c.fail(err)
	case o.xx:
		setXX(c, r, o.get)
	case o.nx && o.get:
		c.modify(modSwapNew, r.arg(1)).arg = r.arg(2)
	case o.nx:
		c.modify(modSetNew, r.arg(1)).arg = r.arg(2)
	case o.get:
		getSet(c, r)
	default:
		c.upsert(replyOK, r.arg(1), r.arg(2))
	}
}

func setXX(c *client, r request, wantOld bool) {
	switch {
	case !c.look(replyLook, r.arg(1)):
	case wantOld:
		getSet(c, r)
	default:
		c.upsert(replyOK, r.arg(1), r.arg(2))
	}
}

// look reads a key before the command acts on it, as an operation of the store
// cannot make itself depend on what it finds. Where nothing is found, or that
// cannot be told, look answers, and the command is over.
func (c *client) look(kind replyKind, key []byte) bool {
	c.flush()
	c.read(kind, key)
	c.flush()
	switch {
	case c.failed != nil:
		c.out = appendError(c.out, "ERR "+c.failed.Error())
		c.failed = nil
		return false
	case !c.found:
		c.out = appendNull(c.out, c.resp3)
	}
	return c.found
}

type setOptions struct{ nx, xx, get, keepTTL bool }

// setOptionsOf reads what follows key and value, or says what is wrong there.
func setOptionsOf(r request) (o setOptions, err string) {
	expiry := ""
	for i := 3; i < r.len(); i++ {
		var buf [maxName]byte
		switch word := string(lower(&buf, r.arg(i))); {
		case word == "nx" && !o.xx:
			o.nx = true
		case word == "xx" && !o.nx:
			o.xx = true
		case word == "get":
			o.get = true
		case word == "keepttl" && expiry == "":
			o.keepTTL = true // as there is none, it is kept
		case (word == "ex" || word == "px" || word == "exat" || word == "pxat") &&
			expiry == "" && !o.keepTTL && i+1 < r.len():
			expiry = word
			i++
		default:
			return o, errSyntax
		}
	}
	if expiry != "" {
		return o, "ERR expiry is not supported yet"
	}
	return o, ""
}

func getDel(c *client, r request) {
	if c.look(replyTake, r.arg(1)) {
		c.remove(replyTaken, r.arg(1))
	}
}

func mget(c *client, r request) {
	c.mark(replyArray, r.len()-1)
	for i := 1; i < r.len(); i++ {
		c.read(replyValue, r.arg(i))
	}
}

func mset(c *client, r request) {
	if r.len()%2 == 0 {
		c.fail(wrongArity(r.arg(0)))
		return
	}
	for i := 1; i < r.len(); i += 2 {
		c.upsert(replyPart, r.arg(i), r.arg(i+1))
	}
	c.mark(replyDone, 0)
}

func appendTo(c *client, r request) {
	m := c.modify(modAppend, r.arg(1))
	m.arg, m.most = r.arg(2), c.server.opts.MaxBulk
}

func incr(c *client, r request) { c.modify(modIncrement, r.arg(1)).delta = 1 }

func decr(c *client, r request) { c.modify(modIncrement, r.arg(1)).delta = -1 }

func incrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(2))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.modify(modIncrement, r.arg(1)).delta = delta
}

func decrBy(c *client, r request) {
	delta, ok := parseInt(r.arg(2))
	switch {
	case !ok:
		c.fail(errNotInteger)
	case delta == math.MinInt64:
		c.fail(errDecrementOverflow)
	default:
		c.modify(modIncrement, r.arg(1)).delta = -delta
	}
}
