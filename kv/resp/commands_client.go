package resp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// The subcommands of CLIENT.

// maxClientName is the length in bytes of the longest client name. The server keeps the name
// as long as the connection.
const maxClientName = 1 << 10

// validName reports whether a client may have this name. CLIENT LIST prints a line of words
// for each client, so a name must be one word.
func validName(name []byte) bool {
	return len(name) <= maxClientName && !slices.ContainsFunc(name, func(c byte) bool { return c < '!' || c > '~' })
}

func clientID(c *client, _ request) { c.out = appendInt(c.reply(), c.id) }

func clientGetName(c *client, _ request) {
	if name := c.info.Load().name; name != "" {
		c.out = appendBulk(c.reply(), name)
	} else {
		c.out = appendNull(c.reply(), c.resp3)
	}
}

func clientSetName(c *client, r request) {
	if !validName(r.arg(2)) {
		c.fail(errClientName)
		return
	}
	c.describe(func(i *clientInfo) { i.name = string(r.arg(2)) })
	c.out = appendSimple(c.reply(), "OK")
}

func clientSetInfo(c *client, r request) {
	value := r.arg(3)
	library := is(r.arg(2), "lib-name")
	switch {
	case !library && !is(r.arg(2), "lib-ver"):
		c.fail("ERR Unrecognized option '" + text(r.arg(2), shown) + "'")
		return
	case !validName(value):
		c.fail("ERR " + strings.ToLower(string(r.arg(2))) + " cannot contain spaces, newlines or special characters.")
		return
	}
	c.describe(func(i *clientInfo) {
		if library {
			i.library = string(value)
		} else {
			i.libVer = string(value)
		}
	})
	c.out = appendSimple(c.reply(), "OK")
}

func clientNoEvict(c *client, r request) {
	if !is(r.arg(2), "on") && !is(r.arg(2), "off") {
		c.fail(errSyntax)
		return
	}
	c.out = appendSimple(c.reply(), "OK")
}

// replyMode says which replies are sent to a client.
type replyMode uint8

const (
	repliesOn   replyMode = iota
	repliesSkip           // not that of the next command
	repliesOff
)

// clientReply implements CLIENT REPLY.
func clientReply(c *client, r request) {
	out := c.reply()
	switch of := r.arg(2); {
	case is(of, "on"):
		c.sendReplies()
		c.out = appendSimple(out, "OK")
	case is(of, "off"):
		c.mode = repliesOff
	case is(of, "skip"):
		c.mode = max(c.mode, repliesSkip)
	default:
		c.fail(errSyntax)
	}
}

// sendReplies makes the server send replies again, from that of the command that runs on.
func (c *client) sendReplies() { c.mode, c.dropping = repliesOn, false }

// dispatchDropping is dispatch that drops the reply, unless the command asks for replies. If the
// command is held for the connection's goroutine, the mode is repliesOff and stays so: loops do not
// run CLIENT REPLY SKIP.
func (c *client) dispatchDropping(r request) {
	c.flush()
	if c.mode == repliesSkip {
		c.mode = repliesOn
	}
	c.dropping, c.dropFrom = true, len(c.out)
	c.dispatch(r)
	c.flush()
	if c.dropping {
		c.dropping, c.out = false, c.out[:min(c.dropFrom, len(c.out))]
		c.collect()
	}
}

// buffers returns Redis's fields about a connection's memory, as of the end of its last batch.
// If r is not empty, it is the request of the connection itself, and the fields are current.
func (c *client) buffers(r request) string {
	unread, input, output, arguments := c.unread.Load(), c.inputs.Load(), c.outputs.Load(), int64(0)
	queued := c.output.queued.Load() // of messages
	if len(r.data) > 0 {
		unread, input, output = int64(len(r.data)+c.in.end-c.in.start), int64(len(c.in.buf)), int64(cap(c.out))
		for i := range r.len() {
			arguments += int64(len(r.arg(i)))
		}
	}
	return fmt.Sprintf("qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=0 rbs=%d rbp=%d obl=0 oll=0 omem=%d tot-mem=%d events=r",
		unread, max(input-unread, 0), arguments, output, output, queued, int64(unsafe.Sizeof(client{}))+input+output+queued)
}

// line returns the connection's line of CLIENT LIST. It may be called by any goroutine. r is
// empty unless the connection itself asks.
func (c *client) line(r request) string {
	info, now := c.info.Load(), time.Now()
	protocol := 2
	if info.resp3 {
		protocol = 3
	}
	idle := max(now.UnixMilli()-c.active.Load(), 0) / 1000
	last, name := c.last.Load(), "NULL"
	if len(r.data) > 0 {
		last = c.present
	}
	if last > 0 {
		name = c.server.table.all[last-1].name
	}
	flags := info.tracking
	switch {
	case c.seenSubscribing():
		flags = "P" + flags
	case c.server.blocking.has(c.id):
		flags = "b" + flags
	}
	flags = cmp.Or(flags, "N")
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=-1 %s cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s\n",
		c.id, c.conn.RemoteAddr(), c.conn.LocalAddr(), info.name, int64(now.Sub(c.created)/time.Second), idle,
		flags, info.db, c.subscriptions[channels].Load(), c.subscriptions[patterns].Load(), c.subscriptions[shardChannels].Load(),
		c.buffers(r), name, info.user, info.redirect, protocol, info.library, info.libVer)
}

