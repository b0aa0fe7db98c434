package resp

import (
	"iter"
	"strings"
	"sync"
)

// maxName is the length in bytes of the longest name of a command or option.
const maxName = 16

// command is a command of the server, or a subcommand.
type command struct {
	name  string // in lower case; a subcommand's name is "command|subcommand"
	arity int    // number of arguments including the name; negative: the least number
	run   func(*client, request)
	flags commandFlags
	keys  keySpec
	also  Category // categories besides those that flags and group imply
	group string
	since string // first version of Redis that has the command
	about string

	subs    map[string]*command // subcommands by name in lower case…
	ordered []*command          // …and in the order of the table
	n       int                 // index in table.all, and in statistics
	perKey  []keyUse            // use of each key, or one for all keys
	plain   bool                // a loop may run it

	category Category // the result of categories
}

// commandFlags are a command's flags. Clients see those that Redis has too.
type commandFlags uint16

const (
	flagWrite commandFlags = 1 << iota
	flagReadOnly
	flagDenyOOM
	flagAdmin
	flagNoScript
	flagLoading
	flagStale
	flagFast
	flagNoAuth  // allowed before authentication
	flagNoMulti // not in a transaction
	flagAllowBusy
	flagSkipSlowlog
	flagNoAsyncLoading
	// Flags that Redis does not have.
	flagAtOnce // not queued by MULTI
	flagSolo   // timed by itself, not as part of a batch
	flagWhole  // reads or changes more than the keys that it names
)

var flagNames = []string{
	"write", "readonly", "denyoom", "admin", "noscript", "loading", "stale", "fast", "no_auth", "no_multi",
	"allow_busy", "skip_slowlog", "no_async_loading",
}

// Flags that occur together.
const (
	reads      = flagReadOnly
	readsFast  = flagReadOnly | flagFast
	writes     = flagWrite
	writesFast = flagWrite | flagFast
	stores     = flagWrite | flagDenyOOM
	storesFast = stores | flagFast
	anytime    = flagLoading | flagStale
	talks      = flagNoScript | anytime
	governs    = flagAdmin | talks
)

// keySpec is the position of the keys among the arguments: every step-th from first to last. A
// negative last counts from the end. The zero value means no keys.
type keySpec struct{ first, last, step int }

var (
	oneKey   = keySpec{1, 1, 1}
	twoKeys  = keySpec{1, 2, 1}
	allKeys  = keySpec{1, -1, 1}
	evenKeys = keySpec{1, -1, 2}
	subKey   = keySpec{2, 2, 1}
)

// of returns the keys of a request.
func (k keySpec) of(r request) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		last := k.last
		if last < 0 {
			last += r.len()
		}
		for i := k.first; i > 0 && i <= last && i < r.len() && yield(r.arg(i)); i += k.step {
		}
	}
}

// Groups of commands, as Redis documents them.
const (
	groupString       = "string"
	groupHash         = "hash"
	groupGeneric      = "generic"
	groupTransactions = "transactions"
	groupConnection   = "connection"
	groupServer       = "server"
)

// table holds all commands. byName has those that are not subcommands, by name in lower case.
// top has the same in the order in which they are listed, and all has subcommands too.
type table struct {
	byName   map[string]*command
	top, all []*command
}

// commandTable returns the table, which servers share and nobody changes.
var commandTable = sync.OnceValue(func() *table {
	t := &table{byName: make(map[string]*command)}
	for _, list := range [][]command{stringCommands(), keyCommands(), hashCommands(), transactionCommands(), connectionCommands(), serverCommands()} {
		for i := range list {
			t.add(&list[i])
		}
	}
	for _, cmd := range t.all {
		cmd.plain, cmd.perKey, cmd.category = cmd.plainly(), cmd.uses(), cmd.categories()
	}
	return t
})

// add adds a command. A subcommand must follow its command.
func (t *table) add(cmd *command) {
	cmd.n = len(t.all)
	t.all = append(t.all, cmd)
	container, sub, ok := strings.Cut(cmd.name, "|")
	if !ok {
		t.byName[cmd.name], t.top = cmd, append(t.top, cmd)
		return
	}
	of := t.byName[container]
	if of.subs == nil {
		of.subs = make(map[string]*command)
		help := &command{
			name: container + "|help", arity: 2, run: helpFor(of), flags: anytime, group: of.group,
			since: "5.0.0", about: "List the subcommands",
		}
		if container == "object" {
			help.also = CategoryKeyspace
		}
		of.subs["help"] = help
		of.ordered = append(of.ordered, help)
		help.n = len(t.all)
		t.all = append(t.all, help)
	}
	cmd.group = of.group
	of.subs[sub] = cmd
	of.ordered = append(of.ordered, cmd)
}

// find returns the command or subcommand that a request names. If the request is not valid,
// refusal is the error to reply.
func (t *table) find(r request) (cmd *command, refusal string) {
	var buf [maxName]byte
	cmd = t.byName[string(lower(&buf, r.arg(0)))]
	if cmd == nil {
		return nil, unknownCommand(r)
	}
	if cmd.subs != nil && r.len() > 1 {
		sub := cmd.subs[string(lower(&buf, r.arg(1)))]
		if sub == nil {
			return nil, unknownSubcommand(r)
		}
		cmd = sub
	}
	if cmd.arity > 0 && r.len() != cmd.arity || r.len() < -cmd.arity {
		return cmd, wrongArity(cmd.name)
	}
	return cmd, ""
}

// lower writes name in lower case into buf. It returns nil if name is too long.
func lower(buf *[maxName]byte, name []byte) []byte {
	if len(name) > len(buf) {
		return nil
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		buf[i] = c
	}
	return buf[:len(name)]
}

// is reports whether arg is the word, ignoring case. word is in lower case.
func is(arg []byte, word string) bool {
	var buf [maxName]byte
	return len(arg) == len(word) && string(lower(&buf, arg)) == word
}

// keyUse describes what a command does with a key.
type keyUse struct {
	// words are Redis's flags: RO, RW, OW (overwrite) or RM (remove), then access, insert,
	// update or delete if the command reads or changes the value. Commands that only return
	// whether a key exists, or its size, have none of the latter.
	words []string
	// access is what access control must allow. 0: any permission suffices.
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

// Uses of several commands, or of some forms of a command.
var (
	useRead  = newKeyUse("RO access")
	useWrite = newKeyUse("RW access update")
	useSet   = newKeyUse("OW update") // of SET without GET
)

// keyUses are the uses of commands whose flags do not imply them, by name as in HasCommand:
// one for each key, or one for all keys.
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

// uses returns what a command does with its keys: one use for each, or one for all.
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

// use returns what a request does with its i-th key.
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

// append appends the use in the form of COMMAND's replies.
func (u keyUse) append(out []byte, resp3 bool) []byte {
	out = appendSet(out, resp3, len(u.words))
	for _, word := range u.words {
		out = appendSimple(out, word)
	}
	return out
}
