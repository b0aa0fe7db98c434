// Package acl implements the users of a [resp.Server] by Redis's access control lists. A user
// is a name and a list of rules, which are applied in order.
//
//	default on nopass ~* +@all
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
//	+command -command          allow or forbid a command, or a subcommand as in config|get
//	+@category -@category      allow or forbid a category
//	+command|argument          allow a command with that first argument
//	allcommands nocommands     the same as +@all and -@all
//	(rules) clearselectors     add a selector: rules on keys and commands that permit a command
//	                           independently of the others; remove all selectors
//	reset                      return to a new user
//
// The last of the rules that match a command decides. Rules on channels, and on commands and
// categories of Redis that this server lacks, have no effect.
package acl

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redykv/redykv/kv/resp"
)

// Users implements [resp.Users]. It is safe for concurrent use once all users have been added.
type Users struct {
	byName map[string]*user
}

// New returns the users of a server without access control: the default user, with all
// permissions and without a password.
func New() *Users {
	us := &Users{byName: make(map[string]*user)}
	if err := us.Add(resp.DefaultUser + " on nopass allkeys +@all"); err != nil {
		panic(err) // the rules are valid
	}
	return us
}

// Add adds a user, or replaces the user of the same name. line is the name and the rules,
// separated by blanks and optionally preceded by the word user.
func (us *Users) Add(line string) error {
	words := strings.Fields(line)
	if len(words) > 1 && words[0] == "user" {
		words = words[1:]
	}
	if len(words) == 0 {
		return errors.New("acl: no user name, want a name and rules")
	}
	u := &user{name: words[0]}
	for i, rule := range joinSelectors(words[1:]) {
		if err := u.apply(rule); err != nil {
			// The error omits the rule, which may be a password.
			return fmt.Errorf("acl: user %s: rule %d: %w", u.name, i+1, err)
		}
	}
	us.byName[u.name] = u
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
		open = (open || word[0] == '(') && !strings.HasSuffix(word, ")")
	}
	return rules
}

// Require sets the password of the default user and keeps its other permissions.
func (us *Users) Require(password string) {
	u := *us.byName[resp.DefaultUser]
	u.open, u.passwords = false, nil
	_ = u.apply(">" + password) // always a valid rule
	us.byName[u.name] = &u
}

// AddFile adds the users of a file. Each line has the word user, a name and rules. Empty lines
// and lines that begin with # are ignored.
func (us *Users) AddFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("acl: %w", err)
	}
	seen := make(map[string]bool)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#':
			continue
		case words[0] != "user" || len(words) < 2:
			return fmt.Errorf("acl: %s, line %d: want the word user, a name and rules", name, n)
		case seen[words[1]]:
			return fmt.Errorf("acl: %s, line %d: user %s is defined twice", name, n, words[1])
		}
		seen[words[1]] = true
		if err := us.Add(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, err)
		}
	}
	return nil
}

// Anonymous implements [resp.Users].
func (us *Users) Anonymous() resp.User {
	if u := us.byName[resp.DefaultUser]; u.on && u.open {
		return u
	}
	return nil
}

// Has implements [resp.Users].
func (us *Users) Has(name []byte) bool { return us.byName[string(name)] != nil }

// nobody replaces an unknown user, so that authentication takes as long as with a wrong
// password.
var nobody = user{passwords: [][32]byte{{}}}

// Authenticate implements [resp.Users].
func (us *Users) Authenticate(name, password []byte) resp.User {
	u, ok := us.byName[string(name)]
	if !ok {
		u = &nobody
	}
	if !u.knows(password) || !u.on || !ok {
		return nil
	}
	return u
}
