package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// user is immutable once it is published.
type user struct {
	name      string
	on        bool
	open      bool // any password is accepted
	passwords [][sha256.Size]byte
	permissions
	selectors []resp.Permissions
}

// permissions are the permissions of a user or of a selector.
type permissions struct {
	commands []commandRule // the last one that fits decides; if none does, the command is forbidden
	keys     []keyRule
}

// commandRule allows or forbids one of: a command with its subcommands, a subcommand, a
// command with a first argument, the commands of some categories.
type commandRule struct {
	allow      bool
	all        bool
	categories resp.Category
	command    string
}

func (r *commandRule) fits(command string, is resp.Category) bool {
	if r.command == "" {
		return r.all || r.categories&is != 0
	}
	rest, ok := strings.CutPrefix(command, r.command)
	return ok && (rest == "" || rest[0] == '|')
}

// keyRule allows access to the keys that match pattern.
type keyRule struct {
	access  resp.Access
	pattern []byte
}

// Name implements [resp.User].
func (u *user) Name() string { return u.name }

// Unrestricted implements [resp.User].
func (u *user) Unrestricted() bool {
	n := len(u.commands)
	return n > 0 && u.commands[n-1] == commandRule{allow: true, all: true} && u.everyKey()
}

// Selectors implements [resp.User].
func (u *user) Selectors() []resp.Permissions { return u.selectors }

func (p *permissions) everyKey() bool {
	return slices.ContainsFunc(p.keys, func(k keyRule) bool {
		return k.access == bothWays && len(k.pattern) > 0 && strings.Trim(string(k.pattern), "*") == ""
	})
}

// MayRun implements [resp.Permissions].
func (p *permissions) MayRun(command string, is resp.Category) bool {
	for i := len(p.commands) - 1; i >= 0; i-- {
		if r := &p.commands[i]; r.fits(command, is) {
			return r.allow
		}
	}
	return false
}

// MayUse implements [resp.Permissions]. A single rule must allow all of the access.
func (p *permissions) MayUse(key []byte, a resp.Access) bool {
	for i := range p.keys {
		if k := &p.keys[i]; k.access&a == a && glob.Match(k.pattern, key) {
			return true
		}
	}
	return false
}

// knows reports whether password is one of the user's. Its time does not depend on the
// passwords.
func (u *user) knows(password []byte) bool {
	sum, known := sha256.Sum256(password), 0
	for i := range u.passwords {
		known |= subtle.ConstantTimeCompare(sum[:], u.passwords[i][:])
	}
	return u.open || known == 1
}

const bothWays = resp.AccessRead | resp.AccessWrite

// apply applies one rule to the user.
func (u *user) apply(rule string) error {
	switch strings.ToLower(rule) {
	case "on", "off":
		u.on = strings.EqualFold(rule, "on")
	case "nopass":
		u.open, u.passwords = true, nil
	case "resetpass":
		u.open, u.passwords = false, nil
	case "reset":
		*u = user{name: u.name}
	case "clearselectors":
		u.selectors = nil
	case "sanitize-payload", "skip-sanitize-payload":
		// RESTORE always checks its payload.
	default:
		return u.applyOther(rule)
	}
	return nil
}

var errRule = errors.New("want on, off, nopass, >password, #hash, ~pattern, +command, +@category, or another of Redis's rules")

func (u *user) applyOther(rule string) error {
	if rule == "" {
		return errRule
	}
	switch value := rule[1:]; rule[0] {
	case '>', '#':
		sum, err := sumOf(rule)
		if err != nil {
			return err
		}
		u.open = false
		if !slices.Contains(u.passwords, sum) {
			u.passwords = append(u.passwords, sum)
		}
		return nil
	case '<', '!':
		sum, err := sumOf(rule)
		if err != nil {
			return err
		}
		at := slices.Index(u.passwords, sum)
		if at < 0 {
			return errors.New("the user does not have the password to remove")
		}
		u.passwords = slices.Delete(u.passwords, at, at+1)
		return nil
	case '(':
		return u.addSelector(value)
	}
	return u.permit(rule)
}

