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
	// channels are the channels or patterns that access control must allow, and slots the
	// arguments that choose a slot of a cluster, which clients see like keys.
	channels, slots keySpec

	also  Category // categories besides those that flags and group imply
	but   Category // those that they imply and the command does not have
	group string
	since string // first version of Redis that has the command
	about string

	subs    map[string]*command // subcommands by name in lower case…
	ordered []*command          // …and in the order of the table
	n       int                 // index in table.all, and in statistics
	perKey  []keyUse            // use of each key, or one for all keys
	plain   bool                // a loop may run it
	tells   keyEvents           // what keyspace notifications say

	category Category // the result of categories
}

// commandFlags are a command's flags. Clients see those that Redis has too.
type commandFlags uint32

const (
	flagWrite commandFlags = 1 << iota
	flagReadOnly
	flagDenyOOM
	flagAdmin
	flagPubSub
	flagNoScript
	flagLoading
	flagStale
	flagFast
	flagNoAuth  // allowed before authentication
	flagNoMulti // not in a transaction
	flagAllowBusy
	flagSkipSlowlog
	flagNoAsyncLoading
	flagBlocking
	flagMovableKeys // the arguments before the keys say where the keys are
	flagSkipMonitor
	flagNoMandatoryKeys
	// Flags that Redis does not have.
	flagAtOnce  // not queued by MULTI
	flagSolo    // timed by itself, not as part of a batch
	flagWhole   // reads or changes more than the keys that it names
	flagListens // allowed in RESP2 for clients with subscriptions
	flagScript  // runs a script
	flagIdles   // only waits, and is not slow
	flagChooses // its second argument may be a number of random elements
)

var flagNames = []string{
	"write", "readonly", "denyoom", "admin", "pubsub", "noscript", "loading", "stale", "fast", "no_auth", "no_multi",
	"allow_busy", "skip_slowlog", "no_async_loading",
	"blocking", "movablekeys", "skip_monitor", "no_mandatory_keys",
}

// Flags that occur together.
const (
	reads      = flagReadOnly
	readsFast  = flagReadOnly | flagFast
	writes     = flagWrite
	writesFast = flagWrite | flagFast
	stores     = flagWrite | flagDenyOOM
	storesFast = stores | flagFast
	waits      = flagWrite | flagNoScript | flagBlocking | flagSolo
	anytime    = flagLoading | flagStale
	talks      = flagNoScript | anytime
	governs    = flagAdmin | talks
)

// keySpec is the position of the keys among the arguments: every step-th from first to last. A
// negative last counts from the end. The zero value means no keys.
type keySpec struct {
	first, last, step int
	count             int    // the argument that is the number of keys after it, which follow the others; 0: none
	word              string // a key follows the last argument that is this word in lower case; "": none
	patterns          bool   // other keys are named by patterns, which of does not return
}

var (
	oneKey     = keySpec{first: 1, last: 1, step: 1}
	twoKeys    = keySpec{first: 1, last: 2, step: 1}
	allKeys    = keySpec{first: 1, last: -1, step: 1}
	evenKeys   = keySpec{first: 1, last: -1, step: 2}
	restKeys   = keySpec{first: 2, last: -1, step: 1}
	subKey     = keySpec{first: 2, last: 2, step: 1}
	manyKeys   = keySpec{count: 1}                             // NUMKEYS KEY…
	lateKeys   = keySpec{count: 2}                             // ARGUMENT NUMKEYS KEY…
	toManyKeys = keySpec{first: 1, last: 1, step: 1, count: 2} // DESTINATION NUMKEYS KEY…
	firstKeys  = keySpec{first: 1, last: -2, step: 1}          // KEY… ARGUMENT
	sortKeys   = keySpec{first: 1, last: 1, step: 1, word: "store", patterns: true}
	sortROKeys = keySpec{first: 1, last: 1, step: 1, patterns: true}
)

// none reports whether no argument is a key.
func (k keySpec) none() bool { return k.first == 0 && k.count == 0 }

// of returns the keys of a request.
func (k keySpec) of(r request) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		last := k.last
		if last < 0 {
			last += r.len()
		}
		for i := k.first; i > 0 && i <= last && i < r.len(); i += k.step {
			if !yield(r.arg(i)) {
				return
			}
		}
		first, end := k.counted(r)
		for i := first; i < end; i++ {
			if !yield(r.arg(i)) {
				return
			}
		}
		if i := k.named(r); i > 0 {
			yield(r.arg(i))
		}
	}
}

// counted returns the range of the keys that the request counts.
func (k keySpec) counted(r request) (first, end int) {
	if k.count == 0 || k.count >= r.len() {
		return 0, 0
	}
	n, ok := parseInt(r.arg(k.count))
	if first = k.count + 1; !ok || n < 1 || n > int64(r.len()-first) {
		return 0, 0
	}
	return first, first + int(n)
}