// seenSubscribing is subscribing for other goroutines.
func (c *client) seenSubscribing() bool {
	for kind := range c.subscriptions {
		if c.subscriptions[kind].Load() > 0 {
			return true
		}
	}
	return false
}

func clientDescribe(c *client, r request) { c.out = appendText(c.reply(), c.resp3, c.line(r)) }

// all returns the connections, oldest first.
func (s *Server) all() []*client {
	s.mu.Lock()
	all := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		all = append(all, c)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *client) int { return cmp.Compare(a.id, b.id) })
	return all
}

// clientList implements CLIENT LIST, with TYPE or ID.
func clientList(c *client, r request) {
	f := clientFilter{}
	switch {
	case r.len() == 2:
	case r.len() == 4 && is(r.arg(2), "type"):
		if refusal := f.setType(r.arg(3)); refusal != "" {
			c.fail(refusal)
			return
		}
	case r.len() >= 4 && is(r.arg(2), "id"):
		f.ids = make(map[int64]bool)
		for i := 3; i < r.len(); i++ {
			id, ok := parseInt(r.arg(i))
			if !ok {
				c.fail("ERR Invalid client ID")
				return
			}
			f.ids[id] = true
		}
	default:
		c.fail(errSyntax)
		return
	}
	var lines strings.Builder
	for _, of := range c.server.all() {
		if f.fits(of, c) {
			asks := request{}
			if of == c {
				asks = r
			}
			lines.WriteString(of.line(asks))
		}
	}
	c.out = appendText(c.reply(), c.resp3, lines.String())
}

// clientFilter selects connections.
type clientFilter struct {
	ids         map[int64]bool // nil: any
	addr, laddr string         // "": any
	user        string
	skipMe      bool
	kind        clientKind
}

// clientKind is a type of connection.
type clientKind uint8

const (
	anyClient clientKind = iota
	normalClient
	pubsubClient
	otherServer // there is none
)

// setType selects a type of connection.
func (f *clientFilter) setType(name []byte) (refusal string) {
	switch {
	case is(name, "normal"):
		f.kind = normalClient
	case is(name, "pubsub"):
		f.kind = pubsubClient
	case is(name, "master"), is(name, "replica"), is(name, "slave"):
		f.kind = otherServer
	default:
		return "ERR Unknown client type '" + text(name, shown) + "'"
	}
	return ""
}

func (f *clientFilter) fits(of, me *client) bool {
	switch {
	case f.skipMe && of == me,
		f.kind == otherServer,
		f.kind != anyClient && (f.kind == pubsubClient) != of.seenSubscribing(),
		f.ids != nil && !f.ids[of.id],
		f.addr != "" && f.addr != of.conn.RemoteAddr().String(),
		f.laddr != "" && f.laddr != of.conn.LocalAddr().String(),
		f.user != "" && f.user != of.info.Load().user:
		return false
	}
	return true
}

// clientKill implements CLIENT KILL, with an address or with filters.
func clientKill(c *client, r request) {
	f := clientFilter{skipMe: true}
	byAddress := r.len() == 3
	if byAddress {
		f.addr, f.skipMe = string(r.arg(2)), false
	}
	for i := 2; i < r.len() && !byAddress; i += 2 {
		if i+1 == r.len() {
			c.fail(errSyntax)
			return
		}
		if refusal := f.set(c.server, r.arg(i), r.arg(i+1)); refusal != "" {
			c.fail(refusal)
			return
		}
	}
	out := c.reply()
	n := int64(0)
	for _, of := range c.server.all() {
		if !f.fits(of, c) {
			continue
		}
		n++
		if of == c {
			c.leaves = true
		} else if err := hangUp(of.conn); err != nil {
			c.server.opts.Logger.Debug("ending a client", "client", of.id, "err", err)
		}
	}
	switch {
	case !byAddress:
		c.out = appendInt(out, n)
	case n == 0:
		c.fail(errNoClient)
	default:
		c.out = appendSimple(out, "OK")
	}
	if c.leaves { // a transaction goes on without replies
		c.noMore(len(c.out))
	}
}

// set adds a filter of CLIENT KILL.
func (f *clientFilter) set(s *Server, option, value []byte) (refusal string) {
	switch {
	case is(option, "id"):
		id, ok := parseInt(value)
		if !ok || id < 1 {
			return "ERR client-id should be greater than 0"
		}
		f.ids = map[int64]bool{id: true}
	case is(option, "type"):
		return f.setType(value)
	case is(option, "addr"):
		f.addr = string(value)
	case is(option, "laddr"):
		f.laddr = string(value)
	case is(option, "user"):
		f.user = string(value)
		if users := s.opts.Users; users != nil && !users.Has(value) || users == nil && f.user != DefaultUser {
			return "ERR No such user '" + text(value, shown) + "'"
		}
	case is(option, "skipme") && (is(value, "yes") || is(value, "no")):
		f.skipMe = is(value, "yes")
	default:
		return errSyntax
	}
	return ""
}
