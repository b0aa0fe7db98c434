package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// modelRules define the keys and values of a run, and the effect of operations on them: a
// model of the store in a few lines.
type modelRules struct {
	keySize, valueSize int // 0 if lengths vary
	longest            int // longest value, if lengths vary
}

// modelCell is the value and expiry of a key.
type modelCell struct {
	value   string
	expires int64 // 0: never
}

// modelState maps numbers of keys to cells.
type modelState map[uint64]modelCell

// modelOp is one operation of a script. Its text is kind, key, ":" and seed, "@" and ttl, the
// latter two if not 0: u17:4711@20. It begins with a w if it is by a word: wm17:4711.
type modelOp struct {
	word bool // by a WordModifier
	kind byte
	key  uint64 // number
	seed uint64 // of the value
	ttl  int64  // time to live in milliseconds, 0: for ever
}

// Kinds of operations. Counters are separate keys, shared by all sessions.
const (
	modelRead    = 'r'
	modelUpsert  = 'u'
	modelDelete  = 'd'
	modelInsert  = 'i'
	modelModify  = 'm' // copying RMW
	modelInPlace = 'p' // RMW that also has an in-place form
	modelKeep    = 'k' // RMW that changes nothing
	modelRemove  = 'x' // RMW that removes
	modelCount   = 'c' // RMW of a counter
	modelSum     = 's' // read of a counter
)

func (o modelOp) String() string {
	s := fmt.Sprintf("%c%d", o.kind, o.key)
	if o.word {
		s = "w" + s
	}
	if o.seed != 0 {
		s += fmt.Sprintf(":%d", o.seed)
	}
	if o.ttl != 0 {
		s += fmt.Sprintf("@%d", o.ttl)
	}
	return s
}

// byWord reports whether an RMW of that kind may be by a word: all values of the key, old or
// new, have length 8. A word has no expiry.
func (r *modelRules) byWord(o modelOp) bool {
	switch o.kind {
	case modelCount:
		return r.valueSize == 8 || r.keySize == 0
	case modelModify, modelKeep, modelRemove:
		return r.valueSize == 8 && o.ttl == 0
	}
	return false
}

// key returns key number n.
func (r *modelRules) key(n uint64) []byte {
	if r.keySize == 0 {
		return append(key8(n), make([]byte, n%9)...)
	}
	k := make([]byte, r.keySize)
	copy(k, key8(n))
	return k
}

// number is the inverse of key.
func (r *modelRules) number(key []byte) (uint64, error) {
	var word [8]byte
	copy(word[:], key)
	n := binary.LittleEndian.Uint64(word[:])
	if !bytes.Equal(key, r.key(n)) {
		return 0, fmt.Errorf("%x is no key", key)
	}
	return n, nil
}

// value returns the value of a seed.
func (r *modelRules) value(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := r.valueSize
	if r.keySize == 0 {
		n = rng.IntN(r.longest + 1)
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(rng.Uint32())
	}
	return v
}

// combine computes a new value from an old one, or none, and input: it has input's length, and
// each byte is added to the old one's.
func combine(dst, old, input []byte) []byte {
	for i, b := range input {
		if i < len(old) {
			b += old[i]
		}
		dst = append(dst, b)
	}
	return dst
}

// count computes the new value of a counter. Counts commute.
func (r *modelRules) count(dst, old []byte, delta uint64) []byte {
	n := 8
	if r.keySize != 0 {
		n = r.valueSize
	}
	var word [8]byte
	copy(word[:], old)
	binary.LittleEndian.PutUint64(word[:], binary.LittleEndian.Uint64(word[:])+delta)
	dst = append(dst, word[:min(n, 8)]...)
	return append(dst, make([]byte, max(n-8, 0))...)
}

// get returns what a reader finds at a time.
func (st modelState) get(key uint64, now int64) (modelCell, bool) {
	c, found := st[key]
	if !found || c.expires != 0 && c.expires <= now {
		return modelCell{}, false
	}
	return c, true
}

