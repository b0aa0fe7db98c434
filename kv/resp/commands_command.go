package resp

import (
	"slices"
	"strings"

	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// COMMAND and its subcommands.

// commandInfo implements COMMAND, and COMMAND INFO with names.
func commandInfo(c *client, r request) {
	out := c.reply()
	if r.len() <= 2 {
		out = appendArray(out, len(c.server.table.top))
		for _, cmd := range c.server.table.top {
			out = cmd.appendInfo(out, c.resp3)
		}
		c.out = out
		return
	}
	out = appendArray(out, r.len()-2)
	for i := 2; i < r.len(); i++ {
		if cmd := c.server.table.named(strings.ToLower(text(r.arg(i), shown))); cmd != nil {
			out = cmd.appendInfo(out, c.resp3)
		} else {
			out = appendNull(out, c.resp3)
		}
	}
	c.out = out
}

// named returns the command of that name in lower case, or nil. A subcommand is named as in
// "config|set".
func (t *table) named(name string) *command {
	container, sub, isSub := strings.Cut(name, "|")
	cmd := t.byName[container]
	if cmd == nil || !isSub {
		return cmd
	}
	return cmd.subs[sub]
}

// appendInfo appends the command's entry of COMMAND INFO: name, arity, flags, positions of the
// keys, categories, no tips, key specifications, and subcommands.
func (cmd *command) appendInfo(out []byte, resp3 bool) []byte {
	out = appendArray(out, 10)
	out = appendInt(appendBulk(out, cmd.name), int64(cmd.arity))
	var flags []string
	for i, name := range flagNames {
		if cmd.flags&(1<<i) != 0 {
			flags = append(flags, name)
		}
	}
	out = appendSet(out, resp3, len(flags))
	for _, name := range flags {
		out = appendSimple(out, name)
	}
	keys := cmd.shownKeys()
	for _, n := range []int{keys.first, keys.last, keys.step} {
		out = appendInt(out, int64(n))
	}
	categories := cmd.category.Names()
	out = appendSet(out, resp3, len(categories))
	for _, name := range categories {
		out = appendSimple(out, "@"+name)
	}
	out = appendSet(out, resp3, 0)
	out = cmd.appendKeySpecs(out, resp3)
	out = appendArray(out, len(cmd.subs))
	for _, sub := range cmd.ordered {
		out = sub.appendInfo(out, resp3)
	}
	return out
}

// shownKeys returns the arguments that clients see as keys.
func (cmd *command) shownKeys() keySpec {
	if cmd.slots.first > 0 {
		return cmd.slots
	}
	return cmd.keys
}

// appendKeySpecs appends one specification if all keys are used alike, or else one for each
// key. Keys that the request counts have one of their own.
func (cmd *command) appendKeySpecs(out []byte, resp3 bool) []byte {
	keys := cmd.shownKeys()
	if keys.none() {
		return appendSet(out, resp3, 0)
	}
	out = appendSet(out, resp3, len(cmd.perKey))
	for i, use := range cmd.perKey {
		out = appendMap(out, resp3, 3)
		out = use.append(appendBulk(out, "flags"), resp3)
		switch last := i > 0 && i == len(cmd.perKey)-1; {
		case keys.patterns && i > 0:
			out = appendUnknownSpec(out, resp3)
		case keys.count > 0 && (keys.first == 0 || last):
			out = appendSearch(out, resp3, keys.count, "keynum", []specField{{"keynumidx", 0}, {"firstkey", 1}, {"keystep", 1}})
		default:
			end := keys.last
			if end > 0 {
				end -= keys.first + i // relative to the first one
			}
			if i < len(cmd.perKey)-1 {
				end = 0
			}
			out = appendSearch(out, resp3, keys.first+i, "range", []specField{{"lastkey", end}, {"keystep", keys.step}, {"limit", 0}})
		}
	}
	return out
}

// specField is a field of a key specification.
type specField struct {
	name string
	n    int
}

// appendSearch appends how the keys are found from an argument on.
func appendSearch(out []byte, resp3 bool, index int, how string, fields []specField) []byte {
	out = appendMap(appendBulk(out, "begin_search"), resp3, 2)
	out = appendBulk(appendBulk(out, "type"), "index")
	out = appendMap(appendBulk(out, "spec"), resp3, 1)
	out = appendInt(appendBulk(out, "index"), int64(index))
	out = appendMap(appendBulk(out, "find_keys"), resp3, 2)
	out = appendBulk(appendBulk(out, "type"), how)
	out = appendMap(appendBulk(out, "spec"), resp3, len(fields))
	for _, f := range fields {
		out = appendInt(appendBulk(out, f.name), int64(f.n))
	}
	return out
}

// appendUnknownSpec appends that only COMMAND GETKEYS finds a key.
func appendUnknownSpec(out []byte, resp3 bool) []byte {
	for _, part := range []string{"begin_search", "find_keys"} {
		out = appendMap(appendBulk(out, part), resp3, 2)
		out = appendBulk(appendBulk(out, "type"), "unknown")
		out = appendMap(appendBulk(out, "spec"), resp3, 0)
	}
	return out
}

func commandCount(c *client, _ request) {
	c.out = appendInt(c.reply(), int64(len(c.server.table.byName)))
}

func commandList(c *client, r request) {
	takes, ok := commandFilter(r)
	if !ok {
		c.fail(errSyntax)
		return
	}
	var names []string
	for _, cmd := range c.server.table.all {
		if takes(cmd) {
			names = append(names, cmd.name)
		}
	}
	c.out = appendStrings(c.reply(), names)
}

// commandFilter parses the filter of COMMAND LIST.
func commandFilter(r request) (takes func(*command) bool, ok bool) {
	switch {
	case r.len() == 2:
		return func(*command) bool { return true }, true
	case r.len() != 5 || !is(r.arg(2), "filterby"):
		return nil, false
	}
	value := []byte(strings.ToLower(string(r.arg(4))))
	switch {
	case is(r.arg(3), "module"): // the server has no modules
		return func(*command) bool { return false }, true
	case is(r.arg(3), "aclcat"):
		of, err := ParseCategory(string(value))
		return func(cmd *command) bool { return err == nil && cmd.in(of) }, true
	case is(r.arg(3), "pattern"):
		return func(cmd *command) bool { return glob.Match(value, []byte(cmd.name)) }, true
	}
	return nil, false
}

func commandDocs(c *client, r request) {
	var asked []*command
	for i := 2; i < r.len(); i++ {
		if cmd := c.server.table.named(strings.ToLower(text(r.arg(i), shown))); cmd != nil {
			asked = append(asked, cmd)
		}
	}
	if r.len() == 2 {
		asked = c.server.table.top
	}
	out := appendMap(c.reply(), c.resp3, len(asked))
	for _, cmd := range asked {
		out = cmd.appendDocs(appendBulk(out, cmd.name), c.resp3)
	}
	c.out = out
}

func (cmd *command) appendDocs(out []byte, resp3 bool) []byte {
	facts := 3
	if len(cmd.ordered) > 0 {
		facts++
	}
	out = appendMap(out, resp3, facts)
	out = appendBulk(appendBulk(out, "summary"), cmd.about)
	out = appendBulk(appendBulk(out, "since"), cmd.since)
	out = appendBulk(appendBulk(out, "group"), cmd.group)
	if len(cmd.ordered) > 0 {
		out = appendMap(appendBulk(out, "subcommands"), resp3, len(cmd.ordered))
		for _, sub := range cmd.ordered {
			out = sub.appendDocs(appendBulk(out, sub.name), resp3)
		}
	}
	return out
}

// commandGetKeys implements COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS.
func commandGetKeys(c *client, r request) {
	of := request{r.data, r.args[2:]}
	cmd, refusal := c.server.table.find(of)
	switch {
	case cmd == nil:
		c.fail("ERR Invalid command specified")
		return
	case cmd.keys.none():
		c.fail("ERR The command has no key arguments")
		return
	case refusal != "":
		c.fail("ERR Invalid number of arguments specified for command")
		return
	}
	keys := slices.Collect(cmd.keys.of(of))
	if len(keys) == 0 {
		c.fail("ERR Invalid arguments specified for command")
		return
	}
	withUses := is(r.arg(1), "getkeysandflags")
	out := appendArray(c.reply(), len(keys))
	for i, key := range keys {
		if withUses {
			out = appendArray(out, 2)
		}
		out = appendBulk(out, key)
		if withUses {
			out = cmd.use(i, of).append(out, c.resp3)
		}
	}
	c.out = out
}
