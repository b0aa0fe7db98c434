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
	// Unrestricted reports whether the user may run all commands on all keys at present.
	Unrestricted() bool
	// A command is allowed if Permissions or one of Selectors allows it with all its keys and
	// channels.
	Permissions
	Selectors() []Permissions
}

// ChangingUser is a User whose permissions may change while clients use them.
type ChangingUser interface {
	User
	// Current returns the user as it is now, or nil if it was deleted.
	Current() User
}

// UserList is implemented by Users that clients can list and change, with ACL. Its users are
// ChangingUsers, or never change.
type UserList interface {
	Users
	// Names returns the users' names, in order.
	Names() []string
	// Find returns a user, or nil if there is none of that name.
	Find(name string) User
	// Describe describes a user. It returns nil if there is none of that name.
	Describe(name string) *UserDescription
	// Lines returns for each user the line of a file of users.
	Lines() []string
	// Set applies rules to a user, which it makes if there is none of that name. If one of the
	// rules is not valid, it applies none. The error is shown to the client.
	Set(name string, rules []string) error
	// Delete deletes a user and reports whether there was one. It does not delete the default
	// user.
	Delete(name string) bool
	// Load replaces the users by those of the file of users, and Save writes them to it. If
	// there is no such file, they return ErrNoUsersFile.
	Load() error
	Save() error
}

// ErrNoUsersFile is returned by a UserList without a file of users.
var ErrNoUsersFile = errors.New("This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.") //nolint:staticcheck // Redis's words

// UserDescription describes a user as ACL GETUSER does.
type UserDescription struct {
	Flags     []string
	Passwords []string // SHA-256 in hexadecimal digits
	PermissionsDescription
	Selectors []PermissionsDescription
}

// PermissionsDescription has the rules of a user or a selector.
type PermissionsDescription struct{ Commands, Keys, Channels string }

// Permissions decides which commands may run on which keys and channels.
type Permissions interface {
	// MayRun reports whether a command may run. A subcommand is named as in "config|set". If
	// it returns false for a command without subcommands, it is called again with the first
	// argument appended in lower case, as in "select|0".
	MayRun(command string, is Category) bool
	// MayUse reports whether a command may access a key. If a is 0, it reports whether any
	// access to the key is allowed. It must not keep the key.
	MayUse(key []byte, a Access) bool
	// MayUseAll reports whether a command may access all keys. BY and GET of SORT need it, as they do
	// not name the keys that they read.
	MayUseAll(a Access) bool
	// MayJoin reports whether a command may publish to a channel or subscribe to it. If pattern
	// is true, the channel is a pattern of PSUBSCRIBE. MayJoin must not keep the channel.
	MayJoin(channel []byte, pattern bool) bool
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
	CategorySet
	CategoryPubSub
	CategoryAdmin
	CategoryFast
	CategorySlow
	CategoryDangerous
	CategoryConnection
	CategoryTransaction
	CategoryScripting
	CategoryList
	CategorySortedSet
	CategoryBlocking
	CategoryBitmap
)

var categoryNames = []string{
	"keyspace", "read", "write", "string", "hash", "set", "pubsub", "admin", "fast", "slow", "dangerous", "connection", "transaction",
	"scripting", "list", "sortedset", "blocking", "bitmap",
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
	if cmd.flags&flagReadOnly != 0 && cmd.group != groupScripting {
		c |= CategoryRead
	}
	if cmd.flags&flagAdmin != 0 {
		c |= CategoryAdmin | CategoryDangerous
	}
	if cmd.flags&flagPubSub != 0 {
		c |= CategoryPubSub
	}
	if cmd.flags&flagBlocking != 0 {
		c |= CategoryBlocking
	}
	return (c | groupCategories[cmd.group]) &^ cmd.but
}

// groupCategories are the categories that groups of commands imply.
var groupCategories = map[string]Category{
	groupString: CategoryString, groupHash: CategoryHash, groupSet: CategorySet, groupGeneric: CategoryKeyspace,
	groupList: CategoryList, groupSorted: CategorySortedSet, groupBitmap: CategoryBitmap,
	groupTransactions: CategoryTransaction, groupConnection: CategoryConnection, groupScripting: CategoryScripting,
}

// in reports whether the command can be run and is in one of the categories.
func (cmd *command) in(of Category) bool { return cmd.run != nil && cmd.category&of != 0 }

