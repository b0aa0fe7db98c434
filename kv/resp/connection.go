package resp

import (
	"path"
	"slices"
	"strings"
)

// The commands about the connection and the server. They need no operation of
// the store, and are answered where they stand.

func ping(c *client, r request) {
	switch out := c.reply(); r.len() {
	case 1:
		c.out = appendSimple(out, "PONG")
	case 2:
		c.out = appendBulk(out, r.arg(1))
	default:
		c.fail(wrongArity(r.arg(0)))
	}
}

func echo(c *client, r request) { c.out = appendBulk(c.reply(), r.arg(1)) }

func quit(c *client, _ request) {
	c.out = appendSimple(c.reply(), "OK")
	c.quit = true
}

func selectDB(c *client, r request) {
	switch n, ok := parseInt(r.arg(1)); {
	case !ok || int64(int32(n)) != n:
		c.fail(errNotInteger)
	case n != 0:
		c.fail(errDatabase)
	default:
		c.out = appendSimple(c.reply(), "OK")
	}
}

// hello changes nothing unless all of it is right.
func hello(c *client, r request) {
	resp3, name := c.resp3, c.name
	if r.len() > 1 {
		version, ok := parseInt(r.arg(1))
		switch {
		case !ok:
			c.fail(errProtocolVersion)
			return
		case version != 2 && version != 3:
			c.fail(errNoProtocol)
			return
		}
		resp3 = version == 3
	}
	for i := 2; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "auth") && i+2 < r.len():
			c.fail("ERR authentication is not supported yet")
			return
		case is(option, "setname") && i+1 < r.len():
			i++
			if name = slices.Clone(r.arg(i)); !validName(name) {
				c.fail(errClientName)
				return
			}
		default:
			c.fail("ERR Syntax error in HELLO option '" + text(option, shown) + "'")
			return
		}
	}
	out := c.reply()
	c.resp3, c.name = resp3, name
	out = appendMap(out, resp3, 7)
	out = appendBulk(appendBulk(out, "server"), "redis")
	out = appendBulk(appendBulk(out, "version"), redisVersion)
	out = appendBulk(out, "proto")
	if resp3 {
		out = appendInt(out, 3)
	} else {
		out = appendInt(out, 2)
	}
	out = appendInt(appendBulk(out, "id"), c.id)
	out = appendBulk(appendBulk(out, "mode"), "standalone")
	out = appendBulk(appendBulk(out, "role"), "master")
	c.out = appendArray(appendBulk(out, "modules"), 0)
}

// maxClientName is the length in bytes of the longest name of a client: the
// server keeps it as long as the connection.
const maxClientName = 1 << 10

// validName says whether a client may be called that: lists of clients have one
// on a line, in words.
func validName(name []byte) bool {
	return len(name) <= maxClientName && !slices.ContainsFunc(name, func(c byte) bool { return c < '!' || c > '~' })
}

func clientCommand(c *client, r request) {
	sub := r.arg(1)
	arity := func(n int) bool {
		if r.len() != n {
			c.fail(wrongArity(r.arg(0), sub))
		}
		return r.len() == n
	}
	switch {
	case is(sub, "id"):
		if arity(2) {
			c.out = appendInt(c.reply(), c.id)
		}
	case is(sub, "getname"):
		if !arity(2) {
			return
		}
		if out := c.reply(); len(c.name) > 0 {
			c.out = appendBulk(out, c.name)
		} else {
			c.out = appendNull(out, c.resp3)
		}
	case is(sub, "setname"):
		if !arity(3) {
			return
		}
		if !validName(r.arg(2)) {
			c.fail(errClientName)
			return
		}
		c.name = slices.Clone(r.arg(2))
		c.out = appendSimple(c.reply(), "OK")
	case is(sub, "setinfo"): // what library it is: nobody asks yet
		if arity(4) {
			c.out = appendSimple(c.reply(), "OK")
		}
	default:
		c.fail(unknownSubcommand(r))
	}
}

// commandCommand describes no command: clients take that for a server that is
// older than they are.
func commandCommand(c *client, r request) {
	switch {
	case r.len() == 1:
		c.out = appendArray(c.reply(), 0)
	case is(r.arg(1), "docs"):
		c.out = appendMap(c.reply(), c.resp3, 0)
	case is(r.arg(1), "count") && r.len() > 2:
		c.fail(wrongArity(r.arg(0), r.arg(1)))
	case is(r.arg(1), "count"):
		c.out = appendInt(c.reply(), int64(len(c.server.table)))
	default:
		c.fail(unknownSubcommand(r))
	}
}

// settings are what CONFIG GET tells, as far as Redis's names fit: that there
// are no snapshots and there is no log of commands.
var settings = [][2]string{{"save", ""}, {"appendonly", "no"}}

func config(c *client, r request) {
	switch {
	case !is(r.arg(1), "get"):
		c.fail(unknownSubcommand(r))
		return
	case r.len() < 3:
		c.fail(wrongArity(r.arg(0), r.arg(1)))
		return
	}
	var matching [][2]string
	for _, s := range settings {
		for i := 2; i < r.len(); i++ {
			// A pattern that makes no sense matches nothing.
			if ok, err := path.Match(strings.ToLower(string(r.arg(i))), s[0]); ok && err == nil {
				matching = append(matching, s)
				break
			}
		}
	}
	out := appendMap(c.reply(), c.resp3, len(matching))
	for _, s := range matching {
		out = appendBulk(appendBulk(out, s[0]), s[1])
	}
	c.out = out
}
