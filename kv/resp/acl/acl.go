// Package acl implements the users of a [resp.Server] by Redis's access control lists. A user
// is a name and a list of rules, which are applied in order.
//
//	default on nopass ~* &* +@all
//	alice on >secret ~cache:* %R~shared:* +@read +@write -flushall
//
// A new user is off and has no permissions. The rules are
//
//	on off                     whether the user can authenticate
//	>password #hash nopass     add a password, or the SHA-256 of one in hexadecimal digits;
//	                           accept any password
//	<password !hash resetpass  remove a password, or all of them
//	~pattern %R~ %W~ %RW~      allow keys, or only reading or writing them
//	allkeys resetkeys          allow all keys, or none
//	&pattern                   allow channels of publish and subscribe
//	allchannels resetchannels  allow all channels, or none
//	+command -command          allow or forbid a command, or a subcommand as in config|get
//	+@category -@category      allow or forbid a category
//	+command|argument          allow a command with that first argument
//	allcommands nocommands     the same as +@all and -@all
//	(rules) clearselectors     add a selector: rules on keys, channels and commands that permit a command
//	                           independently of the others; remove all selectors
//	reset                      return to a new user
//
// The last of the rules that match a command decides. Rules on commands and categories
// of Redis that this server lacks have no effect.
package acl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/kv/resp"
)

// Users implements [resp.UserList]. It is safe for concurrent use.
type Users struct {
	mu     sync.RWMutex // guards the fields below
	byName map[string]*account
	file   string // of AddFile
}

// account is a name, and its user at present.
type account struct {
	now atomic.Pointer[user] // nil once the account is deleted
}

// New returns the users of a server without access control: the default user, with all
// permissions and without a password.
func New() *Users {
	us := &Users{byName: make(map[string]*account)}
	if err := us.Add(resp.DefaultUser + " on nopass allkeys allchannels +@all"); err != nil {
		panic(err) // the rules are valid
	}
	return us
}

// Add adds a user, or replaces the user of the same name. line is the name and the rules,
// separated by blanks and optionally preceded by the word user.
func (us *Users) Add(line string) error {
	u, err := parse(line)
	if err != nil {
		return err
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	us.publish(u)
	return nil
}

// parse returns the user that a line describes.
func parse(line string) (*user, error) {
	words := strings.Fields(line)
	if len(words) > 1 && words[0] == "user" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, errors.New("acl: no user name, want a name and rules")
	}
	u := &user{name: words[0], of: new(account)}
	for i, rule := range joinSelectors(words[1:]) {
		if err := u.apply(rule); err != nil {
			// The error omits the rule, which may be a password.
			return nil, fmt.Errorf("acl: user %s: rule %d: %w", u.name, i+1, err)
		}
	}
	return u, nil
}

// publish makes u the user of its name. The caller holds mu.
func (us *Users) publish(u *user) {
	if a := us.byName[u.name]; a != nil {
		u.of = a
	}
	u.free = u.everyCommand() && u.MayUseAll(bothWays)
	u.of.now.Store(u)
	us.byName[u.name] = u.of
}

// find returns the user of a name, or nil.
func (us *Users) find(name string) *user {
	us.mu.RLock()
	defer us.mu.RUnlock()
	if a := us.byName[name]; a != nil {
		return a.now.Load()
	}
	return nil
}

// joinSelectors joins the words of each selector, whose rules are separated by blanks.
func joinSelectors(words []string) (rules []string) {
	open := false
	for _, word := range words {
		if open {
			rules[len(rules)-1] += " " + word
		} else {
			rules = append(rules, word)
		}
		open = (open || strings.HasPrefix(word, "(")) && !strings.HasSuffix(word, ")")
	}
	return rules
}

// Require sets the password of the default user and keeps its other permissions.
func (us *Users) Require(password string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := *us.byName[resp.DefaultUser].now.Load()
	u.open, u.passwords = false, nil
	_ = u.apply(">" + password) // always a valid rule
	us.publish(&u)
}

// Anonymous implements [resp.Users].
func (us *Users) Anonymous() resp.User {
	if u := us.find(resp.DefaultUser); u.on && u.open {
		return u
	}
	return nil
}

// Has implements [resp.Users].
func (us *Users) Has(name []byte) bool { return us.find(string(name)) != nil }

// nobody replaces an unknown user, so that authentication takes as long as with a wrong
// password.
var nobody = user{passwords: [][32]byte{{}}}

// Authenticate implements [resp.Users].
func (us *Users) Authenticate(name, password []byte) resp.User {
	u := us.find(string(name))
	if u == nil {
		_ = nobody.knows(password)
		return nil
	}
	if !u.knows(password) || !u.on {
		return nil
	}
	return u
}