// become sets the client's user. If u is nil, the client has to authenticate.
func (c *client) become(u User) {
	c.user, c.free = u, u == everybody{}
	c.changing, _ = u.(ChangingUser)
	c.in.parser.unauthenticated = u == nil
	name := DefaultUser
	if u != nil {
		name = u.Name()
	}
	c.describe(func(i *clientInfo) { i.user = name })
}

// permitted returns the error reply if the client may not run a command, or else "".
func (c *client) permitted(cmd *command, r request) (refusal string) {
	if c.changing != nil {
		if now := c.changing.Current(); now != c.user {
			if c.user = now; now == nil {
				c.become(nil)
			}
		}
	}
	switch {
	case c.user == nil && cmd.flags&flagNoAuth != 0:
		return ""
	case c.user == nil:
		return errNoAuth
	case cmd.flags&flagNoAuth != 0, cmd.channels.first == 0 && c.user.Unrestricted():
		return ""
	}
	d := cmd.deniedTo(c.user, r)
	if d.reason == "" {
		return ""
	}
	c.server.denials.add(c, d, c.user.Name())
	return d.refusal(cmd)
}

// denial is why a user may not run a command. The zero value means that it may.
type denial struct{ reason, object string }

// The reasons of denials, in ACL LOG's words.
const (
	deniedCommand = "command"
	deniedKey     = "key"
	deniedChannel = "channel"
	deniedLogin   = "auth"
)

// refusal returns the error reply of a denial.
func (d denial) refusal(cmd *command) string {
	switch d.reason {
	case deniedCommand:
		return noPermission(cmd.name)
	case deniedKey:
		return errNoKeyPermission
	}
	return errNoChannel
}

// isDenial reports whether a refusal is one of permitted.
func isDenial(refusal string) bool {
	return refusal == errNoAuth || strings.HasPrefix(refusal, "NOPERM ")
}

// deniedTo returns why a user may not run a command.
func (cmd *command) deniedTo(u User, r request) denial {
	d := cmd.denied(u, r)
	for _, s := range u.Selectors() {
		if d.reason == "" {
			break
		}
		// A reason about channels takes precedence over one about keys, and that over one about
		// commands.
		other := cmd.denied(s, r)
		if other.reason == "" || other.reason == deniedChannel || other.reason == deniedKey && d.reason != deniedChannel {
			d = other
		}
	}
	return d
}

// denied returns why p does not allow the command.
func (cmd *command) denied(p Permissions, r request) denial {
	if !p.MayRun(cmd.name, cmd.category) && !cmd.permittedWithArgument(p, r) {
		return denial{deniedCommand, cmd.name}
	}
	n := 0
	for key := range cmd.keys.of(r) {
		if !p.MayUse(key, cmd.use(n, r).access) {
			return denial{deniedKey, string(key)}
		}
		n++
	}
	for channel := range cmd.channels.of(r) {
		if !p.MayJoin(channel, cmd.name == "psubscribe") {
			return denial{deniedChannel, string(channel)}
		}
	}
	return denial{}
}

// mayUseAll reports whether one of a user's rules allows the command, with access to all keys.
func (cmd *command) mayUseAll(u User, r request, a Access) bool {
	all := func(p Permissions) bool { return p.MayUseAll(a) && cmd.denied(p, r).reason == "" }
	return all(u) || slices.ContainsFunc(u.Selectors(), all)
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
	if c.authenticate(r, name, password) {
		c.out = appendSimple(c.reply(), "OK")
	} else {
		c.fail(errWrongPassword)
	}
}

// authenticate sets the client's user if the password is right.
func (c *client) authenticate(r request, name, password []byte) bool {
	users := c.server.opts.Users
	if users == nil {
		return string(name) == DefaultUser // no password is needed
	}
	c.flush() // earlier commands run as the previous user
	u := users.Authenticate(name, password)
	if u == nil {
		c.server.stats.deniedLogins.Add(1)
		c.server.denials.add(c, denial{deniedLogin, text(r.arg(0), shown)}, text(name, maxClientName))
		return false
	}
	c.become(u)
	return true
}

// everybody is the user of all clients if the server has no Users.
type everybody struct{}

func (everybody) Name() string                 { return DefaultUser }
func (everybody) Unrestricted() bool           { return true }
func (everybody) MayRun(string, Category) bool { return true }
func (everybody) MayUse([]byte, Access) bool   { return true }
func (everybody) MayUseAll(Access) bool        { return true }
func (everybody) MayJoin([]byte, bool) bool    { return true }
func (everybody) Selectors() []Permissions     { return nil }
