package resp

import (
	"bytes"

	"github.com/redykv/redykv/kv"
)

// Commands on one set, and SMOVE.

func sadd(c *client, r request) { c.modifyElements(typeSet, r, 1, changeMembers, replyResult) }

func changeMembers(m *modification) kv.Verdict {
	m.result, m.quiet = 0, false
	if !m.load() {
		return kv.Keep
	}
	converted := m.elements.expect(m.args[0], len(m.args))
	for _, member := range m.args {
		if m.elements.set(member, nil) {
			m.result++
		}
	}
	if m.quiet = m.result == 0; m.quiet && !converted {
		return kv.Keep
	}
	return m.store()
}

func srem(c *client, r request) { c.modifyElements(typeSet, r, 1, changeLessFields, replyResult) }

func scard(c *client, r request) { c.readElements(typeSet, r, 2, 0, replyCount) }

func sismember(c *client, r request) { c.readElements(typeSet, r, 2, -1, replyWhetherHas) }

func smismember(c *client, r request) {
	c.readElements(typeSet, r, 2, -1, replyWhichHas)
}

// replyWhichHas replies for each argument 1 if it is a member, or else 0.
func replyWhichHas(out []byte, _ bool, e elements, args [][]byte) []byte {
	var few [fewLooks]look
	out = appendArray(out, len(args))
	for looks := few[:0]; len(args) > 0 && e.err() == ""; {
		n := looksAtOnce(e, len(args))
		looks = lookUp(e, args[:n], looks[:0])
		args = args[n:]
		for _, l := range looks {
			is := int64(0)
			if l.found {
				is = 1
			}
			out = appendInt(out, is)
		}
	}
	return out
}

func smembers(c *client, r request) {
	c.readElements(typeSet, r, 2, 0, func(out []byte, resp3 bool, e elements, _ [][]byte) []byte {
		out = appendSet(out, resp3, e.len())
		e.each(func(member, _ []byte) bool {
			out = appendBulk(out, member)
			return true
		})
		return out
	})
}

func sscan(c *client, r request) { c.scanElements(typeSet, r) }

// spop implements SPOP, with or without a count.
func spop(c *client, r request) {
	switch {
	case r.len() > 3:
		c.fail(errSyntax)
		return
	case r.len() == 2:
		c.modifyElements(typeSet, r, -1, changePop, replyPopped)
		return
	}
	n, ok := parseInt(r.arg(2))
	if !ok || n < 0 {
		c.fail(errNotPositive)
		return
	}
	m := c.modifyElements(typeSet, r, -1, changePopSome, replyPoppedSome)
	m.delta, m.calls.call.most = n, c.server.opts.MaxReplies
}

func changePop(m *modification) kv.Verdict {
	if !m.found || !m.load() {
		return kv.Keep
	}
	member, _ := m.elements.random()
	m.old = append(m.old[:0], member...)
	m.elements.remove(m.old)
	return m.store()
}

func replyPopped(m *modification, out []byte, resp3 bool) []byte {
	if !m.found {
		return appendNull(out, resp3)
	}
	return appendBulk(out, m.old)
}

// changePopSome removes up to m.delta members. It makes the elements of the reply in m.old, and
// their number in m.result.
func changePopSome(m *modification) kv.Verdict {
	m.result, m.old = 0, m.old[:0]
	if !m.found || m.delta == 0 || !m.load() {
		return kv.Keep
	}
	io := &m.worker.collections.io
	pop := func(member []byte) {
		m.old = appendBulk(m.old, member)
		m.result++
		if m.opened != nil && int64(len(m.old)) > m.calls.call.most {
			io.fail(errLargeReply) // nothing of it is stored
		}
	}
	if m.delta >= int64(m.elements.len()) {
		m.elements.each(func(member, _ []byte) bool { pop(member); return true })
		return m.removeAll()
	}
	var member []byte
	for m.result < m.delta && m.elements.err() == "" {
		chosen, _ := m.elements.random()
		member = append(member[:0], chosen...)
		pop(member)
		m.elements.remove(member)
	}
	return m.store()
}

func replyPoppedSome(m *modification, out []byte, resp3 bool) []byte {
	return append(appendSet(out, resp3, int(m.result)), m.old...)
}

// smove implements SMOVE.
func smove(c *client, r request) {
	from, to := storedKey(c.db, r.arg(1)), storedKey(c.db, r.arg(2))
	member := r.arg(3)
	c.flush()
	c.borrow()
	var reply int64
	err := c.opened([][]byte{from, to}, true, func() error {
		cs := &c.worker.collections
		a, b := cs.of(from), cs.of(to)
		switch {
		case !a.exists():
			return nil
		case !a.typ.isFor(typeSet), b.exists() && !b.typ.isFor(typeSet):
			return c.refuseOpened(errWrongType)
		case bytes.Equal(from, to):
			if _, ok := a.elements().get(member); ok {
				reply = 1
			}
			return cs.io.failed
		case !a.elements().remove(member):
			return cs.io.failed
		}
		a.changed, reply = true, 1
		c.note(a, classSet, "srem")
		if !b.exists() {
			b.reset(typeSet)
			b.elements().expect(member, 1)
			c.noteEvent(classNew, "new", to)
		}
		if b.changed = b.elements().set(member, nil); b.changed {
			c.noteEvent(classSet, "sadd", to)
		}
		return cs.io.failed
	})
	c.concludeOpened(err, func(out []byte) []byte { return appendInt(out, reply) })
}
