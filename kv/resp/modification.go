package resp

import "github.com/redykv/redykv/kv"

// modification is one read-modify-write and its outcome: a command on one key
// that changes it. Its Modifier is bound once, so that using it again allocates
// nothing.
type modification struct {
	// change decides what becomes of the key, and notes what to reply. It may be
	// called several times; the last call counts.
	change func(*modification) kv.Verdict
	// reply appends it; not where the change was refused.
	reply func(m *modification, out []byte, resp3 bool) []byte
	// only is the type of value that the change is for; typeNone: any.
	only valueType

	// What the command gave. The bytes are the connection's.
	arg     []byte
	args    [][]byte
	delta   int64
	expires int64 // milliseconds of Unix time, 0: never
	flags   modFlags
	most    int    // bytes of a value
	bad     string // what is wrong with the command, where that matters for a key that exists only

	call kv.Modifier
	u    *kv.Update // while change runs

	// What the key holds, while change runs…
	typ     valueType
	content []byte
	// …and the outcome, of the last call.
	found   bool // the key exists
	changed bool // and is another one now
	old     []byte
	result  int64
	refused string // why the key stayed as it was

	pairs pairs // scratch of changes of hashes
}

func newModification() *modification {
	m := new(modification)
	m.call = m.apply
	return m
}

// apply is the Modifier.
func (m *modification) apply(u *kv.Update) kv.Verdict {
	m.u, m.found, m.changed, m.refused = u, u.Found, false, ""
	m.typ, m.content = typeNone, nil
	if u.Found {
		m.typ, m.content = typed(u.Old)
	}
	if u.Found && !m.typ.isFor(m.only) {
		m.refused = errWrongType
		return kv.Keep
	}
	verdict := m.change(m)
	m.changed = verdict == kv.Put || verdict == kv.Remove && u.Found
	m.u, m.content = nil, nil
	return verdict
}

// refuse leaves the key as it is and replies with an error.
func (m *modification) refuse(text string) kv.Verdict {
	m.refused = text
	return kv.Keep
}

// put makes s the key's string. It must not lie in Update.New.
func (m *modification) put(s []byte) kv.Verdict {
	if len(s) > markSize && marked(s) {
		m.u.New = appendMark(m.u.New, typeString)
	}
	m.u.New = append(m.u.New, s...)
	return kv.Put
}

// putNew makes what was appended to Update.New the key's string.
func (m *modification) putNew() kv.Verdict {
	if s := m.u.New; len(s) > markSize && marked(s) {
		m.u.New = append(appendMark(s, typeString), s...)[len(s):]
	}
	return kv.Put
}

// keepOld notes the string that the key holds, for the reply.
func (m *modification) keepOld() { m.old = append(m.old[:0], m.content...) }

// forget lets go of what belongs to the connection, and of large memory.
func (m *modification) forget() {
	m.arg, m.args = nil, nil
	if cap(m.old) > keptValues/maxBatch {
		m.old = nil
	}
	m.pairs.forget()
}

// The replies that many have.

func replyResult(m *modification, out []byte, _ bool) []byte { return appendInt(out, m.result) }

// replyOld is the string that was there, or null.
func replyOld(m *modification, out []byte, resp3 bool) []byte {
	if !m.found {
		return appendNull(out, resp3)
	}
	return appendBulk(out, m.old)
}

// replyChanged is OK if the key was changed, or null.
func replyChanged(m *modification, out []byte, resp3 bool) []byte {
	if !m.changed {
		return appendNull(out, resp3)
	}
	return appendSimple(out, "OK")
}

// replyWhether is 1 if the key was changed, or 0.
func replyWhether(m *modification, out []byte, _ bool) []byte {
	if m.changed {
		return appendInt(out, 1)
	}
	return appendInt(out, 0)
}

func replySimpleOK(_ *modification, out []byte, _ bool) []byte { return appendSimple(out, "OK") }
