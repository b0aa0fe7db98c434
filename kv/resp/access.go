package resp

import (
	"errors"
	"math/bits"
	"strings"
)

// Users authenticates the clients of a server. Its methods are called by the goroutines of
// all connections.
type Users interface {
	// Anonymous is the user of a connection that has not authenticated; nil if it must.
	Anonymous() User
	// Authenticate returns the user with this name and password. The name is DefaultUser if
	// the client gave none. It returns nil if there is no such user, if it is disabled, or if
	// the password is wrong. It must not keep the arguments.
	Authenticate(name, password []byte) User
	// Has says whether there is a user with this name. It must not keep the name.
	Has(name []byte) bool
}

// User is a user of a server. Its methods are called for each command, by the goroutines of
// the user's connections.
type User interface {
	// Name is the user's name.
	Name() string
	// Unrestricted says whether the user may do everything at present.
	Unrestricted() bool
	// A command is allowed if Permissions, or one of the Selectors, allow it with all of its
	// keys.
	Permissions
	Selectors() []Permissions
}

// Permissions say which commands may be run on which keys.
type Permissions interface {
	// MayRun says whether a command may be run. A subcommand is named as in "config|set". If it
	// returns false for a command without subcommands, it is called again with the first
	// argument, in lower case, as in "select|0".
	MayRun(command string, is Category) bool
	// MayUse says whether a command may access a key. With no access, it says whether the
	// command may do anything with the key, such as to see that it exists. It must not keep
	// the key.
	MayUse(key []byte, a Access) bool
}

// DefaultUser is the name of the user of clients that give a password only.
const DefaultUser = "default"

// Access is what a command does with its keys.
type Access uint8

// A command may do both.
const (
	AccessRead Access = 1 << iota
	AccessWrite
)

// Category is a set of the categories of commands in Redis's access control.
type Category uint32

// The categories that commands of this server are in.
const (
	CategoryKeyspace Category = 1 << iota
	CategoryRead
	CategoryWrite
	CategoryString
	CategoryHash
	CategoryAdmin
	CategoryFast
	CategorySlow
	CategoryDangerous
	CategoryConnection
	CategoryTransaction
	categoryEnd
)

var categoryNames = []string{
	"keyspace", "read", "write", "string", "hash", "admin", "fast", "slow", "dangerous", "connection", "transaction",
}

// Names are the names of the categories in the set.
func (c Category) Names() (names []string) {
	for ; c != 0; c &= c - 1 {
		names = append(names, categoryNames[bits.TrailingZeros32(uint32(c))])
	}
	return names
}

// ErrUnknownCategory says that there is no category of that name.
var ErrUnknownCategory = errors.New("resp: unknown category of commands")