// apply executes an operation, and returns what it found.
func (r *modelRules) apply(st modelState, o modelOp, now int64) (was modelCell, found bool) {
	was, found = st.get(o.key, now)
	var expires int64
	if o.ttl != 0 {
		expires = now + o.ttl
	}
	switch o.kind {
	case modelUpsert:
		st[o.key] = modelCell{string(r.value(o.seed)), expires}
	case modelDelete:
		delete(st, o.key)
	case modelInsert:
		if !found {
			st[o.key] = modelCell{string(r.value(o.seed)), expires}
		}
	case modelModify, modelInPlace:
		if o.ttl == 0 {
			expires = was.expires
		}
		st[o.key] = modelCell{string(combine(nil, []byte(was.value), r.value(o.seed))), expires}
	case modelRemove:
		delete(st, o.key)
	case modelCount:
		st[o.key] = modelCell{string(r.count(nil, []byte(was.value), o.seed)), 0}
	}
	return was, found
}

// sight is the result of an operation on its record.
type sight struct {
	cell  modelCell
	found bool
}

func (s sight) String() string {
	if !s.found {
		return "nothing"
	}
	return fmt.Sprintf("%s until %d", brief([]byte(s.cell.value)), s.cell.expires)
}

// op converts an operation of the script to one of the store. An RMW reports what it saw.
func (r *modelRules) op(o modelOp, now int64, saw *sight) Op {
	op := Op{Key: r.key(o.key)}
	if o.ttl != 0 {
		op.Expires = now + o.ttl
	}
	ends := op.Expires
	modify := func(change func(u *Update) Verdict) Modifier {
		return func(u *Update) Verdict {
			*saw = sight{modelCell{string(u.Old), u.Expires}, u.Found}
			return change(u)
		}
	}
	switch o.kind {
	case modelRead, modelSum:
		op.Kind = OpRead
	case modelUpsert:
		op.Kind, op.Value = OpUpsert, r.value(o.seed)
	case modelDelete:
		op.Kind = OpDelete
	case modelInsert:
		op.Kind, op.Value = OpInsert, r.value(o.seed)
	case modelModify, modelInPlace:
		input := r.value(o.seed)
		op.Kind, op.Expires = OpRMW, 0
		op.Modify = modify(func(u *Update) Verdict {
			u.New = combine(u.New, u.Old, input)
			if ends != 0 {
				u.Expires = ends
			}
			return Put
		})
		if o.kind == modelInPlace {
			op.InPlace = func(value []byte) ([]byte, bool) {
				if len(input) > cap(value) {
					return nil, false
				}
				*saw = sight{modelCell{value: string(value), expires: unseen}, true}
				return combine(value[:0], bytes.Clone(value), input), true
			}
		}
	case modelKeep:
		op.Kind, op.Modify = OpRMW, modify(func(*Update) Verdict { return Keep })
	case modelRemove:
		op.Kind, op.Modify = OpRMW, modify(func(*Update) Verdict { return Remove })
	case modelCount:
		op.Kind = OpRMW
		op.Modify = modify(func(u *Update) Verdict {
			u.New = r.count(u.New, u.Old, o.seed)
			return Put
		})
	}
	if o.word {
		op.ModifyWord, op.Modify = wordForm(op.Modify), nil
	}
	return op
}

// unseen is the expiry where the in-place and word forms do not get it.
const unseen = -1

// wordForm turns a Modifier of 8-byte values that does not change expiries into a
// WordModifier.
func wordForm(modify Modifier) WordModifier {
	return func(old uint64, found bool) (uint64, Verdict) {
		u := Update{Found: found, Expires: unseen}
		if found {
			u.Old = key8(old)
		}
		verdict := modify(&u)
		if verdict != Put {
			return 0, verdict
		}
		return binary.LittleEndian.Uint64(u.New), Put
	}
}

// brief prints the length and the first bytes of a value.
func brief(v []byte) string { return fmt.Sprintf("%d bytes %.8x", len(v), v) }
