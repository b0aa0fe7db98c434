package blackbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of a key's value.
type Kind byte

const (
	Nothing Kind = iota
	String
	Hash
)

// State is the value of a key. States are compared with ==.
type State struct {
	Kind    Kind
	Value   string // of a hash: its fields, encoded in order of their names
	Expires int64  // Unix milliseconds; 0: never
}

func (s State) String() string {
	if s.Kind == Nothing {
		return "nothing"
	}
	text := short(s.Value)
	if s.Kind == Hash {
		text = fmt.Sprintf("hash %v", short(strings.Join(s.fields(), " ")))
	}
	if s.Expires != 0 {
		text += fmt.Sprintf(" until %d", s.Expires)
	}
	return text
}

// fields returns a hash's names and values, alternating.
func (s State) fields() []string {
	if s.Kind != Hash {
		return nil
	}
	return strings.Split(s.Value, "\x00")
}

// hashOf returns the hash with these names and values.
func hashOf(fields []string, expires int64) State {
	if len(fields) == 0 {
		return State{}
	}
	pairs := slices.Collect(slices.Chunk(fields, 2))
	slices.SortFunc(pairs, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return State{Hash, strings.Join(slices.Concat(pairs...), "\x00"), expires}
}

// Op is a command on one key.
type Op struct {
	Key   string
	Args  []string
	Write bool
	// Apply returns the key's state after the command, and the reply.
	Apply func(State) (State, Reply)
}

func (op *Op) String() string {
	args := make([]string, len(op.Args))
	for i, arg := range op.Args {
		args[i] = arg
		if len(arg) > 48 || strings.ContainsAny(arg, "\r\n\x00 ") {
			args[i] = short(arg)
		}
	}
	return strings.Join(args, " ")
}

// Commands on strings.

func opGet(key string) *Op {
	return &Op{key, []string{"GET", key}, false, func(s State) (State, Reply) { return s, valueOf(s) }}
}

func valueOf(s State) Reply {
	if s.Kind == Nothing {
		return null
	}
	return bulk(s.Value)
}

func opStrlen(key string) *Op {
	return &Op{key, []string{"STRLEN", key}, false, func(s State) (State, Reply) { return s, integer(int64(len(s.Value))) }}
}

func opSet(key, value string) *Op {
	return &Op{key, []string{"SET", key, value}, true, func(State) (State, Reply) { return State{String, value, 0}, ok }}
}

func opSetUntil(key, value string, expires int64) *Op {
	return &Op{
		key, []string{"SET", key, value, "PXAT", strconv.FormatInt(expires, 10)}, true,
		func(State) (State, Reply) { return State{String, value, expires}, ok },
	}
}

func opGetSet(key, value string) *Op {
	return &Op{key, []string{"SET", key, value, "GET"}, true, func(s State) (State, Reply) { return State{String, value, 0}, valueOf(s) }}
}

func opAppend(key, value string) *Op {
	return &Op{key, []string{"APPEND", key, value}, true, func(s State) (State, Reply) {
		s = State{String, s.Value + value, s.Expires}
		return s, integer(int64(len(s.Value)))
	}}
}

func opSetRange(key string, offset int, value string) *Op {
	return &Op{key, []string{"SETRANGE", key, strconv.Itoa(offset), value}, true, func(s State) (State, Reply) {
		b := []byte(s.Value)
		if end := offset + len(value); len(b) < end {
			b = append(b, make([]byte, end-len(b))...)
		}
		copy(b[offset:], value)
		return State{String, string(b), s.Expires}, integer(int64(len(b)))
	}}
}

func opIncrBy(key string, by int64) *Op {
	return &Op{key, []string{"INCRBY", key, strconv.FormatInt(by, 10)}, true, func(s State) (State, Reply) {
		n, _ := strconv.ParseInt(s.Value, 10, 64) // a missing value counts as 0; only numbers are written to such keys
		n += by
		return State{String, strconv.FormatInt(n, 10), s.Expires}, integer(n)
	}}
}

// Commands on any key.

func opDel(key string) *Op {
	return &Op{key, []string{"DEL", key}, true, func(s State) (State, Reply) { return State{}, present(s) }}
}

func present(s State) Reply {
	if s.Kind == Nothing {
		return integer(0)
	}
	return integer(1)
}

func opExists(key string) *Op {
	return &Op{key, []string{"EXISTS", key}, false, func(s State) (State, Reply) { return s, present(s) }}
}

func opExpireAt(key string, expires int64) *Op {
	return &Op{key, []string{"PEXPIREAT", key, strconv.FormatInt(expires, 10)}, true, func(s State) (State, Reply) {
		if s.Kind == Nothing {
			return s, integer(0)
		}
		s.Expires = expires
		return s, integer(1)
	}}
}

func opPersist(key string) *Op {
	return &Op{key, []string{"PERSIST", key}, true, func(s State) (State, Reply) {
		if s.Expires == 0 {
			return s, integer(0)
		}
		s.Expires = 0
		return s, integer(1)
	}}
}

func opExpireTime(key string) *Op {
	return &Op{key, []string{"PEXPIRETIME", key}, false, func(s State) (State, Reply) {
		switch {
		case s.Kind == Nothing:
			return s, integer(-2)
		case s.Expires == 0:
			return s, integer(-1)
		}
		return s, integer(s.Expires)
	}}
}

// Commands on hashes.

func opHSet(key, field, value string) *Op {
	return &Op{key, []string{"HSET", key, field, value}, true, func(s State) (State, Reply) {
		fields := s.fields()
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == field {
				fields[i+1] = value
				return hashOf(fields, s.Expires), integer(0)
			}
		}
		return hashOf(append(fields, field, value), s.Expires), integer(1)
	}}
}

func opHDel(key, field string) *Op {
	return &Op{key, []string{"HDEL", key, field}, true, func(s State) (State, Reply) {
		fields := s.fields()
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == field {
				return hashOf(slices.Delete(fields, i, i+2), s.Expires), integer(1)
			}
		}
		return s, integer(0)
	}}
}

func opHGet(key, field string) *Op {
	return &Op{key, []string{"HGET", key, field}, false, func(s State) (State, Reply) {
		fields := s.fields()
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == field {
				return s, bulk(fields[i+1])
			}
		}
		return s, null
	}}
}

func opHLen(key string) *Op {
	return &Op{key, []string{"HLEN", key}, false, func(s State) (State, Reply) { return s, integer(int64(len(s.fields()) / 2)) }}
}