// ParseCategory is the category of that name, in lower case; "all" is all of them.
func ParseCategory(name string) (Category, error) {
	if name == "all" {
		return categoryEnd - 1, nil
	}
	for i, n := range categoryNames {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, ErrUnknownCategory
}

// parseOneCategory is ParseCategory without "all".
func parseOneCategory(name string) (Category, error) {
	if name == "all" {
		return 0, ErrUnknownCategory
	}
	return ParseCategory(name)
}

// HasCommand says whether servers know a command of that name, in lower case; a
// subcommand is named as in "config|set".
func HasCommand(name string) bool {
	for _, cmd := range newTable().all {
		if cmd.name == name {
			return true
		}
	}
	return false
}

// HasSubcommands says whether servers know a command of that name, in lower case, that has
// subcommands.
func HasSubcommands(name string) bool {
	cmd := newTable().byName[name]
	return cmd != nil && len(cmd.subs) > 0
}

// categories are those of a command.
func (cmd *command) categories() Category {
	c := cmd.also | CategorySlow
	if cmd.flags&flagFast != 0 {
		c ^= CategorySlow | CategoryFast
	}
	if cmd.run == nil { // only has subcommands
		return c
	}
	if cmd.flags&flagWrite != 0 {
		c |= CategoryWrite
	}
	if cmd.flags&flagReadOnly != 0 {
		c |= CategoryRead
	}
	if cmd.flags&flagAdmin != 0 {
		c |= CategoryAdmin | CategoryDangerous
	}
	switch cmd.group {
	case groupString:
		c |= CategoryString
	case groupHash:
		c |= CategoryHash
	case groupGeneric:
		c |= CategoryKeyspace
	case groupTransactions:
		c |= CategoryTransaction
	case groupConnection:
		c |= CategoryConnection
	}
	return c
}

// in says whether a command that can be run is in one of the categories.
func (cmd *command) in(of Category) bool { return cmd.run != nil && cmd.categories()&of != 0 }

// become makes the client act as a user; nil: as nobody yet.
func (c *client) become(u User) {
	c.user, c.free = u, u == everybody{}
	c.in.parser.stranger = u == nil
	name := DefaultUser
	if u != nil {
		name = u.Name()
	}
	c.describe(func(i *clientInfo) { i.user = name })
}

// permitted says whether the client may run a command, or answers why not.
func (c *client) permitted(cmd *command, r request) (refusal string) {
	switch {
	case c.user == nil && cmd.flags&flagNoAuth != 0:
		return ""
	case c.user == nil:
		return errNoAuth
	case c.user.Unrestricted() || cmd.flags&flagNoAuth != 0:
		return ""
	}
	refusal = cmd.permitted(c.user, r)
	for _, s := range c.user.Selectors() {
		if refusal == "" {
			break
		}
		if other := cmd.permitted(s, r); other == "" || other == errNoKeyPermission {
			refusal = other // that of keys is told of rather than that of commands
		}
	}
	return refusal
}

// permitted says whether some permissions have the command, or why not.
func (cmd *command) permitted(p Permissions, r request) (refusal string) {
	if is := cmd.categories(); !p.MayRun(cmd.name, is) && !cmd.permittedWithArgument(p, r, is) {
		return noPermission(cmd.name)
	}
	n := 0
	cmd.keys.keysOf(r, func(key []byte) bool {
		if !p.MayUse(key, cmd.use(n, r).access) {
			refusal = errNoKeyPermission
		}
		n++
		return refusal == ""
	})
	return refusal
}

func (cmd *command) permittedWithArgument(p Permissions, r request, is Category) bool {
	if r.len() < 2 || len(r.arg(1)) > maxFirstArgument || strings.Contains(cmd.name, "|") {
		return false
	}
	return p.MayRun(cmd.name+"|"+strings.ToLower(string(r.arg(1))), is)
}

// maxFirstArgument is the length in bytes of the longest first argument that can be
// permitted by itself.
const maxFirstArgument = 1 << 10

// auth is AUTH with a password, or with a name and a password.
func auth(c *client, r request) {
	if r.len() > 3 {
		c.fail(errSyntax)
		return
	}
	name, password := []byte(DefaultUser), r.arg(r.len()-1)
	if r.len() == 3 {
		name = r.arg(1)
	} else if u := c.server.opts.Users; u == nil || u.Anonymous() != nil {
		c.fail(errNoPassword)
		return
	}
	if c.authenticate(name, password) {
		c.out = appendSimple(c.reply(), "OK")
	} else {
		c.fail(errWrongPassword)
	}
}

// authenticate makes the client act as that user, if the password is right.
func (c *client) authenticate(name, password []byte) bool {
	users := c.server.opts.Users
	if users == nil {
		return string(name) == DefaultUser // of whom nothing is asked
	}
	c.flush() // in the name of who it was
	u := users.Authenticate(name, password)
	if u == nil {
		c.server.stats.deniedLogins.Add(1)
		return false
	}
	c.become(u)
	return true
}

func aclWhoami(c *client, _ request) { c.out = appendBulk(c.reply(), c.info.Load().user) }

func aclCat(c *client, r request) {
	var names []string
	switch r.len() {
	case 2:
		names = categoryNames
	case 3:
		of, err := parseOneCategory(strings.ToLower(string(r.arg(2))))
		if err != nil {
			c.fail("ERR Unknown category '" + text(r.arg(2), shown) + "'")
			return
		}
		for _, cmd := range c.server.table.all {
			if cmd.in(of) {
				names = append(names, cmd.name)
			}
		}
	default:
		c.fail(subcommandSyntax(r))
		return
	}
	c.out = appendStrings(c.reply(), names)
}

// everybody is the user of a server without users.
type everybody struct{}

func (everybody) Name() string                 { return DefaultUser }
func (everybody) Unrestricted() bool           { return true }
func (everybody) MayRun(string, Category) bool { return true }
func (everybody) MayUse([]byte, Access) bool   { return true }
func (everybody) Selectors() []Permissions     { return nil }
