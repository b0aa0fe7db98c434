package resp

import (
	"strconv"

	"github.com/redykv/redykv/kv"
)

// modKind is what a modification does, and how it is answered.
type modKind uint8

const (
	modSwap      modKind = iota // store arg; the old value, or null
	modSwapNew                  // store arg where there is no value; the old one, or null
	modSetNew                   // the same; OK, or null
	modSetNewInt                // the same; 1, or 0
	modIncrement                // add delta; the sum
	modAppend                   // append arg; the new length
)

// modification is one read-modify-write and its outcome. Its Modifier is bound
// once, so that using it again allocates nothing.
type modification struct {
	kind  modKind
	arg   []byte // the connection's
	delta int64
	most  int // bytes of a value
	call  kv.Modifier

	// The outcome, of the last call: the store may make several.
	old     []byte
	found   bool
	result  int64
	refused string // why the value stayed as it was
}

func newModification() *modification {
	m := new(modification)
	m.call = m.apply
	return m
}

// apply is the Modifier.
func (m *modification) apply(u *kv.Update) kv.Verdict {
	m.found, m.refused = u.Found, ""
	switch m.kind {
	case modSwap:
		m.old = append(m.old[:0], u.Old...)
	case modIncrement:
		return m.increment(u)
	case modAppend:
		if m.result = int64(len(u.Old) + len(m.arg)); m.result > int64(m.most) {
			m.refused = errTooLong
			return kv.Keep
		}
		u.New = append(u.New, u.Old...)
	default: // where there is no value only
		if m.kind == modSwapNew {
			m.old = append(m.old[:0], u.Old...)
		}
		if u.Found {
			return kv.Keep
		}
	}
	u.New = append(u.New, m.arg...)
	return kv.Put
}

func (m *modification) increment(u *kv.Update) kv.Verdict {
	n, ok := int64(0), true
	if u.Found {
		n, ok = parseInt(u.Old)
	}
	if !ok {
		m.refused = errNotInteger
		return kv.Keep
	}
	if m.result, ok = addInt(n, m.delta); !ok {
		m.refused = errOverflow
		return kv.Keep
	}
	u.New = strconv.AppendInt(u.New, m.result, 10)
	return kv.Put
}

func (m *modification) appendReply(out []byte, resp3 bool) []byte {
	if m.refused != "" {
		return appendError(out, m.refused)
	}
	switch m.kind {
	case modSwap, modSwapNew:
		if m.found {
			return appendBulk(out, m.old)
		}
		return appendNull(out, resp3)
	case modSetNew:
		if m.found {
			return appendNull(out, resp3)
		}
		return appendSimple(out, "OK")
	case modSetNewInt:
		if m.found {
			return appendInt(out, 0)
		}
		return appendInt(out, 1)
	default:
		return appendInt(out, m.result)
	}
}

// forget lets go of what belongs to the connection, and of a large old value.
func (m *modification) forget() {
	m.arg = nil
	if cap(m.old) > keptValues/maxBatch {
		m.old = nil
	}
}
