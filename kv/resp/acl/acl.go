// Package acl has users of a [resp.Server] as Redis's access control lists describe
// them: a name and rules, which are applied one after the other.
//
//	default on nopass ~* +@all
//	alice on >secret ~cache:* %R~shared:* +@read +@write -flushall
//
// A new user is off and may do nothing. Rules are
//
//	on off                     whether it can authenticate
//	>password #hash nopass     what authenticates it: a password, the SHA-256 of one in
//	<password !hash resetpass  hexadecimal digits, anything; and the same taken away
//	~pattern %R~ %W~ %RW~      keys that it may use, or read or write only
//	allkeys resetkeys          all, none
//	+command -command          commands, config|get for one with a subcommand, that it
//	+@category -@category      may run or not: of what fits a command, the last counts
//	+command|argument          a command with that first argument
//	allcommands nocommands     +@all, -@all
//	(rules) clearselectors     a selector, of rules on keys and commands: what it allows
//	                           together is allowed besides; none of them
//	reset                      off and nothing
//
// Rules on channels, and on commands and categories that Redis has and this server has
// not, change nothing.
package acl

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redykv/redykv/kv/resp"
)

// Users implements [resp.Users]. It is safe for concurrent use once all users have
// been added.
type Users struct {
	byName map[string]*user
}

// New returns the users of a server without access control: the default user, who
// needs no password and may do everything.
func New() *Users {
	us := &Users{byName: make(map[string]*user)}
	if err := us.Add(resp.DefaultUser + " on nopass allkeys +@all"); err != nil {
		panic(err) // these rules are right
	}
	return us
}

// Add adds a user, or replaces the one of that name: a name and rules, between
// blanks, after the word user if that is there.
func (us *Users) Add(line string) error {
	words := strings.Fields(line)
	if len(words) > 1 && words[0] == "user" {
		words = words[1:]
	}
	if len(words) == 0 {
		return errors.New("acl: a user without a name")
	}
	u := &user{name: words[0]}
	for i, rule := range joinSelectors(words[1:]) {
		if err := u.apply(rule); err != nil {
			// Not the rule itself: it may be a password.
			return fmt.Errorf("acl: user %s: rule %d: %w", u.name, i+1, err)
		}
	}
	us.byName[u.name] = u
	return nil
}

// joinSelectors makes one rule of each selector, which has blanks between its rules.
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

// Require has the default user show a password, who keeps what else it has.
func (us *Users) Require(password string) {
	u := *us.byName[resp.DefaultUser]
	u.open, u.passwords = false, nil
	_ = u.apply(">" + password) // which is always a rule
	us.byName[u.name] = &u
}

// AddFile adds the users of a file, one on a line after the word user. Lines that
// begin with # and empty ones do not count.
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
			return fmt.Errorf("acl: %s, line %d: want user, a name, and rules", name, n)
		case seen[words[1]]:
			return fmt.Errorf("acl: %s, line %d: user %s again", name, n, words[1])
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

// nobody stands in for users that there are not, so that it takes as long to find
// out as with a wrong password.
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
