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

// apply is the Modifier. A value that is to stay is stored again.
func (m *modification) apply(dst, old []byte, found bool) []byte {
	m.found, m.refused = found, ""
	switch m.kind {
	case modSwap:
		m.old = append(m.old[:0], old...)
		return append(dst, m.arg...)
	case modIncrement:
		return m.increment(dst, old, found)
	case modAppend:
		if m.result = int64(len(old) + len(m.arg)); m.result > int64(m.most) {
			m.refused = errTooLong
			return append(dst, old...)
		}
		return append(append(dst, old...), m.arg...)
	}
	if !found {
		return append(dst, m.arg...)
	}
	if m.kind == modSwapNew {
		m.old = append(m.old[:0], old...)
	}
	return append(dst, old...)
}

func (m *modification) increment(dst, old []byte, found bool) []byte {
	n, ok := int64(0), true
	if found {
		n, ok = parseInt(old)
	}
	if !ok {
		m.refused = errNotInteger
		return append(dst, old...)
	}
	if m.result, ok = addInt(n, m.delta); !ok {
		m.refused = errOverflow
		return append(dst, old...)
	}
	return strconv.AppendInt(dst, m.result, 10)
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
