package resp

import (
	"errors"
	"math/bits"
	"slices"
	"strings"
)

// Users authenticates the clients of a server. Its methods are called concurrently, by the
// goroutines of all connections.
type Users interface {
	// Anonymous returns the user of connections that have not authenticated, or nil if they
	// must authenticate.
	Anonymous() User
	// Authenticate returns the user with this name and password, or nil if there is no such
	// user, it is disabled, or the password is wrong. The name is DefaultUser if the client
	// sent none. Authenticate must not keep the arguments.
	Authenticate(name, password []byte) User
	// Has reports whether there is a user with this name. It must not keep the name.
	Has(name []byte) bool
}

// User is a user of a server. Its methods are called for every command, concurrently by the
// goroutines of the user's connections.
type User interface {
	// Name returns the user's name.
	Name() string
	// Unrestricted reports whether the user may do everything at present.
	Unrestricted() bool
	// A command is allowed if Permissions or one of Selectors allows it with all its keys.
	Permissions
	Selectors() []Permissions
}

// Permissions decides which commands may run on which keys.
type Permissions interface {
	// MayRun reports whether a command may run. A subcommand is named as in "config|set". If
	// it returns false for a command without subcommands, it is called again with the first
	// argument appended in lower case, as in "select|0".
	MayRun(command string, is Category) bool
	// MayUse reports whether a command may access a key. If a is 0, it reports whether any
	// access to the key is allowed. It must not keep the key.
	MayUse(key []byte, a Access) bool
}

// DefaultUser is the name of the user of clients that send a password only.
const DefaultUser = "default"

// Access is what a command does with its keys.
type Access uint8

// A command may have both.
const (
	AccessRead Access = 1 << iota
	AccessWrite
)

// Category is a set of categories of Redis's access control.
type Category uint32

// The categories of this server's commands.
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
)

var categoryNames = []string{
	"keyspace", "read", "write", "string", "hash", "admin", "fast", "slow", "dangerous", "connection", "transaction",
}

// Names returns the names of the categories in the set.
func (c Category) Names() (names []string) {
	for ; c != 0; c &= c - 1 {
		names = append(names, categoryNames[bits.TrailingZeros32(uint32(c))])
	}
	return names
}

// ErrUnknownCategory is returned for a name that is not a category's.
var ErrUnknownCategory = errors.New("resp: unknown category of commands")

// ParseCategory returns the category of a name in lower case.
func ParseCategory(name string) (Category, error) {
	if i := slices.Index(categoryNames, name); i >= 0 {
		return 1 << i, nil
	}
	return 0, ErrUnknownCategory
}

// HasCommand reports whether servers have a command of that name in lower case. A subcommand
// is named as in "config|set".
func HasCommand(name string) bool { return commandTable().named(name) != nil }

// HasSubcommands reports whether servers have a command of that name in lower case, with
// subcommands.
func HasSubcommands(name string) bool {
	cmd := commandTable().byName[name]
	return cmd != nil && len(cmd.subs) > 0
}

// categories returns the command's categories.
func (cmd *command) categories() Category {
	c := cmd.also | CategorySlow
	if cmd.flags&flagFast != 0 {
		c ^= CategorySlow | CategoryFast
	}
	if cmd.run == nil { // it has subcommands only
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
	return c | groupCategories[cmd.group]
}

// groupCategories are the categories that groups of commands imply.
var groupCategories = map[string]Category{
	groupString: CategoryString, groupHash: CategoryHash, groupGeneric: CategoryKeyspace,
	groupTransactions: CategoryTransaction, groupConnection: CategoryConnection,
}

// in reports whether the command can be run and is in one of the categories.
func (cmd *command) in(of Category) bool { return cmd.run != nil && cmd.category&of != 0 }

// become sets the client's user. If u is nil, the client has to authenticate.
func (c *client) become(u User) {
	c.user, c.free = u, u == everybody{}
	c.in.parser.unauthenticated = u == nil
	name := DefaultUser
	if u != nil {
		name = u.Name()
	}
	c.describe(func(i *clientInfo) { i.user = name })
}

// permitted returns the error reply if the client may not run a command, or else "".
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
			refusal = other // an error about keys takes precedence over one about commands
		}
	}
	return refusal
}

// permitted returns the error reply if p does not allow the command, or else "".
func (cmd *command) permitted(p Permissions, r request) (refusal string) {
	if !p.MayRun(cmd.name, cmd.category) && !cmd.permittedWithArgument(p, r) {
		return noPermission(cmd.name)
	}
	n := 0
	for key := range cmd.keys.of(r) {
		if !p.MayUse(key, cmd.use(n, r).access) {
			return errNoKeyPermission
		}
		n++
	}
	return ""
}

func (cmd *command) permittedWithArgument(p Permissions, r request) bool {
	if r.len() < 2 || len(r.arg(1)) > maxFirstArgument || strings.Contains(cmd.name, "|") {
		return false
	}
	return p.MayRun(cmd.name+"|"+strings.ToLower(string(r.arg(1))), cmd.category)
}

// maxFirstArgument is the length in bytes of the longest first argument that permissions can
// name.
const maxFirstArgument = 1 << 10

// auth implements AUTH, with a password or with a name and a password.
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

// authenticate sets the client's user if the password is right.
func (c *client) authenticate(name, password []byte) bool {
	users := c.server.opts.Users
	if users == nil {
		return string(name) == DefaultUser // no password is needed
	}
	c.flush() // earlier commands run as the previous user
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
		of, err := ParseCategory(strings.ToLower(string(r.arg(2))))
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

// everybody is the user of all clients if the server has no Users.
type everybody struct{}

func (everybody) Name() string                 { return DefaultUser }
func (everybody) Unrestricted() bool           { return true }
func (everybody) MayRun(string, Category) bool { return true }
func (everybody) MayUse([]byte, Access) bool   { return true }
func (everybody) Selectors() []Permissions     { return nil }