// named returns the position of the key after the word, or 0. It passes the arguments of SORT's other options.
func (k keySpec) named(r request) (at int) {
	for i := k.last + 1; k.word != "" && i+1 < r.len(); i++ {
		switch arg := r.arg(i); {
		case is(arg, k.word):
			i++
			at = i
		case is(arg, "by"), is(arg, "get"):
			i++
		case is(arg, "limit"):
			i += 2
		}
	}
	return at
}

// Groups of commands, as Redis documents them.
const (
	groupString       = "string"
	groupHash         = "hash"
	groupBitmap       = "bitmap"
	groupList         = "list"
	groupSorted       = "sorted-set"
	groupSet          = "set"
	groupGeneric      = "generic"
	groupTransactions = "transactions"
	groupPubSub       = "pubsub"
	groupConnection   = "connection"
	groupServer       = "server"
	groupCluster      = "cluster"
	groupScripting    = "scripting"
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
	for _, list := range [][]command{
		stringCommands(), bitCommands(), keyCommands(), hashCommands(), setCommands(), listCommands(), sortedCommands(), pubsubCommands(),
		transactionCommands(), scriptCommands(), connectionCommands(), serverCommands(), clusterCommands(),
	} {
		for i := range list {
			t.add(&list[i])
		}
	}
	for _, cmd := range t.all {
		cmd.plain, cmd.perKey, cmd.category, cmd.tells = cmd.plainly(), cmd.uses(), cmd.categories(), cmd.events()
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
	"lpush": {"RW insert"}, "rpush": {"RW insert"}, "lpushx": {"RW insert"}, "rpushx": {"RW insert"}, "linsert": {"RW insert"},
	"lset": {"RW update"}, "lrem": {"RW delete"}, "ltrim": {"RW delete"}, "llen": {"RO"},
	"lpop": {"RW access delete"}, "rpop": {"RW access delete"}, "lmpop": {"RW access delete"},
	"blpop": {"RW access delete"}, "brpop": {"RW access delete"}, "blmpop": {"RW access delete"},
	"lmove": {"RW access delete", "RW insert"}, "rpoplpush": {"RW access delete", "RW insert"},
	"blmove": {"RW access delete", "RW insert"}, "brpoplpush": {"RW access delete", "RW insert"},
	"zadd": {"RW update"}, "zrem": {"RW delete"}, "zcard": {"RO"},
	"zremrangebyrank": {"RW delete"}, "zremrangebyscore": {"RW delete"}, "zremrangebylex": {"RW delete"},
	"zpopmin": {"RW access delete"}, "zpopmax": {"RW access delete"}, "zmpop": {"RW access delete"},
	"bzpopmin": {"RW access delete"}, "bzpopmax": {"RW access delete"}, "bzmpop": {"RW access delete"},
	"zrangestore": {"OW update", "RO access"},
	"sort":        {"RO access", "RO access", "OW update"}, "sort_ro": {"RO access", "RO access"},
	"zunionstore": {"OW update", "RO access"}, "zinterstore": {"OW update", "RO access"}, "zdiffstore": {"OW update", "RO access"},
	"sadd": {"RW insert"}, "srem": {"RW delete"}, "spop": {"RW access delete"}, "smove": {"RW access delete", "RW insert"},
	"scard": {"RO"}, "sismember": {"RO"},
	"sinterstore": {"RW update", "RO access"}, "sunionstore": {"OW update", "RO access"}, "sdiffstore": {"OW update", "RO access"},
	"strlen": {"RO"}, "exists": {"RO"}, "touch": {"RO"}, "type": {"RO"}, "watch": {"RO"},
	"hexists": {"RO"}, "hlen": {"RO"}, "hstrlen": {"RO"},
	"ssubscribe": {"not_key"}, "sunsubscribe": {"not_key"}, "spublish": {"not_key"},
	"object|encoding": {"RO"}, "object|refcount": {"RO"}, "memory|usage": {"RO"}, "object|idletime": {"RO"}, "object|freq": {"RO"},
	"eval": {"RW access update"}, "evalsha": {"RW access update"}, "eval_ro": {"RO access"}, "evalsha_ro": {"RO access"},
	"getbit": {"RO access"}, "setbit": {"RW access update"}, "bitop": {"OW update", "RO access"}, "bitfield": {"RW access update variable_flags"},
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
	if cmd.name == "bitfield" {
		if onlyGets(r) {
			return useRead
		}
		return useWrite
	}
	if cmd.keys.word != "" && i > 0 { // the key after the word
		i = len(cmd.perKey)
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
