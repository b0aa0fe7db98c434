package resp

import (
	"strings"
	"time"
)

// Commands about the connection. They need no operation of the store.

func ping(c *client, r request) {
	switch out := c.reply(); {
	case r.len() > 2:
		c.fail(wrongArity("ping"))
	case c.subscribing() && !c.resp3:
		out = appendBulk(appendArray(out, 2), "pong")
		if r.len() == 1 {
			c.out = appendBulk(out, "")
		} else {
			c.out = appendBulk(out, r.arg(1))
		}
	case r.len() == 1:
		c.out = appendSimple(out, "PONG")
	default:
		c.out = appendBulk(out, r.arg(1))
	}
}

func echo(c *client, r request) { c.out = appendBulk(c.reply(), r.arg(1)) }

func quit(c *client, _ request) {
	c.out = appendSimple(c.reply(), "OK")
	c.quit = true
}

func reset(c *client, _ request) {
	c.flush()
	c.asNew()
	c.out = appendSimple(c.reply(), "RESET")
}

func selectDB(c *client, r request) {
	db, refusal := c.server.database(r.arg(1))
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.out = appendSimple(c.reply(), "OK")
	c.setDB(db)
}

// setDB makes a database the client's.
func (c *client) setDB(db uint8) {
	if c.db != db {
		c.db = db
		c.describe(func(i *clientInfo) { i.db = db })
	}
}

// database returns the number of a database. If there is none, refusal is the error to reply.
func (s *Server) database(number []byte) (db uint8, refusal string) {
	switch n, ok := parseInt(number); {
	case !ok:
		return 0, errNotInteger
	case int64(int32(n)) != n:
		return 0, errNotInt32
	case n < 0 || n >= int64(s.opts.Databases):
		return 0, errDatabase
	default:
		return uint8(n), ""
	}
}

func timeCommand(c *client, _ request) {
	now := time.Now().UnixMicro()
	out := appendArray(c.reply(), 2)
	for _, n := range []int64{now / 1e6, now % 1e6} {
		out = appendBulk(out, formatInt(n))
	}
	c.out = out
}

// hello changes nothing unless all options are valid.
func hello(c *client, r request) {
	resp3 := c.resp3
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
	var login, name []byte
	var password []byte
	for i := 2; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "auth") && i+2 < r.len():
			login, password = r.arg(i+1), r.arg(i+2)
			i += 2
		case is(option, "setname") && i+1 < r.len():
			i++
			if name = r.arg(i); !validName(name) {
				c.fail(errClientName)
				return
			}
		default:
			c.fail("ERR Syntax error in HELLO option '" + text(option, shown) + "'")
			return
		}
	}
	switch {
	case login != nil && !c.authenticate(r, login, password):
		c.fail(errWrongPassword)
		return
	case c.user == nil:
		c.fail(errNoHello)
		return
	}
	c.reply()
	c.speak(resp3)
	if resp3 { // messages may come without a subscription: those of another client's tracking
		c.subscriber()
	}
	c.describe(func(i *clientInfo) {
		i.resp3 = resp3
		if name != nil {
			i.name = string(name)
		}
	})
	out := appendMap(c.out, resp3, 7)
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

// helpFor returns the implementation of a command's subcommand HELP.
func helpFor(of *command) func(*client, request) {
	return func(c *client, _ request) {
		lines := []string{strings.ToUpper(of.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
		for _, sub := range of.ordered {
			name := strings.TrimPrefix(sub.name, of.name+"|")
			lines = append(lines, strings.ToUpper(name), "    "+sub.about+".")
		}
		out := appendArray(c.reply(), len(lines))
		for _, line := range lines {
			out = appendSimple(out, line)
		}
		c.out = out
	}
}
