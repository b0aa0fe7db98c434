package resp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// The subcommands of ACL. Those that list or change users need a UserList.

const errNoUserList = "ERR the users of this server cannot be listed or changed"

// users returns the list of users. If there is none, it replies with an error.
func (c *client) users() (list UserList, ok bool) {
	if list, ok = c.server.opts.Users.(UserList); !ok {
		c.fail(errNoUserList)
	}
	return list, ok
}

func aclWhoami(c *client, _ request) { c.out = appendBulk(c.reply(), c.info.Load().user) }

func aclCat(c *client, r request) {
	var names []string
	switch r.len() {
	case 2:
		names = categoryNames
	case 3:
		of, err := ParseCategory(strings.ToLower(string(r.arg(2))))
		if err != nil {
			c.fail("ERR Unknown category '" + text(r.arg(2), shown) + "'")
			return
		}
		for _, cmd := range c.server.table.all {
			if cmd.in(of) {
				names = append(names, cmd.name)
			}
		}
	default:
		c.fail(subcommandSyntax(r))
		return
	}
	c.out = appendStrings(c.reply(), names)
}

func aclSetUser(c *client, r request) {
	users, ok := c.users()
	if !ok {
		return
	}
	c.flush() // earlier commands run with the permissions before
	var rules []string
	for i := 3; i < r.len(); i++ {
		rules = append(rules, string(r.arg(i)))
	}
	name := string(r.arg(2))
	if err := users.Set(name, rules); err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.endUsers(users, func(of string) bool { return of == name })
	c.out = appendSimple(c.reply(), "OK")
}

func aclDelUser(c *client, r request) {
	users, ok := c.users()
	if !ok {
		return
	}
	c.flush()
	for i := 2; i < r.len(); i++ {
		if string(r.arg(i)) == DefaultUser {
			c.fail("ERR The 'default' user cannot be removed")
			return
		}
	}
	n := int64(0)
	for i := 2; i < r.len(); i++ {
		name := string(r.arg(i))
		if users.Delete(name) {
			n++
			c.endUsers(users, func(of string) bool { return of == name })
		}
	}
	c.out = appendInt(c.reply(), n)
}

// endUsers disconnects the clients of users that do not exist any more, and those that are subscribed
// to what their user may not use any more.
func (c *client) endUsers(users UserList, changed func(name string) bool) {
	for _, of := range c.server.all() {
		name := of.info.Load().user
		if !changed(name) {
			continue
		}
		if now := users.Find(name); now != nil && (!of.seenSubscribing() || c.server.pubsub.permits(now, of)) {
			continue
		}
		if of == c {
			c.leaves = true
		} else if err := hangUp(of.conn); err != nil {
			c.server.opts.Logger.Debug("ending a client", "client", of.id, "err", err)
		}
	}
}

// permits reports whether a user may use all that a client is subscribed to.
func (ps *pubsub) permits(u User, of *client) bool {
	permissions := append([]Permissions{u}, u.Selectors()...)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for kind, topics := range ps.topics {
		for _, t := range topics {
			for sub := range t.subscribers {
				if sub.client == of && !slices.ContainsFunc(permissions, func(p Permissions) bool { return p.MayJoin(t.name, topicKind(kind) == patterns) }) {
					return false
				}
			}
		}
	}
	return true
}

func aclUsers(c *client, _ request) {
	if users, ok := c.users(); ok {
		c.out = appendStrings(c.reply(), users.Names())
	}
}

func aclList(c *client, _ request) {
	if users, ok := c.users(); ok {
		c.out = appendStrings(c.reply(), users.Lines())
	}
}

func aclGetUser(c *client, r request) {
	users, ok := c.users()
	if !ok {
		return
	}
	d := users.Describe(string(r.arg(2)))
	if d == nil {
		c.out = appendNullArray(c.reply(), c.resp3)
		return
	}
	out := appendBulk(appendMap(c.reply(), c.resp3, 6), "flags")
	out = appendSet(out, c.resp3, len(d.Flags))
	for _, flag := range d.Flags {
		out = appendBulk(out, flag)
	}
	out = appendStrings(appendBulk(out, "passwords"), d.Passwords)
	out = d.append(out)
	out = appendArray(appendBulk(out, "selectors"), len(d.Selectors))
	for _, s := range d.Selectors {
		out = s.append(appendMap(out, c.resp3, 3))
	}
	c.out = out
}

// append appends the description as pairs of a map.
func (d PermissionsDescription) append(out []byte) []byte {
	for _, pair := range [][2]string{{"commands", d.Commands}, {"keys", d.Keys}, {"channels", d.Channels}} {
		out = appendBulk(appendBulk(out, pair[0]), pair[1])
	}
	return out
}

func aclLoad(c *client, _ request) {
	users, ok := c.users()
	if !ok {
		return
	}
	c.flush()
	if err := users.Load(); err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.endUsers(users, func(string) bool { return true })
	c.out = appendSimple(c.reply(), "OK")
}

func aclSave(c *client, _ request) {
	users, ok := c.users()
	if !ok {
		return
	}
	if err := users.Save(); err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.out = appendSimple(c.reply(), "OK")
}

// The bits of a password of ACL GENPASS.
const (
	usualPassBits = 256
	maxPassBits   = 4096
)

func aclGenPass(c *client, r request) {
	bits := int64(usualPassBits)
	if r.len() > 3 {
		c.fail(subcommandSyntax(r))
		return
	}
	if r.len() == 3 {
		var ok bool
		if bits, ok = parseInt(r.arg(2)); !ok {
			c.fail(errNotInteger)
			return
		}
		if bits <= 0 || bits > maxPassBits {
			c.fail(fmt.Sprintf("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to %d", maxPassBits))
			return
		}
	}
	secret := make([]byte, (bits+7)/8)
	_, _ = rand.Read(secret) // never fails
	c.out = appendBulk(c.reply(), hex.EncodeToString(secret)[:(bits+3)/4])
}

// aclDryRun implements ACL DRYRUN, with Redis's words for a reader.
func aclDryRun(c *client, r request) {
	users, ok := c.users()
	if !ok {
		return
	}
	u := users.Find(string(r.arg(2)))
	if u == nil {
		c.fail("ERR User '" + text(r.arg(2), shown) + "' not found")
		return
	}
	tried := request{data: r.data, args: r.args[3:]}
	cmd, refusal := c.server.table.find(tried)
	switch {
	case cmd == nil:
		c.fail("ERR Command '" + text(tried.arg(0), shown) + "' not found")
		return
	case refusal != "":
		c.fail(refusal)
		return
	}
	switch d := cmd.deniedTo(u, tried); d.reason {
	case "":
		c.out = appendSimple(c.reply(), "OK")
	case deniedCommand:
		c.out = appendBulk(c.reply(), "This user has no permissions to run the '"+d.object+"' command")
	default:
		c.out = appendBulk(c.reply(), "This user has no permissions to access the '"+d.object+"' "+d.reason)
	}
}

// aclLog implements ACL LOG.
func aclLog(c *client, r request) {
	n := int64(defaultLogged)
	switch {
	case r.len() > 3:
		c.fail(subcommandSyntax(r))
		return
	case r.len() == 3 && is(r.arg(2), "reset"):
		c.server.denials.reset()
		c.out = appendSimple(c.reply(), "OK")
		return
	case r.len() == 3:
		var ok bool
		if n, ok = parseInt(r.arg(2)); !ok {
			c.fail(errNotInteger)
			return
		}
	}
	c.out = c.server.denials.append(c.reply(), c.resp3, max(n, 0))
}