// addSelector adds a selector. rules begins after its opening parenthesis.
func (u *user) addSelector(rules string) error {
	rules, ok := strings.CutSuffix(rules, ")")
	if !ok {
		return errors.New("no closing parenthesis after the rules of a selector")
	}
	s := new(permissions)
	for i, rule := range strings.Fields(rules) {
		if err := s.permit(rule); err != nil {
			return fmt.Errorf("rule %d of a selector: %w", i+1, err)
		}
	}
	u.selectors = append(u.selectors, s)
	return nil
}

// permit applies one rule on keys or commands.
func (p *permissions) permit(rule string) error {
	switch strings.ToLower(rule) {
	case "allkeys":
		p.keys = []keyRule{{bothWays, []byte("*")}}
		return nil
	case "resetkeys":
		p.keys = nil
		return nil
	case "allcommands":
		return p.addCommand(true, "@all")
	case "nocommands":
		return p.addCommand(false, "@all")
	case "allchannels", "resetchannels": // the server has no channels
		return nil
	}
	switch value := rule[1:]; rule[0] {
	case '~':
		p.keys = append(p.keys, keyRule{bothWays, []byte(value)})
		return nil
	case '%':
		return p.addKeys(value)
	case '&':
		return nil // a channel
	case '+', '-':
		return p.addCommand(rule[0] == '+', strings.ToLower(value))
	}
	return errRule
}

// sumOf returns the SHA-256 of the password in a rule, or the hash in the rule.
func sumOf(rule string) (sum [sha256.Size]byte, err error) {
	if rule[0] == '>' || rule[0] == '<' {
		return sha256.Sum256([]byte(rule[1:])), nil
	}
	if b, err := hex.DecodeString(rule[1:]); err != nil || copy(sum[:], b) != len(sum) || len(b) != len(sum) {
		return sum, fmt.Errorf("want %d hexadecimal digits of SHA-256 after %c", 2*len(sum), rule[0])
	}
	return sum, nil
}

// addKeys adds a rule of the form %RW~pattern. rule begins after the %.
func (p *permissions) addKeys(rule string) error {
	letters, pattern, ok := strings.Cut(rule, "~")
	k := keyRule{pattern: []byte(pattern)}
	for _, c := range strings.ToUpper(letters) {
		switch c {
		case 'R':
			k.access |= resp.AccessRead
		case 'W':
			k.access |= resp.AccessWrite
		default:
			ok = false
		}
	}
	if !ok || k.access == 0 {
		return errors.New("want %R~pattern, %W~pattern or %RW~pattern")
	}
	p.keys = append(p.keys, k)
	return nil
}

func (p *permissions) addCommand(allow bool, what string) error {
	rule := commandRule{allow: allow, command: what}
	if category, ok := strings.CutPrefix(what, "@"); ok {
		if unsupportedCategories[category] {
			return nil
		}
		rule.command, rule.all = "", category == "all"
		if !rule.all {
			var err error
			if rule.categories, err = resp.ParseCategory(category); err != nil {
				return fmt.Errorf("unknown category %q", category)
			}
		}
	} else if unsupportedCommands[what] {
		return nil
	} else if !resp.HasCommand(what) {
		name, argument, hasArgument := strings.Cut(what, "|")
		switch {
		case !resp.HasCommand(name) && !unsupportedCommands[name], !hasArgument, argument == "", resp.HasSubcommands(name):
			return fmt.Errorf("unknown command %q", strings.ReplaceAll(what, "|", " "))
		case strings.Contains(argument, "|"):
			return fmt.Errorf("several arguments of %q, want only the first", name)
		case !allow:
			return fmt.Errorf("a first argument of %q can only be allowed, not forbidden", name)
		case unsupportedCommands[name]:
			return nil
		}
	}
	if rule.all {
		p.commands = nil
	}
	p.commands = append(p.commands, rule)
	return nil
}
