package resp

import "strings"

// keyUse is what a command does with a key.
type keyUse struct {
	// words are Redis's: RO, RW, OW (it overwrites what is there) or RM (it removes it),
	// and behind that, where clients' data is looked at or changed, access, insert,
	// update, delete. What only says whether a key is there, or how large, has none of
	// these.
	words []string
	// access is what access control has to allow. 0: anything at all.
	access Access
}

func newKeyUse(words string) (u keyUse) {
	u.words = strings.Fields(words)
	for _, word := range u.words {
		switch word {
		case "access":
			u.access |= AccessRead
		case "insert", "update", "delete":
			u.access |= AccessWrite
		}
	}
	return u
}

// Uses that are no one command's, or not always.
var (
	useRead  = newKeyUse("RO access")
	useWrite = newKeyUse("RW access update")
	useSet   = newKeyUse("OW update") // of SET without GET
)

// keyUses are what the other commands do, by their names as HasCommand has them: one use for
// each key, or one for all.
var keyUses = map[string][]string{
	"set": {"RW access update variable_flags"}, "setnx": {"OW insert"}, "setex": {"OW update"}, "psetex": {"OW update"},
	"mset": {"OW update"}, "msetnx": {"OW insert"}, "append": {"RW insert"}, "setrange": {"RW update"},
	"getdel": {"RW access delete"}, "del": {"RM delete"}, "unlink": {"RM delete"},
	"expire": {"RW update"}, "pexpire": {"RW update"}, "expireat": {"RW update"}, "pexpireat": {"RW update"}, "persist": {"RW update"},
	"rename": {"RW access delete", "OW update"}, "renamenx": {"RW access delete", "OW insert"},
	"copy": {"RO access", "OW update"}, "restore": {"OW update"},
	"hset": {"RW update"}, "hmset": {"RW update"}, "hsetnx": {"RW insert"}, "hdel": {"RW delete"},
	"strlen": {"RO"}, "exists": {"RO"}, "touch": {"RO"}, "type": {"RO"}, "watch": {"RO"},
	"hexists": {"RO"}, "hlen": {"RO"}, "hstrlen": {"RO"},
	"object|encoding": {"RO"}, "object|refcount": {"RO"}, "memory|usage": {"RO"},
}

// uses are what a command does with its keys: of each, or the same of all.
func (cmd *command) uses() (uses []keyUse) {
	for _, words := range keyUses[cmd.name] {
		uses = append(uses, newKeyUse(words))
	}
	switch {
	case uses != nil:
		return uses
	case cmd.flags&flagWrite != 0:
		return []keyUse{useWrite}
	}
	return []keyUse{useRead}
}

// use is what a request does with the i-th of its keys.
func (cmd *command) use(i int, r request) keyUse {
	if cmd.name == "set" {
		for i := 3; i < r.len(); i++ {
			if is(r.arg(i), "get") {
				return useWrite
			}
		}
		return useSet
	}
	return cmd.perKey[min(i, len(cmd.perKey)-1)]
}

// append appends the use as clients are told of it.
func (u keyUse) append(out []byte, resp3 bool) []byte {
	out = appendSet(out, resp3, len(u.words))
	for _, word := range u.words {
		out = appendSimple(out, word)
	}
	return out
}
